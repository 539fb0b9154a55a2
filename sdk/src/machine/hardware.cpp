// Reads the processor from the kernel's files and cpuid.
#include "sdk/src/machine/hardware.h"

#include <sched.h>
#include <unistd.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <utility>

#include "sdk/src/base/resource_unavailable.h"

namespace octavo {
namespace {

std::string cpu_model() {
  std::ifstream in = open_lines("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::vector<std::string> cpu_features() {
  std::vector<std::string> found;
  for (const char *name :
       {"avx", "avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512vbmi", "avx512bf16"})
    if (cpu_has(name) == 1) found.push_back(name);
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

int cpu_has(const std::string &feature) {
#if defined(__x86_64__)
  __builtin_cpu_init();
#define OCTAVO_FEATURE(name) \
  { name, __builtin_cpu_supports(name) != 0 }
  const std::pair<const char *, bool> features[] = {
      OCTAVO_FEATURE("sse4.2"),     OCTAVO_FEATURE("avx"),       OCTAVO_FEATURE("avx2"),
      OCTAVO_FEATURE("fma"),        OCTAVO_FEATURE("bmi"),       OCTAVO_FEATURE("bmi2"),
      OCTAVO_FEATURE("avx512f"),    OCTAVO_FEATURE("avx512bw"),  OCTAVO_FEATURE("avx512cd"),
      OCTAVO_FEATURE("avx512dq"),   OCTAVO_FEATURE("avx512vl"),  OCTAVO_FEATURE("avx512vbmi"),
      OCTAVO_FEATURE("avx512vnni"), OCTAVO_FEATURE("avx512bf16")};
#undef OCTAVO_FEATURE
  for (const auto &[name, has] : features)
    if (feature == name) return static_cast<int>(has);
#elif defined(__aarch64__)
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  if (feature == "asimd") return (first & HWCAP_ASIMD) != 0;
  if (feature == "sve") return (first & HWCAP_SVE) != 0;
  if (feature == "sve2") return (second & HWCAP2_SVE2) != 0;
  if (feature == "bf16") return (second & HWCAP2_BF16) != 0;
  if (feature == "i8mm") return (second & HWCAP2_I8MM) != 0;
#endif
  return -1;
}

Hardware read_hardware() {
  Hardware hw;
  hw.cpu_model = cpu_model();
  hw.cpu_features = cpu_features();
  hw.cores = cores();
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGE_SIZE);
  if (pages > 0 && page > 0)
    hw.memory_bytes = static_cast<uint64_t>(pages) * static_cast<uint64_t>(page);
  read_cuda(hw);
  return hw;
}

}  // namespace octavo
