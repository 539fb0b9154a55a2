// Adam and AdamW on a backend's own state formats, as a torch::optim::Optimizer.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>

#include "octavo/torch/error.h"

namespace octavo::torch {

class Run;

// Steps every parameter of its groups through octavo.optimizer/2. Weights, gradients and moments
// that the backend keeps live in slots. Of such a weight the module has a placeholder without
// memory: reading or writing it throws c10::Error, which names Prepared::with_plain_weights; what
// set_data puts there moves to the slots. Its .grad stands for the slot:
// torch::nn::utils::clip_grad_norm_ and zero_grad work, reading gives values, and any other write
// throws Error.
//
// Its groups and the groups of the torch::optim::Adam or AdamW that it replaced stay equal: each
// step takes over changes in either, so learning rate schedulers and add_param_group() work on
// both. prepare() makes it; it is usable as long as the Prepared and the replaced optimizer live.
class OCTAVO_TORCH_API Adam : public ::torch::optim::Optimizer {
 public:
  // Takes the groups of `replaced`. Throws Error for anything but a torch::optim::Adam or AdamW
  // without amsgrad that made no step yet, and when the run's backend decays weights otherwise.
  Adam(std::shared_ptr<Run> run, ::torch::optim::Optimizer &replaced);
  ~Adam() override;

  // Steps the parameters that have a gradient. Skips all of them when a gradient is not finite.
  // Throws Error, and changes nothing, when a group has options or parameters that it cannot step,
  // or others than the same group of the replaced optimizer, which changed as well.
  at::Tensor step(LossClosure closure = nullptr) override;
  // Whether the last step changed nothing, since a gradient was not finite.
  bool skipped() const { return skipped_; }

  // Options of the groups; the moments are slots.
  void save(::torch::serialize::OutputArchive &archive) const override;
  void load(::torch::serialize::InputArchive &archive) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  bool skipped_ = false;
};

}  // namespace octavo::torch
