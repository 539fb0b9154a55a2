// A linear is three matrix products: fprop, dgrad, wgrad. Rows of a norm are independent in forward
// and dx; columns are independent in the parameters' gradients.
#include "layers.h"

#include <utility>

namespace gpt {

Linear::Linear(std::string name, int64_t inputs, int64_t outputs, bool with_bias,
               Precision precision, const Threads &threads)
    : name_(std::move(name)),
      weight_(name_ + ".weight", outputs, inputs, true),
      bias_(with_bias ? std::make_unique<Parameter>(name_ + ".bias", 1, outputs, false) : nullptr),
      precision_(precision),
      threads_(threads),
      placement_(precision == Precision::kBf16 ? "host bf16" : "host fp32") {}

void Linear::place(std::unique_ptr<Place> place, const std::string &where,
                   const std::string &reason) {
  place_ = std::move(place);
  if (place_ != nullptr) placement_ = where;
  reason_ = reason;
}

void Linear::quantize_weight() {
  if (place_ != nullptr) place_->quantize_weight();
}

const float *Linear::operand(const float *x, int64_t count, Buffer<float> &rounded) {
  if (precision_ == Precision::kFp32) return x;
  rounded.grow(static_cast<size_t>(count));
  round_bf16(threads_, x, rounded.data(), count);
  return rounded.data();
}

void Linear::round_result(float *y, int64_t count) {
  if (precision_ == Precision::kBf16) round_bf16(threads_, y, y, count);
}

void Linear::forward(const octavo_prologue &prologue, float *x, int64_t rows, float *y,
                     bool training) {
  place_->forward(prologue, x, rows, y, training);
}

void Linear::forward(const float *x, int64_t rows, float *y, bool training) {
  if (place_ != nullptr) return place_->forward(x, rows, y, training);
  const int64_t n = weight_.rows, k = weight_.cols;
  x_ = operand(x, rows * k, x_rounded_);
  const float *weight = operand(weight_.value.data(), n * k, w_rounded_);
  scratch_.grow(static_cast<size_t>(gemm_scratch(k, n)));
  gemm(&threads_, row_major(x_, rows, k), row_major(weight, n, k).transposed(), y, n,
       scratch_.data());
  if (bias_ != nullptr) {
    const float *b = bias_->value.data();
    threads_.for_ranges(rows, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t j = 0; j < n; ++j) y[i * n + j] += b[j];
    });
  }
  round_result(y, rows * n);
}

void Linear::backward(const float *dy, int64_t rows, float *dx) {
  const int64_t n = weight_.rows, k = weight_.cols;
  if (fault_ != nullptr) dy = fault_->pass(dy, rows * n);
  if (place_ != nullptr) return place_->backward(dy, rows, dx);
  if (bias_ != nullptr) {
    float *db = bias_->grad.data();
    threads_.for_ranges(n, 32, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) db[j] = 0.0f;
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = begin; j < end; ++j) db[j] += dy[i * n + j];
    });
  }
  const float *gradient = operand(dy, rows * n, dy_rounded_);
  scratch_.grow(static_cast<size_t>(std::max(gemm_scratch(n, k), gemm_scratch(rows, k))));
  // The weight has not changed since forward, so its rounded copy still holds.
  const float *weight = precision_ == Precision::kFp32 ? weight_.value.data() : w_rounded_.data();
  gemm(&threads_, row_major(gradient, rows, n), row_major(weight, n, k), dx, k, scratch_.data());
  round_result(dx, rows * k);
  gemm(&threads_, row_major(gradient, rows, n).transposed(), row_major(x_, rows, k),
       weight_.grad.data(), k, scratch_.data());
  round_result(weight_.grad.data(), n * k);
}

constexpr float kEpsilon = 1e-5f;

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
  prologue_.in = octavo::view(x, rows, width_);
  prologue_.gamma = octavo::view(gain_.value, 1, width_);
  prologue_.beta = octavo::view(bias_.value, 1, width_);
  octavo_prologue &p = prologue_.call;
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
      for (int64_t j = 0; j < width_; ++j)
        out[j] += (up[j] * gain[j] - sum - normal(j) * dot) * inverse[i];
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
