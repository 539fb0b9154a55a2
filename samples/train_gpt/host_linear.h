// The host's own linear: what a program has before it adopts Octavo.
//
// In bf16 both operands of every product are rounded to bfloat16, sums are fp32, and the result is
// rounded again; weights and their gradients stay fp32 tensors.
#ifndef TRAIN_GPT_HOST_LINEAR_H
#define TRAIN_GPT_HOST_LINEAR_H

#include "parameter.h"
#include "precision.h"

namespace gpt {

class HostLinear {
 public:
  HostLinear(Precision precision, const Threads &threads)
      : precision_(precision), threads_(threads) {}

  // y[M, N] = x[M, K] w[N, K]^T + bias; bias may be null. x stays valid until backward.
  void forward(const float *x, int64_t rows, const Parameter &w, const Parameter *bias, float *y);
  // dx = dy w, dw = dy^T x, db = column sums of dy; dx may be null.
  void backward(const float *dy, int64_t rows, Parameter &w, Parameter *bias, float *dx);

 private:
  const float *operand(const float *x, int64_t count, Buffer<float> &rounded);
  void round_result(float *y, int64_t count);

  Precision precision_;
  const Threads &threads_;
  const float *x_ = nullptr;  // what forward multiplied
  Buffer<float> x_rounded_;
  Buffer<float> w_rounded_;
  Buffer<float> dy_rounded_;
  Buffer<float> scratch_;
};

}  // namespace gpt

#endif
