// AdamW on fp32 tensors as one pass of 512-bit arithmetic: what FP8 states must beat.
//
// 16 bytes read and 12 written for every parameter, so on a large tensor memory is the limit.
#include <immintrin.h>

#include "tests/bench/avx512.h"

namespace octavo::bench {

void adam_f32(const AdamConstants &c, const float *gradient, int64_t n, float *weight,
              float *exp_avg, float *exp_avg_sq) {
  const __m512 beta1 = _mm512_set1_ps(c.beta1);
  const __m512 beta2 = _mm512_set1_ps(c.beta2);
  const __m512 rest1 = _mm512_set1_ps(1.0f - c.beta1);
  const __m512 rest2 = _mm512_set1_ps(1.0f - c.beta2);
  const __m512 step = _mm512_set1_ps(c.step_size);
  const __m512 correction = _mm512_set1_ps(1.0f / c.root_correction2);
  const __m512 eps = _mm512_set1_ps(c.eps);
  const __m512 keep = _mm512_set1_ps(c.keep);
  for (int64_t i = 0; i < n; i += 16) {
    const __m512 g = _mm512_loadu_ps(gradient + i);
    const __m512 m = _mm512_fmadd_ps(beta1, _mm512_loadu_ps(exp_avg + i), _mm512_mul_ps(rest1, g));
    const __m512 v = _mm512_fmadd_ps(beta2, _mm512_loadu_ps(exp_avg_sq + i),
                                     _mm512_mul_ps(_mm512_mul_ps(rest2, g), g));
    const __m512 root = _mm512_fmadd_ps(_mm512_sqrt_ps(v), correction, eps);
    const __m512 w = _mm512_mul_ps(_mm512_loadu_ps(weight + i), keep);
    _mm512_storeu_ps(exp_avg + i, m);
    _mm512_storeu_ps(exp_avg_sq + i, v);
    _mm512_storeu_ps(weight + i, _mm512_fnmadd_ps(step, _mm512_div_ps(m, root), w));
  }
}

}  // namespace octavo::bench
