// Asks libcuda.so.1 and libnvidia-ml.so.1 when they are there, by their documented signatures;
// liboctavo itself links no CUDA.
#include <dlfcn.h>

#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/file/listing.h"
#include "sdk/src/machine/hardware.h"

namespace octavo {
namespace {

// A library that stays open: drivers do not survive being closed.
class Library {
 public:
  explicit Library(const char *name) : handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    const char *words = handle_ == nullptr ? dlerror() : nullptr;
    if (words != nullptr && !names_verdict(words))
      throw ResourceUnavailable(std::string("whether there is a GPU is not known: ") + words,
                                kMakeRoom);
  }
  bool is_open() const { return handle_ != nullptr; }
  template <typename F>
  F *find(const char *symbol) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<F *>(dlsym(handle_, symbol));
  }

 private:
  void *handle_;
};

void ask_driver(const Library &cuda, Hardware &hw) {
  if (!cuda.is_open()) {
    hw.cuda_text = "no driver: libcuda.so.1 was not found";
    return;
  }
  hw.cuda_library = true;
  const auto init = cuda.find<int(unsigned)>("cuInit");
  const auto version = cuda.find<int(int *)>("cuDriverGetVersion");
  const auto count = cuda.find<int(int *)>("cuDeviceGetCount");
  const auto get = cuda.find<int(int *, int)>("cuDeviceGet");
  const auto name = cuda.find<int(char *, int, int)>("cuDeviceGetName");
  const auto attribute = cuda.find<int(int *, int, int)>("cuDeviceGetAttribute");
  const auto memory = cuda.find<int(size_t *, int)>("cuDeviceTotalMem_v2");
  if (!init || !version || !count || !get || !name || !attribute || !memory) {
    hw.cuda_text = "libcuda.so.1 lacks functions of the driver API";
    return;
  }
  const int error = init(0);
  constexpr int kNoDevice = 100;
  if (error != 0 && error != kNoDevice) {
    hw.cuda_text = concat("the driver was found, but cuInit failed with error ", error);
    return;
  }
  int devices = 0;
  version(&hw.cuda_version);
  if (error == 0) count(&devices);
  hw.cuda_driver = true;
  hw.cuda_text =
      concat("driver for CUDA ", hw.cuda_version / 1000, ".", hw.cuda_version % 1000 / 10);
  for (int i = 0; i < devices; ++i) {
    int handle = 0;
    char text[256] = {};
    size_t bytes = 0;
    CudaDevice device;
    device.index = i;
    if (get(&handle, i) != 0) continue;
    if (name(text, sizeof(text) - 1, handle) == 0) device.name = text;
    constexpr int kCapabilityMajor = 75;
    constexpr int kCapabilityMinor = 76;
    attribute(&device.capability_major, kCapabilityMajor, handle);
    attribute(&device.capability_minor, kCapabilityMinor, handle);
    if (memory(&bytes, handle) == 0) device.memory_bytes = bytes;
    device.free_bytes = device.memory_bytes;
    hw.cuda_devices.push_back(device);
  }
}

// What only the management library tells: the driver's own version, MIG mode and free memory.
void ask_management(const Library &nvml, Hardware &hw) {
  struct Memory {
    unsigned long long total, free, used;
  };
  const auto init = nvml.find<int()>("nvmlInit_v2");
  const auto version = nvml.find<int(char *, unsigned)>("nvmlSystemGetDriverVersion");
  const auto count = nvml.find<int(unsigned *)>("nvmlDeviceGetCount_v2");
  const auto get = nvml.find<int(unsigned, void **)>("nvmlDeviceGetHandleByIndex_v2");
  const auto mig = nvml.find<int(void *, unsigned *, unsigned *)>("nvmlDeviceGetMigMode");
  const auto memory = nvml.find<int(void *, Memory *)>("nvmlDeviceGetMemoryInfo");
  if (!init || !version || !count || !get || !memory || init() != 0) return;
  char text[96] = {};
  if (version(text, sizeof(text) - 1) == 0) hw.driver_version = text;
  unsigned devices = 0;
  if (count(&devices) != 0) return;
  for (unsigned i = 0; i < devices; ++i) {
    void *handle = nullptr;
    if (get(i, &handle) != 0) continue;
    unsigned now = 0;
    unsigned later = 0;
    const bool is_mig = mig != nullptr && mig(handle, &now, &later) == 0 && now == 1;
    if (is_mig) ++hw.mig_devices;
    Memory m{};
    // NVML counts GPUs, CUDA what it may use of them: they agree where nothing is hidden.
    if (!is_mig && devices == hw.cuda_devices.size() && memory(handle, &m) == 0)
      hw.cuda_devices[i].free_bytes = m.free;
  }
}

}  // namespace

unsigned count_bus_gpus(const std::string &folder) {
  const auto first_line = [](const std::string &file) {
    std::ifstream in = open_lines(file);
    std::string line;
    std::getline(in, line);
    return line;
  };
  int error = 0;
  unsigned count = 0;
  for (const std::string &device : files_in(folder, "", &error))
    if (first_line(device + "/vendor") == "0x10de" &&
        first_line(device + "/class").starts_with("0x03"))
      ++count;
  return count;
}

void read_cuda(Hardware &hw) {
  static const Library cuda("libcuda.so.1");
  ask_driver(cuda, hw);
  if (!hw.cuda_driver) return;
  static const Library nvml("libnvidia-ml.so.1");
  ask_management(nvml, hw);
}

}  // namespace octavo
