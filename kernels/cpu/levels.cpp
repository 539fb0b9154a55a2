/* The list of levels in this build, best first, and what each demands of a CPU.
 *
 * OCTAVO_X86_LEVELS and OCTAVO_ARM_LEVELS say which levels the build system compiled; the demands
 * here repeat the flags in CMakeLists.txt.
 */
#include "kernels/cpu/level.h"

#ifdef OCTAVO_X86_LEVELS
#include <cpuid.h>
#endif

namespace octavo {

#ifdef OCTAVO_X86_LEVELS
extern const Level level_avx512_bf16;
extern const Level level_avx512;
extern const Level level_avx2;
#endif
#ifdef OCTAVO_ARM_LEVELS
extern const Level level_neon;
#endif
extern const Level level_baseline;

namespace {

#ifdef OCTAVO_X86_LEVELS
/* clang 14's __builtin_cpu_supports does not know the name. */
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

/* The kernels' sums are chains, and the instruction set promises no order of its dot product. */
bool has_avx512_bf16() {
  return has_avx512() && __builtin_cpu_supports("avx512vbmi") &&
         __builtin_cpu_supports("avx512bf16") && level_avx512_bf16.dot->is_chain();
}

bool has_avx10_2() {
  return false; /* to be asked of CPUID leaf 0x24 once there are kernels */
}
#endif

bool has_all_it_needs() {
  return true;
}

}  // namespace

const LevelEntry kLevels[] = {
#ifdef OCTAVO_X86_LEVELS
    {"avx10_2", nullptr, &has_avx10_2},
    {"avx512_bf16", &level_avx512_bf16, &has_avx512_bf16},
    {"avx512", &level_avx512, &has_avx512},
    {"avx2", &level_avx2, &has_avx2},
#endif
#ifdef OCTAVO_ARM_LEVELS
    {"neon", &level_neon, &has_all_it_needs}, /* a part of every aarch64 */
#endif
    {"baseline", &level_baseline, &has_all_it_needs},
};
const int kLevelCount = sizeof(kLevels) / sizeof(kLevels[0]);

}  // namespace octavo
