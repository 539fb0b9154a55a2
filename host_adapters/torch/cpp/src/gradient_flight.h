// The average of one bucket of gradients, with a collective under way between two of its steps.
#pragma once

#include <memory>
#include <vector>

#include "process_group.h"
#include "run.h"

namespace octavo::torch {

// Its first collective is begun when it is made.
class GradientFlight {
 public:
  virtual ~GradientFlight() = default;
  // Waits for the collective and begins the next one. False: there is none, the average is in its
  // place. Every rank calls it for the same flight in the same order.
  virtual bool advance() = 0;
};

// The mean of torch's own gradients, of one dtype, as one all-reduce.
std::unique_ptr<GradientFlight> average_native(std::vector<at::Tensor> gradients,
                                               ProcessGroup &group);
// Of gradients in slots, by the backend's stages of octavo.gradients/1.
std::unique_ptr<GradientFlight> average_slots(Run &run, const std::vector<Parameter *> &parameters,
                                              ProcessGroup &group);

}  // namespace octavo::torch
