/* kernels/format/activation.h: GELU and SiLU in fp32, bit-identical on every machine.
 *
 * Library functions differ in the last bit between systems and devices, and so would the codes.
 * These functions are therefore fixed sequences of IEEE operations. No product may be contracted
 * with the addition that follows: write product_of() and product_sum_of(), never a * b + c. No
 * function branches, so that compilers vectorize loops over them.
 *
 * Maximum errors against fp64 libraries, in units in the last place of the exact result, as checked
 * by tests/kernels/activation_test.cpp: exponential 1, sigmoid 2.5, Phi(x) for x >= 0 1.5, its tail
 * normal_tail 6 (1 + erf would lose all digits there), gelu 6.5, SiLU 3.5, gelu_tanh 4 and, for
 * x < 0, 3 times the argument of its sigmoid, which is rounded. If a factor of the result is
 * subnormal, add abs(x) 2^-149.
 */
#pragma once

#include "kernels/format/bits.h"

namespace octavo {

OCTAVO_HOST_DEVICE static inline float sum_of(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

OCTAVO_HOST_DEVICE static inline float product_of(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b; /* the build disables contraction */
#endif
}

OCTAVO_HOST_DEVICE static inline float quotient_of(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

/* fl(fl(a * b) + c). */
OCTAVO_HOST_DEVICE static inline float product_sum_of(float a, float b, float c) {
  return sum_of(product_of(a, b), c);
}

/* e^(x + low) for abs(low) < 0.06. x = n ln 2 + r; e^r is a polynomial of degree 7 (minimax on
 * abs(r) < 0.41, error below 2^-29). 2^n is applied in two factors, because 2^128 is out of range
 * and a subnormal result must be rounded only once. */
OCTAVO_HOST_DEVICE static inline float exponential_of_sum(float x, float low) {
  constexpr float kShift = 0x1.8p23f; /* adding it rounds to an integer */
  constexpr float kLog2E = 0x1.715476p0f;
  constexpr float kLn2High = 0x1.62e4p-1f; /* 15 bits: its product with n is exact */
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  x = x < -105.0f ? -105.0f : x; /* below 2^-150: 0 */
  x = x > 89.0f ? 89.0f : x;     /* above 2^128: infinity */
  const float shifted = product_sum_of(x, kLog2E, kShift);
  const float n = sum_of(shifted, -kShift);
  const float near = sum_of(x, -product_of(n, kLn2High));
  const float r = sum_of(sum_of(near, -product_of(n, kLn2Low)), low);
  float q = 0x1.a18fb2p-13f;
  q = product_sum_of(q, r, 0x1.6dbb52p-10f);
  q = product_sum_of(q, r, 0x1.1110b2p-7f);
  q = product_sum_of(q, r, 0x1.555482p-5f);
  q = product_sum_of(q, r, 0x1.555556p-3f);
  q = product_sum_of(q, r, 0.5f);
  const float power = sum_of(1.0f, sum_of(r, product_of(product_of(r, r), q)));
  const int32_t exponent = float_bits(shifted) - float_bits(kShift);
  const int32_t half = exponent >> 1;
  const auto low_bits = static_cast<uint32_t>(half + 127) << 23;
  const auto high_bits = static_cast<uint32_t>(exponent - half + 127) << 23;
  return product_of(product_of(power, bits_float(static_cast<int32_t>(low_bits))),
                    bits_float(static_cast<int32_t>(high_bits)));
}

OCTAVO_HOST_DEVICE static inline float exponential(float x) {
  return exponential_of_sum(x, 0.0f);
}

/* x / (1 + e^-y), computed from e^-abs(y), which cannot overflow. */
OCTAVO_HOST_DEVICE static inline float times_sigmoid(float x, float y) {
  const float e = exponential(-absolute(y));
  const float share = y < 0.0f ? e : 1.0f;
  return quotient_of(product_of(x, share), sum_of(1.0f, e));
}

/* Phi(-a) for 0 <= a < 1: 1/2 - a p(a^2), with p of degree 5 (minimax, error below 2^-31). */
OCTAVO_HOST_DEVICE static inline float normal_tail_center(float a) {
  const float square = product_of(a, a);
  float p = -7.660538e-6f;
  p = product_sum_of(p, square, 1.135022962e-4f);
  p = product_sum_of(p, square, -1.186343989e-3f);
  p = product_sum_of(p, square, 9.973328481e-3f);
  p = product_sum_of(p, square, -6.649036057e-2f);
  p = product_sum_of(p, square, 0.3989422801f);
  return sum_of(0.5f, -product_of(a, p));
}

/* Phi(-a) for a >= 1, accurate for tiny results too: Phi(-a) e^(a^2 / 2) = t p(t - 0.35) with
 * t = 1 / (1 + 0.4 a) and p of degree 8 (minimax for a in [1, 15], relative error below 2^-27). a^2
 * is split into two parts, because rounding it would cost a^2 / 4 units in the last place. */
OCTAVO_HOST_DEVICE static inline float normal_tail_far(float a) {
  a = a > 15.0f ? 15.0f : a; /* Phi(-15) is below the smallest subnormal */
  const float t = quotient_of(1.0f, product_sum_of(0.4f, a, 1.0f));
  const float s = sum_of(t, -0.35f);
  float p = -0.058142745f;
  p = product_sum_of(p, s, 0.0326560300f);
  p = product_sum_of(p, s, 0.0696300995f);
  p = product_sum_of(p, s, -0.0461933621f);
  p = product_sum_of(p, s, -0.0956181358f);
  p = product_sum_of(p, s, 0.0331629039f);
  p = product_sum_of(p, s, 0.2101622416f);
  p = product_sum_of(p, s, 0.2830408156f);
  p = product_sum_of(p, s, 0.2354170444f);
  const float high = bits_float(float_bits(a) & ~0xFFF); /* 12 bits: its square is exact */
  const float rest = product_of(sum_of(a, -high), sum_of(a, high));
  const float power =
      exponential_of_sum(product_of(-0.5f, product_of(high, high)), product_of(-0.5f, rest));
  return product_of(power, product_of(t, p));
}

/* Phi(-abs(x)) = erfc(abs(x) / sqrt(2)) / 2, the tail of the normal distribution. */
OCTAVO_HOST_DEVICE static inline float normal_tail(float x) {
  const float a = absolute(x);
  const float center = normal_tail_center(a);
  const float far = normal_tail_far(a);
  return a < 1.0f ? center : far;
}

/* x Phi(x) (Hendrycks and Gimpel, arXiv 1606.08415). */
OCTAVO_HOST_DEVICE static inline float gelu(float x) {
  const float tail = normal_tail(x);
  const float phi = x < 0.0f ? tail : sum_of(1.0f, -tail);
  return with_one_nan(product_of(x, phi));
}

/* The approximation x (1 + tanh u) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3), of the same paper,
 * computed as x sigmoid(2 u), which is mathematically equal. */
OCTAVO_HOST_DEVICE static inline float gelu_tanh(float x) {
  constexpr float kTwiceRoot = 0x1.988454p0f; /* 2 sqrt(2 / pi) */
  const float cubic = product_of(product_of(product_of(0.044715f, x), x), x);
  return with_one_nan(times_sigmoid(x, product_of(kTwiceRoot, sum_of(x, cubic))));
}

/* SwiGLU: gate * sigmoid(gate) * up (Shazeer, arXiv 2002.05202). */
OCTAVO_HOST_DEVICE static inline float swiglu(float gate, float up) {
  return with_one_nan(product_of(times_sigmoid(gate, gate), up));
}

}  // namespace octavo
