// The loop around a step: accumulation, processes, autocast, printing.
#include "octavo/torch/accelerator.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <filesystem>
#include <iostream>
#include <optional>

#include "agreement.h"
#include "gradient_average.h"
#include "prepared.h"
#include "process_group.h"
#include "settings.h"

namespace octavo::torch {

struct Accelerator::Impl {
  explicit Impl(Config given) : config(std::move(given)), group(timeout_of(config)) {}

  Config config;
  int64_t accumulation_steps = 1;
  ProcessGroup group;
  std::optional<Prepared> prepared;
  Averaging averaging;
  std::optional<GradientAverage> average;  // with other processes
  int64_t batch = 0;
  bool sync = true;

  Prepared &opened() {
    if (!prepared.has_value())
      throw Error(OCTAVO_WRONG_STATE,
                  "Accelerator: expected a prepared model, found none; call prepare() first");
    return *prepared;
  }
  std::string own_directory(const std::string &directory) const {
    return group.world() == 1 ? directory : directory + "/process_" + std::to_string(group.rank());
  }
};

Accelerator::Accelerator(Config config, int64_t gradient_accumulation_steps) {
  if (gradient_accumulation_steps < 1)
    throw Error(OCTAVO_INVALID,
                "Accelerator: expected gradient_accumulation_steps of 1 or more, "
                "found " +
                    std::to_string(gradient_accumulation_steps));
  impl_ = std::make_unique<Impl>(std::move(config));
  impl_->accumulation_steps = gradient_accumulation_steps;
}

Accelerator::~Accelerator() = default;

void Accelerator::set_averaging(const Averaging &how) {
  if (how.bucket_bytes < 1)
    throw Error(OCTAVO_INVALID, "Averaging::bucket_bytes: expected 1 or more, found " +
                                    std::to_string(how.bucket_bytes));
  if (impl_->prepared.has_value())
    throw Error(OCTAVO_WRONG_STATE,
                "set_averaging: expected an Accelerator without a model, found a prepared one; "
                "call it before prepare()");
  impl_->averaging = how;
}

void Accelerator::set_group(const c10::intrusive_ptr<c10d::Backend> &backend) {
  if (impl_->prepared.has_value())
    throw Error(OCTAVO_WRONG_STATE,
                "set_group: expected an Accelerator without a model, found a prepared one; call it "
                "before prepare()");
  impl_->group.use(backend);
}

Prepared &Accelerator::prepare(::torch::nn::Module &module, ::torch::optim::Optimizer &optimizer) {
  if (impl_->prepared.has_value())
    throw Error(OCTAVO_WRONG_STATE,
                "Accelerator: expected one prepared model, found a second call "
                "of prepare(); call free_memory() before, or make another "
                "Accelerator");
  if (impl_->group.world() > 1) {
    const at::NoGradGuard no_grad;
    check_models(impl_->group, module);
    for (at::Tensor &tensor : module.parameters())
      impl_->group.broadcast(tensor, 0, "broadcast of parameters");
    for (at::Tensor &tensor : module.buffers())
      impl_->group.broadcast(tensor, 0, "broadcast of buffers");
  }
  try {
    impl_->prepared.emplace(octavo::torch::prepare(module, optimizer, impl_->config));
  } catch (...) {
    check_choices(impl_->group, nullptr);
    throw;
  }
  try {
    check_choices(impl_->group, &*impl_->prepared);
  } catch (...) {
    impl_->prepared.reset();
    throw;
  }
  Prepared::Impl &state = impl_->prepared->impl();
  Impl *own = impl_.get();
  state.is_due = [own] { return own->sync; };
  // All processes agree on the scales and on whether to skip the step.
  if (impl_->group.world() > 1) {
    state.before_step = [own] {
      combine_slots(*own->prepared->impl().run, own->group);
      own->group.note_step();
    };
    state.run->on_combine(state.before_step);
    impl_->average.emplace(state, impl_->group, impl_->averaging);
  }
  return *impl_->prepared;
}

void Accelerator::backward(const at::Tensor &loss) {
  Prepared &prepared = impl_->opened();
  const bool averages = impl_->sync && impl_->average.has_value();
  if (averages) {
    prepared.impl();  // refuses one that was closed
    impl_->average->begin();
  }
  const auto steps = static_cast<double>(impl_->accumulation_steps);
  try {
    (impl_->accumulation_steps == 1 ? loss : loss / steps).backward();
    if (averages) impl_->average->finish();
  } catch (...) {
    if (averages) impl_->average->abandon();
    throw;
  }
}

Accelerator::Accumulation Accelerator::accumulate(bool last_batch) {
  ++impl_->batch;
  impl_->sync = last_batch || impl_->batch % impl_->accumulation_steps == 0;
  if (last_batch) impl_->batch = 0;
  return Accumulation(*this);
}

Accelerator::Accumulation::~Accumulation() {
  accelerator_.impl_->sync = true;
}

bool Accelerator::sync_gradients() const {
  return impl_->sync;
}

double Accelerator::clip_grad_norm_(double max_norm) {
  return impl_->sync ? impl_->opened().clip_grad_norm_(max_norm) : 0.0;
}

bool Accelerator::optimizer_step_was_skipped() const {
  return impl_->prepared.has_value() && impl_->prepared->step_was_skipped();
}

Accelerator::Autocast::Autocast(at::DeviceType type, at::ScalarType dtype)
    : type_(type),
      enabled_(at::autocast::is_autocast_enabled(type)),
      dtype_(at::autocast::get_autocast_dtype(type)) {
  at::autocast::increment_nesting();
  at::autocast::set_autocast_enabled(type, true);
  at::autocast::set_autocast_dtype(type, dtype);
}

Accelerator::Autocast::~Autocast() {
  // Casts of weights are kept until the outermost scope ends.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(type_, enabled_);
  at::autocast::set_autocast_dtype(type_, dtype_);
}

Accelerator::Autocast Accelerator::autocast(at::ScalarType dtype) {
  if (dtype != at::kBFloat16 && dtype != at::kHalf)
    throw Error(OCTAVO_INVALID,
                std::string("autocast: expected bf16 or f16, found ") + c10::toString(dtype));
  const bool knows = impl_->prepared.has_value() && !impl_->prepared->is_closed();
  return Autocast(knows ? impl_->prepared->impl().run->device().type() : at::kCPU, dtype);
}

at::Tensor Accelerator::gather(const at::Tensor &tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor own = tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
  return impl_->group.world() == 1 ? own.detach()
                                   : at::cat(impl_->group.all_gather(own.detach(), "gather()"));
}

at::Tensor Accelerator::reduce(const at::Tensor &tensor, const std::string &reduction) {
  if (reduction != "sum" && reduction != "mean")
    throw Error(OCTAVO_INVALID,
                "reduce: expected \"sum\" or \"mean\", found \"" + reduction + "\"");
  const at::NoGradGuard no_grad;
  at::Tensor result = tensor.detach().clone(at::MemoryFormat::Contiguous);
  impl_->group.all_reduce(result, ProcessGroup::Combine::kSum, "reduce()");
  if (reduction == "mean") result = result / impl_->group.world();
  return result;
}

void Accelerator::wait_for_everyone() {
  impl_->group.barrier("wait_for_everyone()");
}

int64_t Accelerator::process_index() const {
  return impl_->group.rank();
}

int64_t Accelerator::local_process_index() const {
  return impl_->group.local_rank();
}

int64_t Accelerator::num_processes() const {
  return impl_->group.world();
}

void Accelerator::print(const std::string &line) const {
  if (is_main_process()) std::cout << line << std::endl;
}

void Accelerator::save_state(const std::string &directory) {
  impl_->opened().save_state(impl_->own_directory(directory));
  wait_for_everyone();
}

void Accelerator::load_state(const std::string &directory) {
  impl_->opened().load_state(impl_->own_directory(directory));
  impl_->batch = 0;
  wait_for_everyone();
}

bool Accelerator::has_state(const std::string &directory) const {
  return std::filesystem::exists(impl_->own_directory(directory) + "/manifest.json");
}

void Accelerator::free_memory() {
  impl_->average.reset();
  impl_->prepared.reset();
  impl_->batch = 0;
  impl_->sync = true;
}

}  // namespace octavo::torch
