// linear_forward and linear_backward as an autograd function, on the backend's table: no function
// of liboctavo is on this path.
//
// dw comes back as a tensor of its own with OCTAVO_BACKWARD_OVERWRITE, and autograd adds it to
// .grad; a backend that keeps the gradient in a slot adds it there, and .grad stays undefined.
#include "linear_call.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device.h"
#include "octavo/torch/error.h"
#include "text.h"

namespace octavo::torch {
namespace {

octavo_tensor borrow(const at::Tensor &t, int64_t rows, int64_t cols) {
  return {const_cast<void *>(t.const_data_ptr()), rows, cols, cols, dtype_of(t.scalar_type()), 0};
}

// Bytes that live during one call; from torch's allocator, aligned.
class Scratch {
 public:
  Scratch(uint64_t bytes, const at::Device &device) {
    if (bytes == 0) return;
    if (device.is_cpu()) {
      memory_ = c10::GetCPUAllocator()->allocate(bytes + kAlignment);
    } else {  // which knows streams
      tensor_ = at::empty({static_cast<int64_t>(bytes + kAlignment)},
                          at::TensorOptions(at::kByte).device(device));
    }
  }
  void *data() const {
    if (tensor_.defined()) return aligned(tensor_.mutable_data_ptr());
    return memory_ ? aligned(memory_.get()) : nullptr;
  }

 private:
  c10::DataPtr memory_;
  at::Tensor tensor_;
};

[[noreturn]] void refuse(const Site &site, const std::string &text) {
  throw Error(OCTAVO_INVALID, "linear \"" + site.name + "\": " + text);
}

void check_operand(const Site &site, const at::Tensor &t, int64_t cols, const char *name) {
  if (t.device() != site.run->device() || t.layout() != at::kStrided)
    refuse(site, std::string(name) + ": expected a dense tensor on " + site.run->device().str() +
                     ", where the model was prepared, found " +
                     (t.layout() == at::kStrided ? "one on " + t.device().str() : "a sparse one"));
  if (dtype_of(t.scalar_type()) == 0)
    refuse(site, std::string(name) + ": expected f32, bf16 or f16, found " +
                     std::string(c10::toString(t.scalar_type())) +
                     "; convert it, or leave this layer out with layers.skip");
  if (t.dim() < 1 || t.size(-1) != cols)
    refuse(site, std::string(name) + ": expected [..., " + std::to_string(cols) + "], found " +
                     std::to_string(t.dim()) + " dimensions" +
                     (t.dim() < 1 ? "" : ", the last of " + std::to_string(t.size(-1))));
}

// A tensor of `like`'s leading sizes and this last one.
at::Tensor with_last_size(const at::Tensor &like, int64_t last, at::ScalarType type) {
  c10::SmallVector<int64_t, 5> sizes(like.sizes().begin(), like.sizes().end());
  sizes.back() = last;
  return at::empty(sizes, like.options().dtype(type));
}

// x dense.
at::Tensor forward(const Site &site, const at::Tensor &x, const at::Tensor &bias, void *saved,
                   bool records) {
  const Parameter &w = *site.weight;
  const int64_t rows = x.numel() / w.cols;
  at::Tensor y = with_last_size(x, w.rows, x.scalar_type());

  const octavo_tensor x_tensor = borrow(x, rows, w.cols);
  octavo_tensor y_tensor = borrow(y, rows, w.rows);
  octavo_tensor bias_tensor = {};
  if (bias.defined()) bias_tensor = borrow(bias, 1, w.rows);
  const Scratch workspace(
      octavo_extent_bytes(&site.plan.forward_workspace, static_cast<uint64_t>(rows)), x.device());
  Addresses addresses;
  auto call = make<octavo_forward_call>(OCTAVO_KIND_FORWARD_CALL);
  call.stream = current_stream(x.device());
  call.linear = site.linear;
  call.flags = !records && !site.is_training() ? OCTAVO_FORWARD_EVALUATION : 0;
  call.x = &x_tensor;
  call.y = &y_tensor;
  call.bias = bias.defined() ? &bias_tensor : nullptr;
  call.slots = site.run->fill(records ? site.forward : site.forward_silent, &addresses);
  call.saved = saved;
  call.workspace = workspace.data();
  const octavo_status status = site.run->table()->linear_forward(site.run->session(), &call);
  if (status != OCTAVO_OK) site.run->host().check(status, "linear_forward", site.name);
  ++const_cast<Site &>(site).forward_calls;
  return y;
}

struct Gradients {
  at::Tensor dx;
  at::Tensor dw;
  at::Tensor db;
};

// What forward keeps for backward, apart from tensors.
struct Kept : ::torch::CustomClassHolder {
  SitePointer site;
  at::ScalarType x_type = at::kFloat;
  bool has_bias = false;
  at::TensorOptions bias;
};

struct Wants {
  bool dx;
  bool dw;
  bool db;
};

// dy [..., N] dense. Undefined results were not asked for.
Gradients backward(const Kept &kept, const at::Tensor &dy, const at::Tensor &x, const void *saved,
                   const Wants &wants) {
  Site &site = *kept.site;
  Parameter &w = *site.weight;
  const int64_t rows = dy.numel() / w.rows;
  const bool in_slot = wants.dw && site.plan.gradient == OCTAVO_GRADIENT_SLOT;
  const bool in_tensor = wants.dw && site.plan.gradient == OCTAVO_GRADIENT_TENSOR;
  const bool adds = in_slot && w.has_gradient.load();
  Gradients g;
  if (wants.dx) g.dx = with_last_size(dy, w.cols, kept.x_type);
  if (in_tensor) g.dw = at::empty({w.rows, w.cols}, w.tensor.options());
  if (wants.db) g.db = adds ? at::zeros({w.rows}, kept.bias) : at::empty({w.rows}, kept.bias);

  const octavo_tensor dy_tensor = borrow(dy, rows, w.rows);
  octavo_tensor x_tensor = {};
  octavo_tensor dx_tensor = {};
  octavo_tensor dw_tensor = {};
  octavo_tensor db_tensor = {};
  if (x.defined()) x_tensor = borrow(x, rows, w.cols);
  if (g.dx.defined()) dx_tensor = borrow(g.dx, rows, w.cols);
  if (g.dw.defined()) dw_tensor = borrow(g.dw, w.rows, w.cols);
  if (g.db.defined()) db_tensor = borrow(g.db, 1, w.rows);
  const Scratch workspace(
      octavo_extent_bytes(&site.plan.backward_workspace, static_cast<uint64_t>(rows)), dy.device());
  Addresses addresses;
  auto call = make<octavo_backward_call>(OCTAVO_KIND_BACKWARD_CALL);
  call.stream = current_stream(dy.device());
  call.linear = site.linear;
  call.flags = (adds ? 0 : OCTAVO_BACKWARD_OVERWRITE) |
               (in_slot || in_tensor ? 0 : OCTAVO_BACKWARD_SKIP_WEIGHT);
  call.dy = &dy_tensor;
  call.x = x.defined() ? &x_tensor : nullptr;
  call.dx = g.dx.defined() ? &dx_tensor : nullptr;
  call.dw = g.dw.defined() ? &dw_tensor : nullptr;
  call.db = g.db.defined() ? &db_tensor : nullptr;
  call.slots = site.run->fill(site.backward, &addresses);
  call.saved = saved;
  call.workspace = workspace.data();
  const octavo_status status = site.run->table()->linear_backward(site.run->session(), &call);
  if (status != OCTAVO_OK) site.run->host().check(status, "linear_backward", site.name);
  if (in_slot) w.has_gradient = true;
  site.run->ran_backward();
  if (wants.dx) ++site.dgrad_calls;
  if (in_slot || in_tensor) ++site.wgrad_calls;
  return g;
}

using ::torch::autograd::AutogradContext;
using ::torch::autograd::Variable;
using ::torch::autograd::variable_list;

struct LinearFunction : ::torch::autograd::Function<LinearFunction> {
  // x [..., K] dense. `weight` takes part for its place in the graph; its values are read through
  // the site's slots.
  static Variable forward(AutogradContext *ctx, const Variable &x, const Variable & /*weight*/,
                          const std::optional<Variable> &given, const SitePointer &site) {
    const Variable bias = given.has_value() ? *given : Variable();
    const auto rows = static_cast<uint64_t>(x.numel() / site->weight->cols);
    const uint64_t bytes = octavo_extent_bytes(&site->plan.saved, rows) + kAlignment;
    const at::Tensor saved = at::empty({static_cast<int64_t>(bytes)}, x.options().dtype(at::kByte));
    Variable y = octavo::torch::forward(*site, x, bias, aligned(saved.mutable_data_ptr()), true);
    const bool keeps_x = (site->plan.flags & OCTAVO_LINEAR_NEEDS_X) != 0;
    ctx->save_for_backward({saved, keeps_x ? x : Variable()});
    auto kept = c10::make_intrusive<Kept>();
    kept->site = site;
    kept->x_type = x.scalar_type();
    kept->has_bias = bias.defined();
    if (kept->has_bias) kept->bias = bias.options();
    ctx->saved_data["call"] = at::IValue::make_capsule(std::move(kept));
    ctx->set_materialize_grads(false);
    return y;
  }

  static variable_list backward(AutogradContext *ctx, variable_list dys) {
    if (!dys[0].defined()) return variable_list(4);
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(ctx->saved_data["call"].toCapsule());
    if (at::GradMode::is_enabled() && dys[0].requires_grad())
      throw Error(OCTAVO_UNSUPPORTED,
                  "linear \"" + kept->site->name +
                      "\": expected a backward that is not differentiated itself, found "
                      "create_graph; leave this layer out with layers.skip");
    const variable_list saved = ctx->get_saved_variables();
    const Gradients g = octavo::torch::backward(*kept, dys[0].contiguous(), saved[1],
                                                aligned(saved[0].mutable_data_ptr()),
                                                {ctx->needs_input_grad(0), ctx->needs_input_grad(1),
                                                 kept->has_bias && ctx->needs_input_grad(2)});
    return {g.dx, g.dw, g.db, Variable()};
  }
};

}  // namespace

void Site::bind() {
  OCTAVO_TAKE(plan, octavo_get_plan(run->handle(), linear));
  weight->cache_workspace = std::max(weight->cache_workspace, plan.weight_workspace);
  forward = run->linear_list(linear, OCTAVO_VERB_FORWARD, SlotMemory::Record::kYes);
  forward_silent = run->linear_list(linear, OCTAVO_VERB_FORWARD, SlotMemory::Record::kNo);
  backward = run->linear_list(linear, OCTAVO_VERB_BACKWARD, SlotMemory::Record::kYes);
}

at::Tensor call_linear(const SitePointer &site, const at::Tensor &x, const at::Tensor &weight,
                       const at::Tensor &bias) {
  Parameter &w = *site->weight;
  check_operand(*site, x, w.cols, "x");
  if (bias.defined()) {
    check_operand(*site, bias, w.rows, "bias");
    if (!bias.is_contiguous()) refuse(*site, "bias: expected a contiguous tensor [N]");
  }
  const bool records = at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad() ||
                                                      (bias.defined() && bias.requires_grad()));
  if (site->run->is_stale(w)) site->run->settle(w, records);
  if (!records) return forward(*site, x.contiguous(), bias, nullptr, false);
  if (w.frozen() && weight.requires_grad())
    refuse(*site,
           "weight: expected requires_grad as it was when the model was prepared (frozen), "
           "found true; prepare the model after unfreezing it");
  const auto given = bias.defined() ? std::optional<Variable>(bias) : std::nullopt;
  return LinearFunction::apply(x.contiguous(), weight, given, site);
}

}  // namespace octavo::torch
