// Three matrix products: fprop, dgrad, wgrad.
#include "host_linear.h"

#include <algorithm>

#include "gemm.h"

namespace gpt {

const float *HostLinear::operand(const float *x, int64_t count, Buffer<float> &rounded) {
  if (precision_ == Precision::kFp32) return x;
  rounded.grow(static_cast<size_t>(count));
  round_bf16(threads_, x, rounded.data(), count);
  return rounded.data();
}

void HostLinear::round_result(float *y, int64_t count) {
  if (precision_ == Precision::kBf16) round_bf16(threads_, y, y, count);
}

void HostLinear::forward(const float *x, int64_t rows, const Parameter &w, const Parameter *bias,
                         float *y) {
  const int64_t n = w.rows;
  const int64_t k = w.cols;
  x_ = operand(x, rows * k, x_rounded_);
  const float *weight = operand(w.value.data(), n * k, w_rounded_);
  scratch_.grow(static_cast<size_t>(gemm_scratch(k, n)));
  gemm(&threads_, row_major(x_, rows, k), row_major(weight, n, k).transposed(), y, n,
       scratch_.data());
  if (bias != nullptr) {
    const float *b = bias->value.data();
    threads_.for_ranges(rows, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t j = 0; j < n; ++j) y[i * n + j] += b[j];
      }
    });
  }
  round_result(y, rows * n);
}

void HostLinear::backward(const float *dy, int64_t rows, Parameter &w, Parameter *bias, float *dx) {
  const int64_t n = w.rows;
  const int64_t k = w.cols;
  if (bias != nullptr) {
    float *db = bias->grad.data();
    threads_.for_ranges(n, 32, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) db[j] = 0.0f;
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = begin; j < end; ++j) db[j] += dy[i * n + j];
      }
    });
  }
  const float *gradient = operand(dy, rows * n, dy_rounded_);
  scratch_.grow(static_cast<size_t>(std::max(gemm_scratch(n, k), gemm_scratch(rows, k))));
  if (dx != nullptr) {
    // The weight has not changed since forward, so its rounded copy still holds.
    const float *weight = precision_ == Precision::kFp32 ? w.value.data() : w_rounded_.data();
    gemm(&threads_, row_major(gradient, rows, n), row_major(weight, n, k), dx, k, scratch_.data());
    round_result(dx, rows * k);
  }
  gemm(&threads_, row_major(gradient, rows, n).transposed(), row_major(x_, rows, k), w.grad.data(),
       k, scratch_.data());
  round_result(w.grad.data(), n * k);
}

}  // namespace gpt
