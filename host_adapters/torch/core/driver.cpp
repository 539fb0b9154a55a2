// Indices are the driver's, which obeys CUDA_VISIBLE_DEVICES as torch does.
#include "driver.h"

#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include "entry.h"

namespace octavo::core {

void *loaded(const char *library, const char *name) {
  void *const handle = dlopen(library, RTLD_NOLOAD | RTLD_LAZY);
  if (handle == nullptr) return nullptr;
  void *const function = dlsym(handle, name);
  dlclose(handle);  // its owner keeps it
  return function;
}

std::string gpu_of(const Device &device) {
  if (device.type == aoti_torch_device_type_cpu()) return {};
  using Get = int (*)(int *device, int ordinal);
  using Uuid = int (*)(char *uuid, int device);
  const auto get = reinterpret_cast<Get>(loaded("libcuda.so.1", "cuDeviceGet"));
  const auto ask = reinterpret_cast<Uuid>(loaded("libcuda.so.1", "cuDeviceGetUuid_v2"));
  std::string uuid(16, '\0');
  int number = 0;
  if (get == nullptr || ask == nullptr || get(&number, device.index) != 0 ||
      ask(uuid.data(), number) != 0)
    return {};
  return uuid;
}

}  // namespace octavo::core
