// The few inner loops that are compiled once per instruction set, and the choice among them.
//
// The choice is made at run time, so one program runs everywhere and still uses AVX2 or AVX-512.
// Results are bit-identical for any number of threads, but differ in the last bits between levels,
// since FMA rounds once where multiply and add round twice. The baseline gives the same bits on
// every processor.
#pragma once

#include <stdint.h>

namespace octavo::standalone {

struct Simd {
  const char *name;
  int64_t tile_rows;
  int64_t tile_cols;
  // c[tile_rows, tile_cols] (+)= sum over k, in rising order, of a[k][i] * b[k][j].
  void (*tile)(int64_t k, const float *a, const float *b, float *c, int64_t c_stride,
               bool accumulate);
  void (*gelu_forward)(const float *x, float *y, int64_t count);
  void (*gelu_backward)(const float *x, const float *dy, float *dx, int64_t count);
  // Replaces a row by its softmax; returns the logarithm of the sum of exponentials.
  float (*softmax_row)(float *row, int64_t count);
};

extern const Simd kSimdBaseline;
extern const Simd kSimdAvx2;
extern const Simd kSimdAvx512;

// The best level that this processor and the operating system run.
[[gnu::always_inline]] inline const Simd &best_simd() {
#if defined(__x86_64__)
  static const bool avx512 = __builtin_cpu_supports("avx512f");
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return avx512 ? kSimdAvx512 : avx2 ? kSimdAvx2 : kSimdBaseline;
#else
  return kSimdBaseline;
#endif
}
// What simd() gives: the best level, or the baseline after --portable. Set before threads use it.
[[gnu::always_inline]] inline const Simd *&simd_in_use() {
  static const Simd *level = &best_simd();
  return level;
}
[[gnu::always_inline]] inline const Simd &simd() {
  return *simd_in_use();
}

}  // namespace octavo::standalone
