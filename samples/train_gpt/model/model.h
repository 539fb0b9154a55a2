// The model: byte and position embeddings, blocks, a final norm, and an untied head of 256.
//
// Equal sizes and seeds give equal initial values in every run, whatever its precision.
#ifndef TRAIN_GPT_MODEL_H
#define TRAIN_GPT_MODEL_H

#include <memory>
#include <vector>

#include "layers.h"

namespace gpt {

constexpr int64_t kBytes = 256;

// One transformer block: x += proj(attention(qkv(norm1(x)))), then x += fc2(gelu(fc1(norm2(x)))).
// Forward keeps what backward needs; backward walks the same steps in reverse.
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

struct ModelSize {
  int64_t layers = 3, heads = 3, width = 96, context = 64;
};

class Model {
 public:
  // `batch`: the most sequences of one call.
  Model(const ModelSize &size, int64_t batch, uint64_t seed, Precision precision,
        const Threads &threads);
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;

  // Before the first step: moves one weight that every forward reads, the first of the positions,
  // by one unit in the last place.
  void nudge();
  // After each change of the weights, before the next forward.
  void weights_changed();
  // tokens and targets [batch * time], time <= context. The mean loss in nats; with training, the
  // gradient of the logits is ready for backward.
  double forward(const unsigned char *tokens, const unsigned char *targets, int64_t batch,
                 int64_t time, bool training);
  // The logits [time, 256] of one sequence.
  const float *logits(const unsigned char *tokens, int64_t time);
  // `count` bytes that the model draws after `prompt`; what is not printable ASCII comes back as
  // '?'.
  std::string generate(const std::string &prompt, int64_t count, uint64_t seed);
  // Overwrites the gradient of every parameter. Takes the batch of the last training forward.
  void backward();

  const std::vector<Linear *> &linears() const { return linears_; }
  const std::vector<Parameter *> &parameters() const { return parameters_; }
  const ModelSize &size() const { return size_; }
  int64_t rows() const { return batch_ * size_.context; }  // the most of one call

 private:
  void initialize(uint64_t seed);
  void run_layers(const unsigned char *tokens, int64_t batch, int64_t time, bool training);

  ModelSize size_;
  int64_t batch_;
  const Threads &threads_;
  Parameter bytes_;
  Parameter positions_;
  std::vector<std::unique_ptr<Block>> blocks_;
  LayerNorm norm_;
  Linear head_;
  std::vector<Linear *> linears_;
  std::vector<Parameter *> parameters_;

  std::vector<Buffer<float>> stream_;  // the residual stream before each block and after the last
  Buffer<float> normed_, logits_, d_normed_, gradient_, losses_;
  const unsigned char *tokens_ = nullptr;  // of the last training forward
  int64_t last_batch_ = 0, last_time_ = 0;
};

}  // namespace gpt

#endif
