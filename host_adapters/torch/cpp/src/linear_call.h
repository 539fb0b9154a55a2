// One place in the model where a prepared weight is used, and its calls.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "run.h"

namespace octavo::torch {

// Immutable once the run is sealed, but for its counts. The autograd graph keeps it alive, and
// with it the run and its slots.
struct Site : ::torch::CustomClassHolder {
  std::shared_ptr<Run> run;
  std::string name;
  Parameter *weight = nullptr;
  uint32_t linear = OCTAVO_NONE;
  std::function<bool()> is_training;  // of the module
  // Calls of the backend: each forward is one FP8 GEMM, each backward one or two.
  std::atomic<uint64_t> dgrad_calls = 0;
  std::atomic<uint64_t> wgrad_calls = 0;
  uint64_t forward_calls() const { return run->entry().forwards[linear]; }
  const octavo_linear_plan &plan() const { return run->entry().plans[linear]; }
};
using SitePointer = c10::intrusive_ptr<Site>;

// Whether a call here is torch's own product: outside of training, where the plan says so.
bool is_plain_evaluation(const Site &site);

// y [..., N] in x's dtype of x [..., K], f32, bf16 or f16; bias [N] or undefined. Part of the
// autograd graph where one is recorded. Accumulators record in training, and where a gradient
// flows.
at::Tensor call_linear(const SitePointer &site, const at::Tensor &x, const at::Tensor &weight,
                       const at::Tensor &bias);

// A site, and the module that it was made for: a clone of the module is not in its place.
struct Place {
  SitePointer site;
  const void *module;
};

}  // namespace octavo::torch
