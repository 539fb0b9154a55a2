// The model: byte and position embeddings, blocks, a final norm, and an untied head of 256.
//
// Equal sizes and seeds give equal initial values in every run, whatever its precision.
#ifndef TRAIN_GPT_MODEL_H
#define TRAIN_GPT_MODEL_H

#include <memory>
#include <vector>

#include "block.h"

namespace gpt {

constexpr int64_t kBytes = 256;

struct ModelSize {
  int64_t layers = 3;
  int64_t heads = 3;
  int64_t width = 96;
  int64_t context = 64;
};

class Model {
 public:
  // `batch`: the most sequences of one call.
  Model(const ModelSize &size, int64_t batch, uint64_t seed, Precision precision,
        const Threads &threads);
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;

  // Places the linears with Octavo and, when the backend steps weights, gives it every parameter.
  // `run` outlives the model.
  void attach(OctavoRun &run, const Communicator &communicator = {});
  // After each change of the weights, before the next forward.
  void weights_changed();
  // tokens and targets [batch * time], time <= context. The mean loss in nats; with training, the
  // gradient of the logits is ready for backward.
  double forward(const unsigned char *tokens, const unsigned char *targets, int64_t batch,
                 int64_t time, bool training);
  // The logits [time, 256] of one sequence.
  const float *logits(const unsigned char *tokens, int64_t time);
  // Overwrites the gradient of every parameter. Takes the batch of the last training forward.
  void backward();

  const std::vector<Linear *> &linears() const { return linears_; }
  const std::vector<Parameter *> &parameters() const { return parameters_; }
  const ModelSize &size() const { return size_; }

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
  Buffer<float> normed_;
  Buffer<float> logits_;
  Buffer<float> d_normed_;
  Buffer<float> gradient_;
  Buffer<float> losses_;
  const unsigned char *tokens_ = nullptr;  // of the last training forward
  int64_t last_batch_ = 0;
  int64_t last_time_ = 0;
};

}  // namespace gpt

#endif
