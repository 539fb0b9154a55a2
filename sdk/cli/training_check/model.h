// The small model that a trial trains: four linears with ReLU and two residual branches.
#pragma once

#include <deque>

#include "layer.h"

namespace octavo::training_check {

inline constexpr int64_t kRows = 64, kInputs = 64, kHidden = 128, kOutputs = 32;

// What one random linear gives for random x; a step sees two such parts.
struct Part {
  Part() : x(kRows * kInputs), wanted(kRows * kOutputs) {}
  Floats x, wanted;
};

class Task {
 public:
  explicit Task(uint64_t seed);
  // The targets have about the variance 1.
  void draw(uint64_t number, Part &part) const;

 private:
  uint64_t seed_;
  Floats teacher_, none_;
};

class Model {
 public:
  // session: null for the float32 model.
  Model(Session *session, uint64_t seed);

  // The loss of this part: mean squares of y - wanted. Adds `share` of its gradients.
  double train(const Part &part, float share);
  void clear_gradients();
  const Floats &output() const { return y_; }
  std::deque<Layer> layers;

 private:
  Floats h1_, r2_, h2_, r3_, h3_, y_, dy_, dh_, d_, dx_;
};

}  // namespace octavo::training_check
