// prepare(): FP8 for the linears of an unmodified module.
//
//   torch::optim::AdamW adamw(model->parameters(), 1e-3);
//   auto optimizer = octavo::torch::prepare(*model, adamw, "octavo.toml");
//   optimizer.zero_grad();  loss.backward();  optimizer.step();
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "octavo/torch/config.h"
#include "octavo/torch/error.h"
#include "octavo/torch/session.h"

namespace torch {
namespace nn {
class Module;
}
namespace optim {
class Optimizer;
}
}  // namespace torch

namespace octavo::torch {

// One linear of the model: where it runs and why.
struct Layer {
  std::string name;  // as in the module: "blocks.0.fc1"
  int64_t n = 0;     // out_features
  int64_t k = 0;     // in_features
  bool fp8 = false;
  std::string recipe;  // of the backend: "delayed"; empty when the layer stays with torch
  std::string reason;
  // Calls of the backend since prepare(), each of them one product in FP8: y, dx and dw.
  uint64_t forward_calls = 0;
  uint64_t dgrad_calls = 0;
  uint64_t wgrad_calls = 0;
};

// A prepared model with its optimizer. The model and the optimizer outlive it. Closing it, as its
// destructor does, restores the module to plain torch with its current weights.
// One thread at a time.
class OCTAVO_TORCH_API Prepared {
 public:
  Prepared(Prepared &&) noexcept;
  Prepared &operator=(Prepared &&) noexcept;
  ~Prepared();

  // The optimizer's step, and what FP8 needs after it: scales advance, if a forward ran since the
  // last time. When a gradient was infinite or NaN, no weight changes and the step is counted.
  // After a step of another optimizer, the next forward advances the scales.
  at::Tensor step(std::function<at::Tensor()> closure = nullptr);
  // As the optimizer's own.
  void zero_grad(bool set_to_none = true);
  // Scales the gradients so that their norm is at most max_norm, as
  // torch::nn::utils::clip_grad_norm_ does; returns the norm before.
  double clip_grad_norm_(double max_norm);
  uint64_t skipped_steps() const;
  // Whether the last step was one of them.
  bool step_was_skipped() const;

  // The optimizer that step() drives: the one that prepare() was given, or the octavo::torch::Adam
  // that replaced it. Learning rate schedulers work on either.
  ::torch::optim::Optimizer &optimizer();

  // Every linear of the module.
  std::vector<Layer> layers() const;
  // octavo_report: what was asked, what runs, where each layer went; "text", "tree" or "json". Once
  // one ran, the first two name the FP8 layers that never did.
  std::string report(const std::string &format = "text") const;
  Session session() const;

  // The next forward quantizes every weight again. Only needed after a write through tensor.data()
  // between two evaluations in FP8; every other change of a weight is seen.
  void refresh();

  // Runs fn while every weight of the module holds plain values, those that live in slots included;
  // afterwards the slots take over fn's writes to the latter. For torch::save and torch::load of
  // the module. When fn throws, nothing in slots has changed.
  void with_plain_weights(const std::function<void()> &fn);

  // A checkpoint of octavo_store_save in a separate directory: the slots, and as the tensor
  // "host" the model, the optimizer and the random number generators. The checkpoint before stays
  // until the new one is on disk. load_state takes a prepared model of the same configuration to
  // the same state, also in another process: the next step is bit-identical. It is all or nothing,
  // and refuses damaged files and files of several checkpoints by their names. Of a checkpoint of
  // another host, which has no such tensor, it takes the slots only. Both are due between steps.
  // Errors: OCTAVO_NO_RESOURCE, OCTAVO_INVALID, OCTAVO_INCOMPATIBLE, and OCTAVO_WRONG_STATE while
  // another process saves there.
  void save_state(const std::string &directory);
  void load_state(const std::string &directory);

  void close();
  bool is_closed() const;

  struct Impl;
  explicit Prepared(std::unique_ptr<Impl> impl);
  Impl &impl();

 private:
  const Impl &opened() const;
  std::unique_ptr<Impl> impl_;
};

// Places the module's linears (torch::nn::Linear and octavo::torch::Linear at any depth) with the
// configured backend. The class of the module stays as it is. `module` and `optimizer` outlive the
// result. All or nothing: when this throws Error, nothing has changed. It throws for a model
// without a layer that can run in FP8.
//
// All parameters are on one device, the CPU or a GPU; there the backend runs, on torch's current
// stream, and there its slots are.
//
// A backend that keeps weights itself (msamp) gets its own Adam instead of a torch::optim::Adam or
// AdamW; any other optimizer is refused then.
//
// The end of the result ends FP8, so a result that is dropped would train in the model's precision.
[[nodiscard]] OCTAVO_TORCH_API Prepared prepare(::torch::nn::Module &module,
                                                ::torch::optim::Optimizer &optimizer,
                                                const Config &config);

}  // namespace octavo::torch
