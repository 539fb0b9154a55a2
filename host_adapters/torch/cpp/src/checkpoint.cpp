// The first pass runs without a graph; backward repeats it with one and goes through that.
#include "octavo/torch/checkpoint.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "random_state.h"

namespace octavo::torch {
namespace {

using ::torch::autograd::AutogradContext;
using ::torch::autograd::Variable;
using ::torch::autograd::variable_list;

struct AutocastState {
  explicit AutocastState(at::DeviceType given)
      : type(at::autocast::is_autocast_available(given) ? given : at::kCPU),
        enabled(at::autocast::is_autocast_enabled(type)),
        dtype(at::autocast::get_autocast_dtype(type)) {}

  at::DeviceType type;
  bool enabled;
  at::ScalarType dtype;
  bool cache = at::autocast::is_autocast_cache_enabled();

  void set() const {
    at::autocast::set_autocast_enabled(type, enabled);
    at::autocast::set_autocast_dtype(type, dtype);
    at::autocast::set_autocast_cache_enabled(cache);
  }
};

// Another random state and autocast state, until the end of the scope.
class Replay {
 public:
  Replay(const RandomState &random, const AutocastState &autocast)
      : random_(random.device()), autocast_(autocast.type) {
    random.set();
    autocast.set();
  }
  ~Replay() {
    random_.set();
    autocast_.set();
  }
  Replay(const Replay &) = delete;
  Replay &operator=(const Replay &) = delete;

 private:
  RandomState random_;
  AutocastState autocast_;
};

struct Call : ::torch::CustomClassHolder {
  explicit Call(const at::Device &device) : random(device), autocast(device.type()) {}

  std::function<Tensors(const Tensors &)> fn;
  RandomState random;
  AutocastState autocast;
};
using CallPointer = c10::intrusive_ptr<Call>;

struct CheckpointFunction : ::torch::autograd::Function<CheckpointFunction> {
  // `anchor` requires a gradient, so that backward is reached also when only parameters that `fn`
  // captures are trained.
  static variable_list forward(AutogradContext *ctx, const Variable & /*anchor*/,
                               const at::TensorList &given, const CallPointer &call) {
    const variable_list inputs = given.vec();
    ctx->save_for_backward(inputs);
    ctx->saved_data["call"] = at::IValue::make_capsule(call);
    ctx->set_materialize_grads(false);
    return call->fn(inputs);
  }

  static variable_list backward(AutogradContext *ctx, const variable_list &gradients) {
    for (const Variable &gradient : gradients)
      if (at::GradMode::is_enabled() && gradient.defined() && gradient.requires_grad())
        throw Error(OCTAVO_UNSUPPORTED,
                    "checkpoint: expected a backward that is not differentiated itself, found "
                    "create_graph; call the function without checkpoint()");
    const auto call = c10::static_intrusive_pointer_cast<Call>(ctx->saved_data["call"].toCapsule());
    const variable_list saved = ctx->get_saved_variables();
    variable_list inputs;
    for (const Variable &input : saved) {
      inputs.push_back(input.detach());
      if (input.requires_grad()) inputs.back().requires_grad_();
    }
    variable_list outputs;
    {
      const at::AutoGradMode with_graph(true);
      const Replay replay(call->random, call->autocast);
      outputs = call->fn(inputs);
    }
    if (outputs.size() != gradients.size())
      throw Error(OCTAVO_INVALID,
                  "checkpoint: expected a function that gives equally many tensors "
                  "each time, found " +
                      std::to_string(gradients.size()) + " and then " +
                      std::to_string(outputs.size()));
    variable_list roots;
    variable_list root_gradients;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i]);
      root_gradients.push_back(gradients[i]);
    }
    if (!roots.empty()) ::torch::autograd::backward(roots, root_gradients);
    variable_list results(1);  // the anchor's
    for (const Variable &input : inputs) results.push_back(input.grad());
    results.emplace_back();  // the call's
    return results;
  }
};

}  // namespace

Tensors checkpoint(std::function<Tensors(const Tensors &)> fn, const Tensors &inputs) {
  if (!at::GradMode::is_enabled()) return fn(inputs);
  for (const at::Tensor &input : inputs)
    if (!input.defined())
      throw Error(OCTAVO_INVALID,
                  "checkpoint: expected inputs that are tensors, found an undefined "
                  "one; let the function capture what is optional");
  auto call = c10::make_intrusive<Call>(inputs.empty() ? at::Device(at::kCPU) : inputs[0].device());
  call->fn = std::move(fn);
  const at::Tensor anchor = at::empty({0}).requires_grad_();
  return CheckpointFunction::apply(anchor, at::TensorList(inputs), call);
}

}  // namespace octavo::torch
