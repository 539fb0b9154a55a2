// Reads the processor from the kernel's files and cpuid.
#include "hardware.h"

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
  probe_cuda(hw);
  return hw;
}

}  // namespace octavo
