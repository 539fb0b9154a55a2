// Chooses the widest instruction set that the processor and the operating system support.
#include "simd.h"

namespace gpt {

const Simd &simd() {
#if defined(__x86_64__)
  static const Simd &best = []() -> const Simd & {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) return kSimdAvx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return kSimdAvx2;
    return kSimdBaseline;
  }();
  return best;
#else
  return kSimdBaseline;
#endif
}

}  // namespace gpt
