// The loop around a step: accumulation, processes, autocast, printing.
#include "octavo/torch/accelerator.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/nn/module.h>
#include <octavo/hpp/text.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <sstream>
#include <vector>

#include "gradient_average.h"
#include "host_adapters/torch/core/driver.h"
#include "host_adapters/torch/core/hash.h"
#include "prepared.h"
#include "process_group.h"

namespace octavo::torch {
namespace {

// Whether the processes train the same thing. They compare hashes, so what they exchange has one
// size whatever they hold. Nothing in a world of 1.
int64_t hash_of(const std::string &text) {
  core::Hash hash;
  hash.add(text.data(), text.size());
  return static_cast<int64_t>(hash.value());
}

// Something that must be equal everywhere, and what to do when it is not.
struct Shared {
  std::string what, value, remedy;
};

// Throws Error in every process unless all values are equal. Each process gives the same list of
// names. One all-gather of 8 bytes a value.
void check_equal(ProcessGroup &group, const std::vector<Shared> &values) {
  if (group.world() == 1) return;
  const at::Tensor own = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  auto *hashes = own.mutable_data_ptr<int64_t>();
  for (const Shared &shared : values) *hashes++ = hash_of(shared.value);
  const std::vector<at::Tensor> all = group.all_gather(own, "all_gather of checksums of the model");
  for (size_t rank = 1; rank < all.size(); ++rank)
    for (size_t i = 0; i < values.size(); ++i)
      if (all[rank].const_data_ptr<int64_t>()[i] != all[0].const_data_ptr<int64_t>()[i])
        throw Error(OCTAVO_WRONG_STATE, "the processes: expected " + values[i].what +
                                            " of rank 0 in every process, found another on rank " +
                                            std::to_string(rank) + "; " + values[i].remedy);
}

constexpr const char *kSucceeded = "succeeded";

// Parameters and buffers with their shapes, dtypes and kinds of device, and which are on one. What
// device_of() refuses in one process it refuses in all, as none may wait for another.
std::string outline_of(const ::torch::nn::Module &module) {
  std::ostringstream text;
  std::optional<at::Device> first;
  const auto line = [&](const std::string &name, const at::Tensor &t) {
    if (!first.has_value()) first = t.device();
    text << name << ' ' << t.sizes() << ' ' << t.scalar_type() << ' '
         << c10::DeviceTypeName(t.device().type(), true) << ' ' << (t.device() == *first) << '\n';
  };
  for (const auto &item : module.named_parameters()) line(item.key(), item.value());
  for (const auto &item : module.named_buffers()) line(item.key(), item.value());
  return std::move(text).str();
}

// NCCL needs a GPU for each process, and its own message names neither.
void check_gpus(ProcessGroup &group, const at::Device &device) {
  if (group.world() == 1 || group.device_backend() != "nccl") return;
  const core::Device own = {static_cast<int32_t>(device.type()),
                            std::max<int32_t>(device.index(), 0)};
  const std::string gpu = core::gpu_of(own);
  const at::Tensor hash = at::full({1}, gpu.empty() ? 0 : hash_of(gpu), at::kLong);
  const std::vector<at::Tensor> all = group.all_gather(hash, "all_gather of the GPUs of the ranks");
  for (size_t rank = 1; rank < all.size(); ++rank)
    for (size_t other = 0; other < rank; ++other)
      if (const auto *one = all[rank].const_data_ptr<int64_t>();
          *one != 0 && *one == *all[other].const_data_ptr<int64_t>())
        throw Error(OCTAVO_FAILED_DEVICE,
                    "the processes: expected a GPU for each, found ranks " + std::to_string(other) +
                        " and " + std::to_string(rank) +
                        " on one; call module->to(torch::Device(torch::kCUDA, "
                        "accelerator.local_process_index())) before prepare(), and start at most "
                        "one process for each GPU");
}

// The backend with its plugin file, the options, and the layers that run in FP8.
std::vector<Shared> choices_of(Prepared &prepared) {
  const Run &run = *prepared.impl().run;
  const octavo_plugin_info *plugin = octavo_run_plugin(run.handle());
  std::string options, layers;
  for (const std::string &option : run.options()) options += option + '\n';
  for (const Layer &layer : prepared.layers())
    layers += layer.name + (layer.fp8 ? " fp8\n" : " torch\n");
  return {{"the outcome of prepare()", kSucceeded, "see the error of the process where it failed"},
          {"the backend and the plugin file",
           plugin == nullptr ? "none" : text(plugin->id) + text(plugin->sha256),
           "install the same plugin everywhere"},
          {"the options", options, "use one octavo.toml"},
          {"the layers in FP8", layers, "use one octavo.toml"}};
}

// Before the processes exchange tensors. Throws Error in every process unless the models have the
// same parameters and buffers on devices of one kind, and NCCL has a GPU for each process.
void check_models(ProcessGroup &group, const ::torch::nn::Module &module) {
  check_equal(group, {{"the version of octavo", text(octavo_version()),
                       "install the same version everywhere"},
                      {"the parameters and buffers of the model", outline_of(module),
                       "build the same model in every process"},
                      {"the process group of tensors on devices", group.device_backend(),
                       "call set_group() in every process"}});
  check_gpus(group, device_of(module));
}

// After prepare(): the same for what it chose. null: it failed here, which the other processes are
// waiting to hear; throws nothing then.
void check_choices(ProcessGroup &group, Prepared *prepared) {
  if (prepared != nullptr) return check_equal(group, choices_of(*prepared));
  std::vector<Shared> values(4);
  try {
    check_equal(group, values);
  } catch (const std::exception &) {  // the failure itself says more
  }
}

}  // namespace

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
  impl_->group.all_reduce(result, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, "reduce()");
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
