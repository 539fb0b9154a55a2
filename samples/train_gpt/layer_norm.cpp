// Rows are independent in forward and dx; columns are independent in the parameters' gradients.
#include "layer_norm.h"

#include <cmath>

#include "sums.h"

namespace gpt {
namespace {

constexpr float kEpsilon = 1e-5f;

}  // namespace

LayerNorm::LayerNorm(const std::string &name, int64_t width, const Threads &threads)
    : width_(width),
      threads_(threads),
      gain_(name + ".gain", 1, width, false),
      bias_(name + ".bias", 1, width, false) {
  gain_.fill(1.0f);
}

void LayerNorm::forward(const float *x, int64_t rows, float *y) {
  x_ = x;
  mean_.grow(static_cast<size_t>(rows));
  inverse_.grow(static_cast<size_t>(rows));
  const auto n = static_cast<float>(width_);
  const float *gain = gain_.value.data();
  const float *bias = bias_.value.data();
  threads_.for_ranges(rows, 32, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float *in = x + i * width_;
      float *out = y + i * width_;
      const float mean = sum_of<float>(width_, [&](int64_t j) { return in[j]; }) / n;
      const float variance =
          sum_of<float>(width_, [&](int64_t j) { return (in[j] - mean) * (in[j] - mean); }) / n;
      const float inverse = 1.0f / std::sqrt(variance + kEpsilon);
      for (int64_t j = 0; j < width_; ++j) out[j] = (in[j] - mean) * inverse * gain[j] + bias[j];
      mean_[static_cast<size_t>(i)] = mean;
      inverse_[static_cast<size_t>(i)] = inverse;
    }
  });
}

const octavo_prologue &LayerNorm::prologue(const float *x, int64_t rows) {
  x_ = x;
  mean_.grow(static_cast<size_t>(rows));
  inverse_.grow(static_cast<size_t>(rows));
  prologue_.in = f32_matrix(x, rows, width_);
  prologue_.gamma = f32_matrix(gain_.value.data(), 1, width_);
  prologue_.beta = f32_matrix(bias_.value.data(), 1, width_);
  octavo_prologue &p = prologue_.call;
  p.size = sizeof p;
  p.kind = OCTAVO_KIND_PROLOGUE;
  p.op = OCTAVO_PROLOGUE_LAYER_NORM;
  p.eps = kEpsilon;
  p.in = &prologue_.in;
  p.gamma = &prologue_.gamma;
  p.beta = &prologue_.beta;
  p.mean = mean_.data();
  p.rstd = inverse_.data();
  return p;
}

void LayerNorm::backward(const float *dy, int64_t rows, float *dx) {
  const auto n = static_cast<float>(width_);
  const float *gain = gain_.value.data();
  const float *mean = mean_.data();
  const float *inverse = inverse_.data();
  threads_.for_ranges(rows, 32, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float *in = x_ + i * width_;
      const float *up = dy + i * width_;
      float *out = dx + i * width_;
      auto normal = [&](int64_t j) { return (in[j] - mean[i]) * inverse[i]; };
      const float sum = sum_of<float>(width_, [&](int64_t j) { return up[j] * gain[j]; }) / n;
      const float dot =
          sum_of<float>(width_, [&](int64_t j) { return up[j] * gain[j] * normal(j); }) / n;
      for (int64_t j = 0; j < width_; ++j) {
        out[j] += (up[j] * gain[j] - sum - normal(j) * dot) * inverse[i];
      }
    }
  });
  float *d_gain = gain_.grad.data();
  float *d_bias = bias_.grad.data();
  threads_.for_ranges(width_, 16, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) d_gain[j] = d_bias[j] = 0.0f;
    for (int64_t i = 0; i < rows; ++i) {
      const float *in = x_ + i * width_;
      const float *up = dy + i * width_;
      for (int64_t j = begin; j < end; ++j) {
        d_gain[j] += up[j] * (in[j] - mean[i]) * inverse[i];
        d_bias[j] += up[j];
      }
    }
  });
}

}  // namespace gpt
