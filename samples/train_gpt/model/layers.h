// The layers of a block: linear, layer norm, attention.
#ifndef TRAIN_GPT_LAYERS_H
#define TRAIN_GPT_LAYERS_H

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "host_adapters/standalone/simd.h"
#include "parameter.h"

namespace gpt {

// One linear layer: the program's own product, which it has before it adopts Octavo, or that of
// whoever the layer was placed with. In bf16 both operands of every product are rounded to
// bfloat16, sums are fp32, and the result is rounded again; weights and their gradients stay fp32
// tensors.
class Linear {
 public:
  // Who computes the layer in the program's stead; the verbs are those of the layer.
  class Place {
   public:
    virtual ~Place() = default;
    virtual void quantize_weight() = 0;
    virtual bool takes_prologue() const = 0;
    virtual void forward(const float *x, int64_t rows, float *y, bool training) = 0;
    virtual void forward(const octavo_prologue &prologue, float *x, int64_t rows, float *y,
                         bool training) = 0;
    virtual void backward(const float *dy, int64_t rows, float *dx) = 0;
  };

  // y[M, outputs] = x[M, inputs] w^T (+ bias).
  Linear(std::string name, int64_t inputs, int64_t outputs, bool with_bias, Precision precision,
         const Threads &threads);

  // Refreshes the quantized weight. Due after each change of the weight, before the next forward.
  void quantize_weight();
  // x must stay valid until backward. Without training no backward follows and nothing is recorded.
  void forward(const float *x, int64_t rows, float *y, bool training);
  // Whether the norm or activation before this layer goes with it, and the forward of what that
  // gives; x is a buffer [rows, inputs] for it, written when needed.
  bool takes_prologue() const { return place_ != nullptr && place_->takes_prologue(); }
  void forward(const octavo_prologue &prologue, float *x, int64_t rows, float *y, bool training);
  // Overwrites dx and the gradients of weight and bias.
  void backward(const float *dy, int64_t rows, float *dx);

  // Where the layer runs and why, for the report. Null: it stays here.
  void place(std::unique_ptr<Place> place, const std::string &where, const std::string &reason);
  // Every backward call passes its dy through it.
  void set_fault(GradientFault *fault) { fault_ = fault; }

  const std::string &name() const { return name_; }
  Parameter &weight() { return weight_; }
  Parameter *bias() { return bias_.get(); }
  const std::string &placement() const { return placement_; }
  const std::string &reason() const { return reason_; }

 private:
  const float *operand(const float *x, int64_t count, Buffer<float> &rounded);
  void round_result(float *y, int64_t count);

  std::string name_;
  Parameter weight_;
  std::unique_ptr<Parameter> bias_;
  Precision precision_;
  const Threads &threads_;
  std::unique_ptr<Place> place_;
  GradientFault *fault_ = nullptr;
  std::string placement_;
  std::string reason_;
  const float *x_ = nullptr;  // what forward multiplied
  Buffer<float> x_rounded_, w_rounded_, dy_rounded_, scratch_;
};

// Layer normalization: y = (x - mean) / deviation * gain + bias, row by row.
class LayerNorm {
 public:
  LayerNorm(const std::string &name, int64_t width, const Threads &threads);

  // x stays valid and unchanged until backward.
  void forward(const float *x, int64_t rows, float *y);
  // Instead of forward: the same as a prologue, for somebody else who computes it before backward.
  // Valid until the next call.
  const octavo_prologue &prologue(const float *x, int64_t rows);
  // dx += the gradient of x: the residual stream adds up here. Overwrites the parameters'
  // gradients.
  void backward(const float *dy, int64_t rows, float *dx);

  Parameter &gain() { return gain_; }
  Parameter &bias() { return bias_; }

 private:
  int64_t width_;
  const Threads &threads_;
  Parameter gain_;
  Parameter bias_;
  const float *x_ = nullptr;
  Buffer<float> mean_, inverse_;  // inverse: 1 / deviation
  octavo::Prologue prologue_;
};

// Causal multi-head attention over sequences of equal length; no parameters of its own. Each pair
// of sequence and head is one task of small matrix products on one thread. A row of qkv is
// [q of all heads | k of all heads | v of all heads].
class Attention {
 public:
  Attention(int64_t heads, int64_t width, const Threads &threads)
      : heads_(heads),
        width_(width),
        size_(width / heads),
        scale_(1.0f / std::sqrt(static_cast<float>(size_))),
        threads_(threads) {}

  // qkv [batch * time, 3 * width] -> out [batch * time, width].
  void forward(const float *qkv, int64_t batch, int64_t time, float *out) {
    const float scale = scale_;
    for_tasks(batch, time, weights_, [&](int64_t task, float *weights, float *scratch) {
      gemm(nullptr, part(qkv, 3, 0, task, time), part(qkv, 3, 1, task, time).transposed(), weights,
           time, scratch);
      for (int64_t t = 0; t < time; ++t) {
        float *scores = weights + t * time;
        for (int64_t s = 0; s <= t; ++s) scores[s] *= scale;
        simd().softmax_row(scores, t + 1);
        std::fill(scores + t + 1, scores + time, 0.0f);  // no token sees a later one
      }
      gemm(nullptr, row_major(weights, time, time), part(qkv, 3, 2, task, time),
           out + offset(1, 0, task, time), width_, scratch);
    });
  }
  // With the same qkv as forward; overwrites d_qkv.
  void backward(const float *qkv, const float *d_out, int64_t batch, int64_t time, float *d_qkv) {
    const float scale = scale_;
    for_tasks(batch, time, d_weights_, [&](int64_t task, float *d_scores, float *scratch) {
      const Matrix up = part(d_out, 1, 0, task, time);
      const Matrix weights = row_major(weights_.data() + task * time * time, time, time);
      gemm(nullptr, up, part(qkv, 3, 2, task, time).transposed(), d_scores, time, scratch);
      for (int64_t t = 0; t < time; ++t) {
        const float *p = weights.data + t * time;
        float *d = d_scores + t * time;
        const float dot = sum_of<float>(t + 1, [&](int64_t s) { return p[s] * d[s]; });
        // p is zero above the diagonal, so the gradient is, too.
        for (int64_t s = 0; s < time; ++s) d[s] = p[s] * (d[s] - dot) * scale;
      }
      const Matrix d = row_major(d_scores, time, time);
      const auto to = [&](int64_t which) { return d_qkv + offset(3, which, task, time); };
      gemm(nullptr, d, part(qkv, 3, 1, task, time), to(0), 3 * width_, scratch);
      gemm(nullptr, d.transposed(), part(qkv, 3, 0, task, time), to(1), 3 * width_, scratch);
      gemm(nullptr, weights.transposed(), up, to(2), 3 * width_, scratch);
    });
  }

 private:
  // Where one head begins in the rows of one sequence: `which` of `parts` that a row holds.
  int64_t offset(int64_t parts, int64_t which, int64_t task, int64_t time) const {
    return task / heads_ * time * parts * width_ + which * width_ + task % heads_ * size_;
  }
  Matrix part(const float *rows, int64_t parts, int64_t which, int64_t task, int64_t time) const {
    return {rows + offset(parts, which, task, time), time, size_, parts * width_, 1};
  }
  // body(task, its [time, time] of `squares`, scratch for gemm) of each sequence and head.
  template <typename Body>
  void for_tasks(int64_t batch, int64_t time, Buffer<float> &squares, Body &&body) {
    const int64_t piece = std::max(gemm_scratch(size_, time), gemm_scratch(time, size_));
    squares.grow(static_cast<size_t>(batch * heads_ * time * time));
    scratch_.grow(static_cast<size_t>(batch * heads_ * piece));
    threads_.for_ranges(batch * heads_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task)
        body(task, squares.data() + task * time * time, scratch_.data() + task * piece);
    });
  }

  int64_t heads_, width_, size_;  // size: of one head
  float scale_;
  const Threads &threads_;
  Buffer<float> weights_;    // [batch * heads, time, time]: the softmax, zero above the diagonal
  Buffer<float> d_weights_;  // as weights_
  Buffer<float> scratch_;    // one piece per sequence and head, for gemm
};

}  // namespace gpt

#endif
