// core/linear.h as an autograd function.
//
// dw comes back as a tensor of its own, and autograd adds it to .grad; a backend that keeps the
// gradient in a slot adds it there, and .grad stands for the slot.
#include "linear_call.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/nn/init.h>

#include <cmath>
#include <mutex>

#include "host_adapters/torch/core/linear.h"
#include "in_slots.h"
#include "octavo/torch/error.h"
#include "octavo/torch/linear.h"

namespace octavo::torch {

namespace {

[[noreturn]] void refuse(const Site &site, const std::string &text) {
  throw Error(OCTAVO_INVALID, "linear \"" + site.name + "\": " + text);
}

// x may have any strides.
core::Forwarded forward(const Site &site, const at::Tensor &x, const at::Tensor &weight,
                        const at::Tensor &bias, int64_t flags) {
  core::ForwardInput in = {site.linear, flags, core::Coupling::kNoVersion, {}, handle_of(bias)};
  if (!site.weight->keeps_weight) {
    in.weight = handle_of(weight);
    if (!weight.is_inference()) in.version = weight._version();
  }
  return core::linear_forward(site.run->entry(), in, handle_of(x));
}

// Whether this backward pass hands the gradient of a leaf to its caller, as torch::autograd::grad
// does, in place of adding it to .grad.
bool is_result(const at::Tensor &leaf) {
  const auto *nodes = ::torch::autograd::get_current_graph_task_exec_info();
  if (nodes == nullptr || nodes->empty()) return false;
  const auto found = nodes->find(::torch::autograd::impl::gradient_edge(leaf).function.get());
  return found != nodes->end() && found->second.captures_ != nullptr;
}

// What forward keeps for backward, apart from tensors.
struct Kept : ::torch::CustomClassHolder {
  SitePointer site;
  uint32_t bias = 0;  // its dtype; 0: there is none
};

using ::torch::autograd::AutogradContext;
using ::torch::autograd::Variable;
using ::torch::autograd::variable_list;

struct LinearFunction : ::torch::autograd::Function<LinearFunction> {
  static Variable forward(AutogradContext *ctx, const Variable &x, const Variable &weight,
                          const std::optional<Variable> &given, const SitePointer &site) {
    const Variable bias = given.has_value() ? *given : Variable();
    core::Forwarded out = octavo::torch::forward(*site, x, weight, bias, 0);
    const bool keeps_x = (site->plan().flags & OCTAVO_LINEAR_NEEDS_X) != 0;
    // dx is computed with the weight. Saving it gives torch's own error for one that changes before
    // backward; a placeholder has the version of the weight in the slot.
    const bool keeps_weight =
        x.requires_grad() ||
        site->run->entry().linears[site->linear].verbs[OCTAVO_VERB_BACKWARD].native(
            OCTAVO_ROLE_WEIGHT) != nullptr;
    ctx->save_for_backward({tensor_of(std::move(out.saved)), keeps_x ? x : Variable(),
                            keeps_weight ? weight : Variable()});
    auto kept = c10::make_intrusive<Kept>();
    kept->site = site;
    if (bias.defined()) kept->bias = dtype_of(bias.scalar_type());
    ctx->saved_data["call"] = at::IValue::make_capsule(std::move(kept));
    ctx->set_materialize_grads(false);
    return tensor_of(std::move(out.y));
  }

  static variable_list backward(AutogradContext *ctx, variable_list dys) {
    if (!dys[0].defined()) return variable_list(4);
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(ctx->saved_data["call"].toCapsule());
    Site &site = *kept->site;
    if (at::GradMode::is_enabled() && dys[0].requires_grad())
      throw Error(OCTAVO_UNSUPPORTED,
                  "linear \"" + site.name +
                      "\": expected a backward that is not differentiated itself, found "
                      "create_graph; leave this layer out with layers.skip");
    const bool dw = ctx->needs_input_grad(1);
    const bool in_slot = dw && site.plan().gradient == OCTAVO_GRADIENT_SLOT;
    if (in_slot && site.run->is_closed)
      throw Error(OCTAVO_WRONG_STATE, "linear \"" + site.name +
                                          "\": expected a backward before the model is closed, "
                                          "found it closed; call forward again");
    if (in_slot && is_result(site.weight->tensor))
      throw Error(OCTAVO_UNSUPPORTED,
                  "linear \"" + site.name +
                      "\": expected backward(), which adds the gradient of the weight to its slot, "
                      "found torch::autograd::grad by the weight; call loss.backward() and read "
                      "weight.grad().clone()");
    const variable_list saved = ctx->get_saved_variables();
    // Passes of several threads add to the slot one after the other.
    std::unique_lock<std::mutex> adding(site.run->mutex(), std::defer_lock);
    if (in_slot) adding.lock();
    const bool adds = in_slot && adds_to_slot_gradient(site.run, *site.weight);
    core::BackwardInput in = {site.linear, adds ? 0 : OCTAVO_BACKWARD_OVERWRITE, 0, {}, {}, {}, 0};
    if (ctx->needs_input_grad(0)) in.wanted |= core::kDx;
    if (dw) in.wanted |= core::kDw;
    if (kept->bias != 0 && ctx->needs_input_grad(2)) in.wanted |= core::kDb;
    in.saved = handle_of(saved[0]);
    in.x = handle_of(saved[1]);
    if (!site.weight->keeps_weight) in.weight = handle_of(saved[2]);
    in.db_dtype = kept->bias;
    core::Gradients g = core::linear_backward(site.run->entry(), in, handle_of(dys[0]));
    if (in_slot) begin_slot_gradient(site.run, *site.weight);
    if (g.dx) ++site.dgrad_calls;
    if (dw) ++site.wgrad_calls;
    return {tensor_of(std::move(g.dx)), tensor_of(std::move(g.dw)), tensor_of(std::move(g.db)),
            Variable()};
  }
};

}  // namespace

bool is_plain_evaluation(const Site &site) {
  return (site.plan().flags & OCTAVO_LINEAR_EVALUATES_IN_HOST) != 0 && !site.weight->keeps_weight &&
         !site.is_training();
}

at::Tensor call_linear(const SitePointer &site, const at::Tensor &x, const at::Tensor &weight,
                       const at::Tensor &bias) {
  if (x.layout() != at::kStrided) refuse(*site, "x: expected a dense tensor, found a sparse one");
  Parameter &w = *site->weight;
  take_replaced(*site->run, w);
  if (w.keeps_weight && !w.is_piece && !weight.is_same(w.tensor))
    refuse(*site,
           "weight: expected the one that was prepared, which the backend keeps, found another; "
           "copy values into it in with_plain_weights, or prepare the model again");
  const bool differentiates =
      at::GradMode::is_enabled() &&
      (x.requires_grad() || weight.requires_grad() || (bias.defined() && bias.requires_grad()));
  if (!differentiates) {
    const int64_t evaluation = core::kQuiet | OCTAVO_FORWARD_EVALUATION;
    const int64_t flags = core::kNoBackward | (site->is_training() ? 0 : evaluation);
    return tensor_of(forward(*site, x, weight, bias, flags).y);
  }
  if (w.frozen() && weight.requires_grad())
    refuse(*site,
           "weight: expected requires_grad as it was when the model was prepared (frozen), "
           "found true; prepare the model after unfreezing it");
  const auto given = bias.defined() ? std::optional<Variable>(bias) : std::nullopt;
  // The graph keeps x for backward as the calls take it.
  return LinearFunction::apply(x.contiguous(), weight, given, site);
}

LinearImpl::LinearImpl(const ::torch::nn::LinearOptions &given) : options(given) {
  LinearImpl::reset();
}

void LinearImpl::reset() {
  place_.reset();
  weight =
      register_parameter("weight", ::torch::empty({options.out_features(), options.in_features()}));
  if (options.bias()) {
    bias = register_parameter("bias", ::torch::empty({options.out_features()}));
  } else {
    bias = register_parameter("bias", {}, /*requires_grad=*/false);
  }
  reset_parameters();
}

// The distribution of torch::nn::Linear, drawn in its order.
void LinearImpl::reset_parameters() {
  ::torch::nn::init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (!bias.defined()) return;
  const double bound = 1.0 / std::sqrt(static_cast<double>(options.in_features()));
  ::torch::nn::init::uniform_(bias, -bound, bound);
}

void LinearImpl::pretty_print(std::ostream &stream) const {
  stream << std::boolalpha << "octavo::torch::Linear(in_features=" << options.in_features()
         << ", out_features=" << options.out_features() << ", bias=" << options.bias() << ")";
}

at::Tensor LinearImpl::forward(const at::Tensor &x) {
  const std::shared_ptr<const Place> place = place_.lock();
  if (place == nullptr || place->module != this || is_plain_evaluation(*place->site))
    return ::torch::linear(x, weight, bias);
  const at::DeviceType type = place->site->run->device().type();
  if (!at::autocast::is_autocast_enabled(type)) return call_linear(place->site, x, weight, bias);
  const at::Tensor narrow =
      at::autocast::cached_cast(at::autocast::get_autocast_dtype(type), x, type);
  return call_linear(place->site, narrow, weight, bias);
}

}  // namespace octavo::torch
