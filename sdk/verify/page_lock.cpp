// cuMemHostRegister of the driver that the kernels have loaded, by its documented signatures.
#include "page_lock.h"

#include <dlfcn.h>

#include "report.h"

namespace octavo::conformance {
namespace {

template <typename Function>
Function *driver(const char *name) {
  void *const library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return nullptr;
  void *const function = dlsym(library, name);
  dlclose(library);  // whoever loaded it keeps it
  return reinterpret_cast<Function *>(function);
}

// The primary context of a device, which the CUDA runtime uses, current in this thread.
class Primary {
 public:
  explicit Primary(int index) {
    const auto get = driver<int(int *, int)>("cuDeviceGet");
    const auto retain = driver<int(void **, int)>("cuDevicePrimaryCtxRetain");
    const auto push = driver<int(void *)>("cuCtxPushCurrent_v2");
    void *context = nullptr;
    is_current_ = get != nullptr && retain != nullptr && push != nullptr &&
                  get(&device_, index) == 0 && retain(&context, device_) == 0;
    if (is_current_) push(context);
  }
  ~Primary() {
    if (!is_current_) return;
    void *context = nullptr;
    driver<int(void **)>("cuCtxPopCurrent_v2")(&context);
    driver<int(int)>("cuDevicePrimaryCtxRelease_v2")(device_);
  }
  Primary(const Primary &) = delete;
  Primary &operator=(const Primary &) = delete;

 private:
  int device_ = 0;
  bool is_current_ = false;
};

}  // namespace

void PageLock::lock(void *begin, uint64_t bytes) {
  if (device_.type != OCTAVO_DEVICE_CUDA || bytes == 0) return;
  const auto add = driver<int(void *, size_t, unsigned)>("cuMemHostRegister_v2");
  if (add == nullptr) return;
  constexpr unsigned kForAllContexts = 1;  // CU_MEMHOSTREGISTER_PORTABLE
  const Primary primary(device_.index);
  const int error = add(begin, bytes, kForAllContexts);
  if (error != 0)
    throw Failure(text("the driver does not lock ", bytes,
                       " bytes of this program's memory, which the ",
                       "device is to read: cuMemHostRegister answered error ", error));
  locked_.push_back(begin);
}

void PageLock::clear() {
  if (locked_.empty()) return;
  const Primary primary(device_.index);
  const auto remove = driver<int(void *)>("cuMemHostUnregister");
  if (remove == nullptr) return;
  for (void *const begin : locked_) remove(begin);
  locked_.clear();
}

int wait_for(octavo_device device) {
  if (device.type != OCTAVO_DEVICE_CUDA) return 0;
  const auto wait = driver<int()>("cuCtxSynchronize");
  if (wait == nullptr) return 0;
  const Primary primary(device.index);
  return wait();
}

}  // namespace octavo::conformance
