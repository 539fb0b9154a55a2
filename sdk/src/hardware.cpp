// Reads the processor from the kernel's files and cpuid, and the GPUs from libcuda.so.1 when it is
// there; liboctavo itself links no CUDA.
#include "hardware.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <fstream>

namespace octavo {
namespace {

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::vector<std::string> cpu_features() {
  std::vector<std::string> found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx")) found.push_back("avx");
  if (__builtin_cpu_supports("avx2")) found.push_back("avx2");
  if (__builtin_cpu_supports("fma")) found.push_back("fma");
  if (__builtin_cpu_supports("avx512f")) found.push_back("avx512f");
  if (__builtin_cpu_supports("avx512bw")) found.push_back("avx512bw");
  if (__builtin_cpu_supports("avx512vl")) found.push_back("avx512vl");
  if (__builtin_cpu_supports("avx512vbmi")) found.push_back("avx512vbmi");
  if (__builtin_cpu_supports("avx512bf16")) found.push_back("avx512bf16");
#endif
  return found;
}

unsigned cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return static_cast<unsigned>(CPU_COUNT(&set));
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? static_cast<unsigned>(online) : 1u;
}

// The six functions of the CUDA driver API that identify devices, by their documented signatures.
class CudaDriver {
 public:
  CudaDriver() : library_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {}

  void fill(Hardware &hw) const {
    if (library_ == nullptr) {
      hw.cuda_text = "no driver: libcuda.so.1 was not found";
      return;
    }
    const auto init = find<int(unsigned)>("cuInit");
    const auto version = find<int(int *)>("cuDriverGetVersion");
    const auto count = find<int(int *)>("cuDeviceGetCount");
    const auto get = find<int(int *, int)>("cuDeviceGet");
    const auto name = find<int(char *, int, int)>("cuDeviceGetName");
    const auto attribute = find<int(int *, int, int)>("cuDeviceGetAttribute");
    const auto memory = find<int(size_t *, int)>("cuDeviceTotalMem_v2");
    if (!init || !version || !count || !get || !name || !attribute || !memory) {
      hw.cuda_text = "libcuda.so.1 lacks functions of the driver API";
      return;
    }
    if (const int error = init(0); error != 0) {
      hw.cuda_text = "the driver was found, but cuInit failed with error " + std::to_string(error);
      return;
    }
    int number = 0;
    int devices = 0;
    version(&number);
    count(&devices);
    hw.cuda_driver = true;
    hw.cuda_text = "driver for CUDA " + std::to_string(number / 1000) + "." +
                   std::to_string(number % 1000 / 10);
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
      hw.cuda_devices.push_back(device);
    }
  }

 private:
  template <typename F>
  F *find(const char *symbol) const {
    return reinterpret_cast<F *>(dlsym(library_, symbol));
  }
  void *library_;  // stays open: drivers do not survive being closed
};

}  // namespace

Hardware probe_hardware() {
  Hardware hw;
  hw.cpu_model = cpu_model();
  hw.cpu_features = cpu_features();
  hw.cores = cores();
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGE_SIZE);
  if (pages > 0 && page > 0)
    hw.memory_bytes = static_cast<uint64_t>(pages) * static_cast<uint64_t>(page);
  static const CudaDriver driver;
  driver.fill(hw);
  return hw;
}

}  // namespace octavo
