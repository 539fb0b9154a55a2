// What loops over float32 are made of: the thread pool, aligned memory, sums in a fixed
// order, rounding to bfloat16, and matrix products.
//
// A loop body writes only what belongs to its indices and does not depend on how the range was cut,
// so one thread and two give equal bits.
#pragma once

#include <octavo/octavo.hpp>

#include <bit>
#include <cstdint>

namespace octavo::standalone {

using octavo::Threads;  // shared with Octavo's CPU kernels
template <typename T>
using Buffer = octavo::Array<T>;

// The sum of term(i) for i in [0, count), eight at a time; T is float or double.
template <typename T, typename Term>
T sum_of(int64_t count, Term &&term) {
  T part[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int64_t lane = 0; lane < 8; ++lane) part[lane] += term(i + lane);
  for (; i < count; ++i) part[i % 8] += term(i);
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

// Of linears without a backend.
enum class Precision { kFp32, kBf16 };

// To the nearest bfloat16, ties to even; NaN stays NaN.
inline float round_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return std::bit_cast<float>(bits | 0x00400000u);
  return std::bit_cast<float>((bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u);
}
// y may be x.
inline void round_bf16(const Threads &threads, const float *x, float *y, int64_t count) {
  threads.for_ranges(count, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = round_bf16(x[i]);
  });
}

// A borrowed matrix: element (i, j) is data[i * row_stride + j * col_stride].
struct Matrix {
  const float *data;
  int64_t rows, cols, row_stride, col_stride;

  Matrix transposed() const { return {data, cols, rows, col_stride, row_stride}; }
};
inline Matrix row_major(const float *data, int64_t rows, int64_t cols) {
  return {data, rows, cols, cols, 1};
}

// Floats that gemm needs as scratch for a product [M, k] x [k, n].
int64_t gemm_scratch(int64_t k, int64_t n);

// c[M, N] = a[M, K] b[K, N] in fp32, blocked. Every element of c is summed over k in rising order,
// whatever the number of threads. Rows of c lie c_stride apart. threads null: on the calling
// thread, for callers that already run inside a loop of the pool.
void gemm(const Threads *threads, const Matrix &a, const Matrix &b, float *c, int64_t c_stride,
          float *scratch);

}  // namespace octavo::standalone
