// One transformer block: x += proj(attention(qkv(norm1(x)))), then x += fc2(gelu(fc1(norm2(x)))).
#ifndef TRAIN_GPT_BLOCK_H
#define TRAIN_GPT_BLOCK_H

#include "layers.h"

namespace gpt {

class Block {
 public:
  Block(const std::string &name, int64_t heads, int64_t width, Precision precision,
        const Threads &threads);

  // Allocates activations for up to `rows` rows.
  void reserve(int64_t rows);
  // x [batch * time, width] -> out, which is not x. x stays valid until backward.
  void forward(const float *x, int64_t batch, int64_t time, float *out, bool training);
  // gradient: of out on entry, of x on return.
  void backward(float *gradient, int64_t batch, int64_t time);

  std::vector<Linear *> linears() { return {&qkv_, &proj_, &fc1_, &fc2_}; }
  std::vector<LayerNorm *> norms() { return {&norm1_, &norm2_}; }
  // The two linears that write into the residual stream.
  std::vector<Linear *> outputs() { return {&proj_, &fc2_}; }

 private:
  // fc2(gelu(hidden_)) to narrow_.
  void gelu_and_fc2(int64_t rows, bool training);

  int64_t width_;
  const Threads &threads_;
  LayerNorm norm1_;
  Linear qkv_;
  Attention attention_;
  Linear proj_;
  LayerNorm norm2_;
  Linear fc1_;
  Linear fc2_;

  // Activations, kept from forward to backward; middle_ is x after the attention half.
  Buffer<float> normed1_, qkv_out_, mixed_, middle_, normed2_, hidden_, active_;
  Buffer<float> wide_, narrow_;  // gradients, free again after each call
  octavo::Prologue gelu_;
};

// y = linear(norm(x)); normed is a buffer [rows, width] that stays until backward.
void norm_and_linear(LayerNorm &norm, Linear &linear, const float *x, int64_t rows, float *normed,
                     float *y, bool training);

}  // namespace gpt

#endif
