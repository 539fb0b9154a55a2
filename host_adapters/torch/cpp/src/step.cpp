// One step of a prepared model.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <torch/optim/lbfgs.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "host_adapters/torch/core/nonfinite.h"
#include "in_slots.h"
#include "prepared.h"

namespace octavo::torch {
namespace {

std::vector<at::Tensor> gradients_of(::torch::optim::Optimizer &optimizer) {
  std::vector<at::Tensor> gradients;
  for (auto &group : optimizer.param_groups())
    for (at::Tensor &p : group.params())
      if (p.grad().defined()) gradients.push_back(p.grad());
  return gradients;
}

bool are_finite(const std::vector<at::Tensor> &gradients) {
  return std::all_of(gradients.begin(), gradients.end(), [](const at::Tensor &gradient) {
    return at::isfinite(gradient).all().item<bool>();
  });
}

// What casts recorded: an Inf in a history would freeze its scale.
void drop_records(const Run &run) {
  for (auto &[tensor, combine] : run.reduced_slots()) at::Tensor(tensor).zero_();
}

}  // namespace

// A cast to FP8 saturates: infinity would pass unseen but for the nonfinite slot. A backend's own
// Adam looks at it, and at the native gradients, by itself.
at::Tensor Prepared::step(std::function<at::Tensor()> closure) {
  Impl &state = impl();
  Run &run = *state.run;
  if (state.is_due && !state.is_due()) return closure ? closure() : at::Tensor();
  at::Tensor loss;
  const bool repeats = dynamic_cast<::torch::optim::LBFGS *>(state.given) != nullptr;
  if (closure && !repeats) {  // before anything looks at what it records
    const at::AutoGradMode with_graph(true);
    loss = std::exchange(closure, nullptr)();
  }
  if (state.before_step) state.before_step();
  // The program has dropped what is marked, a batch by a guard of its own: this step is valid.
  if (run.met() == core::kShown &&
      (state.adam != nullptr || are_finite(gradients_of(*state.given))))
    drop_records(run);
  if (state.adam != nullptr) {
    state.adam->step();
    state.step_skipped = state.adam->skipped();
  } else {
    state.step_skipped = run.met() != 0.0F;
    if (!state.step_skipped) {
      const at::Tensor own = state.given->step(std::move(closure));
      if (repeats) loss = own;
    }
  }
  if (state.step_skipped) {
    ++state.skipped_steps;
    state.optimizer().zero_grad();
    drop_slot_gradients(run);
    drop_records(run);
  }
  run.boundary();
  return loss;
}

void Prepared::zero_grad(bool set_to_none) {
  Impl &state = impl();
  if (state.is_due && !state.is_due()) return;
  state.optimizer().zero_grad(set_to_none);
}

// The rule of torch.nn.utils.clip_grad_norm_: factor = min(1, max_norm / (norm + 1e-6)).
double Prepared::clip_grad_norm_(double max_norm) {
  Impl &state = impl();
  if (!(max_norm > 0.0))
    throw Error(OCTAVO_INVALID,
                "clip_grad_norm_: expected a bound above 0, found " + std::to_string(max_norm));
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = gradients_of(state.optimizer());
  if (gradients.empty()) return 0.0;
  std::vector<at::Tensor> norms;
  for (const at::Tensor &gradient : gradients)
    norms.push_back(at::linalg_vector_norm(gradient, 2, {}, false, at::kFloat));
  const double norm = at::linalg_vector_norm(at::stack(norms)).item<double>();
  const double factor = std::min(1.0, max_norm / (norm + 1e-6));
  // A norm that is not finite gives gradients that are not; the step decides about those.
  for (const at::Tensor &gradient : gradients) gradient.mul_(factor);
  return norm;
}

uint64_t Prepared::skipped_steps() const {
  return opened().skipped_steps;
}

bool Prepared::step_was_skipped() const {
  return opened().step_skipped;
}

}  // namespace octavo::torch
