// Layer normalization: y = (x - mean) / deviation * gain + bias, row by row.
#ifndef TRAIN_GPT_LAYER_NORM_H
#define TRAIN_GPT_LAYER_NORM_H

#include <string>

#include "fused.h"
#include "parameter.h"
#include "threads.h"

namespace gpt {

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
  Buffer<float> mean_;
  Buffer<float> inverse_;  // 1 / deviation
  Prologue prologue_;
};

}  // namespace gpt

#endif
