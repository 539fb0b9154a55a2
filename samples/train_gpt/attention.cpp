// Each pair of sequence and head is one task of small matrix products on one thread.
#include "attention.h"

#include <algorithm>
#include <cmath>

#include "gemm.h"
#include "simd.h"
#include "sums.h"

namespace gpt {

void Attention::forward(const float *qkv, int64_t batch, int64_t time, float *out) {
  const int64_t size = width_ / heads_;
  const int64_t piece = std::max(gemm_scratch(size, time), gemm_scratch(time, size));
  weights_.grow(static_cast<size_t>(batch * heads_ * time * time));
  scratch_.grow(static_cast<size_t>(batch * heads_ * piece));
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));

  threads_.for_ranges(batch * heads_, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / heads_ * time;
      const int64_t column = task % heads_ * size;
      const float *base = qkv + row * 3 * width_ + column;
      const Matrix q = {base, time, size, 3 * width_, 1};
      const Matrix k = {base + width_, time, size, 3 * width_, 1};
      const Matrix v = {base + 2 * width_, time, size, 3 * width_, 1};
      float *weights = weights_.data() + task * time * time;
      float *scratch = scratch_.data() + task * piece;

      gemm(nullptr, q, k.transposed(), weights, time, scratch);
      for (int64_t t = 0; t < time; ++t) {
        float *scores = weights + t * time;
        for (int64_t s = 0; s <= t; ++s) scores[s] *= scale;
        simd().softmax_row(scores, t + 1);
        std::fill(scores + t + 1, scores + time, 0.0f);  // no token sees a later one
      }
      gemm(nullptr, row_major(weights, time, time), v, out + row * width_ + column, width_,
           scratch);
    }
  });
}

void Attention::backward(const float *qkv, const float *d_out, int64_t batch, int64_t time,
                         float *d_qkv) {
  const int64_t size = width_ / heads_;
  const int64_t piece = std::max(gemm_scratch(size, time), gemm_scratch(time, size));
  d_weights_.grow(static_cast<size_t>(batch * heads_ * time * time));
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));

  threads_.for_ranges(batch * heads_, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / heads_ * time;
      const int64_t column = task % heads_ * size;
      const int64_t stride = 3 * width_;
      const int64_t first = row * stride + column;
      const Matrix q = {qkv + first, time, size, stride, 1};
      const Matrix k = {qkv + first + width_, time, size, stride, 1};
      const Matrix v = {qkv + first + 2 * width_, time, size, stride, 1};
      const Matrix up = {d_out + row * width_ + column, time, size, width_, 1};
      const Matrix weights = row_major(weights_.data() + task * time * time, time, time);
      float *d_scores = d_weights_.data() + task * time * time;
      float *scratch = scratch_.data() + task * piece;

      gemm(nullptr, up, v.transposed(), d_scores, time, scratch);
      for (int64_t t = 0; t < time; ++t) {
        const float *p = weights.data + t * time;
        float *d = d_scores + t * time;
        const float dot = sum_of<float>(t + 1, [&](int64_t s) { return p[s] * d[s]; });
        // p is zero above the diagonal, so the gradient is, too.
        for (int64_t s = 0; s < time; ++s) d[s] = p[s] * (d[s] - dot) * scale;
      }
      const Matrix d = row_major(d_scores, time, time);
      gemm(nullptr, d, k, d_qkv + first, stride, scratch);
      gemm(nullptr, d.transposed(), q, d_qkv + first + width_, stride, scratch);
      gemm(nullptr, weights.transposed(), up, d_qkv + first + 2 * width_, stride, scratch);
    }
  });
}

}  // namespace gpt
