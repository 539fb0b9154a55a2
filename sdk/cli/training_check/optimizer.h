// The step of a trial's weights: the backend's Adam where it has one, else a rule in float32.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "layer.h"

namespace octavo::training_check {

class Optimizer {
 public:
  // adam: the backend steps its weights by Adam, and so does the float32 model that it is compared
  // with. Else both have gradient descent with momentum, whose steps are as large as the gradient
  // states.
  // session: null for the float32 model.
  Optimizer(std::deque<Layer> &layers, Session *session, bool adam);

  // rate: 1 at first, smaller towards the end. False: a cast met infinity or NaN, and no weight has
  // changed.
  bool step(float rate);
  bool in_backend() const { return backend_.has_value(); }

 private:
  // What this program steps: a weight or a bias.
  struct Own {
    Floats *values;
    const Floats *gradient;
    Floats first, second;  // momentum, or Adam's two moments
  };
  struct Backend {
    Backend(Session &session, const std::vector<uint32_t> &parameters);
    void step(Session &session, float rate);
    octavo::TwinArray hyper, sum, skip;
    octavo::SumOfSquares norm;
    octavo::PrepareStep prepare;
    octavo::OptimizerStep run;
    octavo::DeviceBuffer workspace;
  };
  void step(Own &own, float rate) const;

  std::deque<Layer> &layers_;
  Session *session_;
  const bool adam_;
  int steps_ = 0;
  std::vector<Own> own_;
  std::optional<Backend> backend_;
};

}  // namespace octavo::training_check
