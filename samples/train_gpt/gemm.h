// Matrix product of the host: fp32, blocked, deterministic.
//
// Every element of c is summed over k in rising order, whatever the number of threads, so results
// are bit-identical on one machine. Strides are free, so a transposed operand needs no copy.
#ifndef TRAIN_GPT_GEMM_H
#define TRAIN_GPT_GEMM_H

#include "threads.h"

namespace gpt {

// A borrowed matrix: element (i, j) is data[i * row_stride + j * col_stride].
struct Matrix {
  const float *data;
  int64_t rows;
  int64_t cols;
  int64_t row_stride;
  int64_t col_stride;

  Matrix transposed() const { return {data, cols, rows, col_stride, row_stride}; }
};
inline Matrix row_major(const float *data, int64_t rows, int64_t cols) {
  return {data, rows, cols, cols, 1};
}

// Floats that gemm needs as scratch for a product [M, k] x [k, n].
int64_t gemm_scratch(int64_t k, int64_t n);

// c[M, N] = a[M, K] b[K, N]; rows of c lie c_stride apart. threads null: on the calling thread,
// for callers that already run inside a loop of the pool.
void gemm(const Threads *threads, const Matrix &a, const Matrix &b, float *c, int64_t c_stride,
          float *scratch);

}  // namespace gpt

#endif
