// Adam and AdamW on a backend's own state formats, as a torch::optim::Optimizer.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>

#include "octavo/torch/error.h"

namespace octavo::torch {

class Run;

// Steps every parameter of its groups through octavo.optimizer/1. Weights, gradients and moments
// that the backend keeps live in slots. Of such a weight the module has a placeholder without
// memory: reading or writing it throws c10::Error, which names Prepared::with_plain_weights; what
// set_data puts there moves to the slots. Its .grad stands for the slot:
// torch::nn::utils::clip_grad_norm_ and zero_grad work, reading gives values, and any other write
// throws Error.
//
// Groups have the options of the torch::optim::Adam or AdamW that it replaced, and they are read in
// each step, so learning rate schedulers work on it. prepare() makes it; it is usable as long as
// the Prepared lives.
class OCTAVO_TORCH_API Adam : public ::torch::optim::Optimizer {
 public:
  // Copies the groups of `replaced`. Throws Error for anything but a torch::optim::Adam or AdamW
  // without amsgrad that made no step yet, and when the run's backend decays weights otherwise.
  Adam(std::shared_ptr<Run> run, const ::torch::optim::Optimizer &replaced);
  ~Adam() override;

  // Steps the parameters that have a gradient. Skips all of them when a gradient is not finite.
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
