// An infinite gradient now and then, to see whether the training recovers from it.
//
// Of all backward calls of linear layers, one in N on average gets a dy with one element that is
// infinite. Which call and which element, a generator with the run's seed says.
#ifndef TRAIN_GPT_GRADIENT_FAULT_H
#define TRAIN_GPT_GRADIENT_FAULT_H

#include <vector>

#include "random.h"

namespace gpt {

class GradientFault {
 public:
  // Ranks have faults of their own, each at other calls.
  GradientFault(int64_t one_in, uint64_t seed, uint32_t rank);

  // Before the backward calls of a step. Faults depend on the step alone, not on what came before,
  // so that a training that goes on from a checkpoint meets the same ones.
  void start_step(int64_t step);
  // dy itself, or a copy of its `count` elements with one of them replaced; valid until the next
  // call. The caller's dy stays as it is, so what flows past the layer is not touched.
  const float *pass(const float *dy, int64_t count);
  int64_t injected() const { return injected_; }

 private:
  int64_t one_in_;
  uint64_t seed_;
  uint64_t rank_;
  Random random_;
  std::vector<float> copy_;
  int64_t injected_ = 0;
};

}  // namespace gpt

#endif
