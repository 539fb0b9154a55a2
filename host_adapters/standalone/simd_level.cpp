// The inner loops, compiled once per instruction set. The build defines
//   LEVEL      the name of the table: kSimdBaseline, kSimdAvx2, kSimdAvx512
//   LEVEL_NAME what the report calls it
//   LANES      floats in one vector register
//   TILE_ROWS  rows of a GEMM tile, of two vector registers each
//
// Nothing of the standard library is used here: an inline function compiled with -mavx2 could be
// the copy that the linker keeps for the whole program.
#include <stddef.h>
#include <stdint.h>

#include "host_adapters/standalone/simd.h"

namespace octavo::standalone {
namespace {

typedef float Vec __attribute__((vector_size(LANES * 4)));
typedef uint32_t Bits __attribute__((vector_size(LANES * 4)));

constexpr int64_t kLanes = LANES;
constexpr int64_t kRows = TILE_ROWS;
constexpr int64_t kVecs = 2;
constexpr int64_t kCols = kVecs * kLanes;

inline Vec load(const float *p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float *p, Vec v) {
  __builtin_memcpy(p, &v, sizeof v);
}
inline Vec load_part(const float *p, int64_t count, float rest) {
  Vec v = Vec{} + rest;
  __builtin_memcpy(&v, p, static_cast<size_t>(count) * 4);
  return v;
}
inline Vec splat(float x) {
  return Vec{} + x;
}

void tile(int64_t k, const float *a, const float *b, float *c, int64_t c_stride, bool accumulate) {
  Vec sum[kRows][kVecs];
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kVecs; ++j)
      sum[i][j] = accumulate ? load(c + i * c_stride + j * kLanes) : Vec{};
  for (int64_t step = 0; step < k; ++step) {
    Vec right[kVecs];
    for (int64_t j = 0; j < kVecs; ++j) right[j] = load(b + step * kCols + j * kLanes);
    for (int64_t i = 0; i < kRows; ++i) {
      const Vec left = splat(a[step * kRows + i]);
      for (int64_t j = 0; j < kVecs; ++j) sum[i][j] += left * right[j];
    }
  }
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kVecs; ++j) store(c + i * c_stride + j * kLanes, sum[i][j]);
}

// e^x to about one unit in the last place: x = n ln 2 + r with |r| <= ln 2 / 2, the Taylor
// polynomial of degree 7 for e^r (its error is below r^8 / 8! = 6e-9), and 2^n by adding n to the
// exponent bits.
inline Vec exponential(Vec x) {
  const Vec low = splat(-87.0f);
  const Vec high = splat(88.0f);
  x = x < low ? low : x;
  x = x > high ? high : x;
  const Vec shift = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec shifted = x * splat(1.44269504f) + shift;
  const Vec n = shifted - shift;
  Vec r = x - n * splat(0.693145752f);  // the first 16 bits of ln 2, so the product is exact
  r = r - n * splat(1.42860677e-6f);    // the rest of ln 2
  Vec p = splat(1.0f / 5040.0f);
  p = p * r + splat(1.0f / 720.0f);
  p = p * r + splat(1.0f / 120.0f);
  p = p * r + splat(1.0f / 24.0f);
  p = p * r + splat(1.0f / 6.0f);
  p = p * r + splat(0.5f);
  p = p * r + splat(1.0f);
  p = p * r + splat(1.0f);
  Bits bits;
  Bits exponent;
  __builtin_memcpy(&bits, &p, sizeof bits);
  __builtin_memcpy(&exponent, &shifted, sizeof exponent);
  bits += exponent << 23;  // the low bits of `shifted` are n, modulo 2^9
  Vec result;
  __builtin_memcpy(&result, &bits, sizeof result);
  return result;
}

// gelu(x) = x s with s = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3): the tanh form, since
// (1 + tanh u) / 2 = sigmoid(2 u).
constexpr float kTwiceRoot = 1.59576912f;
constexpr float kCubic = 0.044715f;

inline Vec gelu_gate(Vec x) {
  const Vec twice_u = splat(kTwiceRoot) * (x + splat(kCubic) * x * x * x);
  return splat(1.0f) / (splat(1.0f) + exponential(-twice_u));
}
inline Vec gelu(Vec x) {
  return x * gelu_gate(x);
}
inline Vec gelu_slope(Vec x) {
  const Vec s = gelu_gate(x);
  const Vec inner = splat(kTwiceRoot) * (splat(1.0f) + splat(3.0f * kCubic) * x * x);
  return s + x * s * (splat(1.0f) - s) * inner;
}

// out[i] = function(a[i], b[i]).
template <typename Function>
void map(const float *a, const float *b, float *out, int64_t count, Function function) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(out + i, function(load(a + i), load(b + i)));
  if (i == count) return;
  const Vec last = function(load_part(a + i, count - i, 0), load_part(b + i, count - i, 0));
  __builtin_memcpy(out + i, &last, static_cast<size_t>(count - i) * 4);
}
void gelu_forward(const float *x, float *y, int64_t count) {
  map(x, x, y, count, [](Vec v, Vec) { return gelu(v); });
}
void gelu_backward(const float *x, const float *dy, float *dx, int64_t count) {
  map(x, dy, dx, count, [](Vec v, Vec up) { return up * gelu_slope(v); });
}

float softmax_row(float *row, int64_t count) {
  float top = row[0];
  for (int64_t i = 1; i < count; ++i) top = row[i] > top ? row[i] : top;
  Vec sums = Vec{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vec e = exponential(load(row + i) - splat(top));
    store(row + i, e);
    sums += e;
  }
  float sum = 0.0f;
  for (int64_t lane = 0; lane < kLanes; ++lane) sum += sums[lane];
  if (i < count) {
    const Vec e = exponential(load_part(row + i, count - i, top) - splat(top));
    for (int64_t lane = 0; i + lane < count; ++lane) {
      row[i + lane] = e[lane];
      sum += e[lane];
    }
  }
  const float inverse = 1.0f / sum;
  for (int64_t j = 0; j < count; ++j) row[j] *= inverse;
  return top + __builtin_logf(sum);
}

}  // namespace

const Simd LEVEL = {LEVEL_NAME, kRows, kCols, tile, gelu_forward, gelu_backward, softmax_row};

}  // namespace octavo::standalone
