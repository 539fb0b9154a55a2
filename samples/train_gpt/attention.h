// Causal multi-head attention over sequences of equal length; no parameters of its own.
//
// A row of qkv is [q of all heads | k of all heads | v of all heads].
#ifndef TRAIN_GPT_ATTENTION_H
#define TRAIN_GPT_ATTENTION_H

#include "buffer.h"
#include "threads.h"

namespace gpt {

class Attention {
 public:
  Attention(int64_t heads, int64_t width, const Threads &threads)
      : heads_(heads), width_(width), threads_(threads) {}

  // qkv [batch * time, 3 * width] -> out [batch * time, width].
  void forward(const float *qkv, int64_t batch, int64_t time, float *out);
  // With the same qkv as forward; overwrites d_qkv.
  void backward(const float *qkv, const float *d_out, int64_t batch, int64_t time, float *d_qkv);

 private:
  int64_t heads_;
  int64_t width_;
  const Threads &threads_;
  Buffer<float> weights_;    // [batch * heads, time, time]: the softmax, zero above the diagonal
  Buffer<float> d_weights_;  // as weights_
  Buffer<float> scratch_;    // one piece per sequence and head, for gemm
};

}  // namespace gpt

#endif
