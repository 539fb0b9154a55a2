// octavo/hpp/plugin/optimizer_verbs.hpp: the verbs of octavo.optimizer/2, around a backend's
// stages.
//
// Included by optimizer.hpp. A verb allocates nothing unless it fails.
#ifndef OCTAVO_HPP_PLUGIN_OPTIMIZER_VERBS_HPP
#define OCTAVO_HPP_PLUGIN_OPTIMIZER_VERBS_HPP

#include "octavo/hpp/plugin/optimizer.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

template <typename Self>
octavo_status Optimizer<Self>::describe_optimizer(octavo_optimizer_desc *out) const {
  const Algorithm algorithm = self().algorithm();
  out->algorithm = algorithm.name;
  std::copy(std::begin(algorithm.hyper), std::end(algorithm.hyper), out->hyper);
  return OCTAVO_OK;
}

// Sums over the parameters, so that a step of any of them, grouped in any way, has enough.
template <typename Self>
octavo_status Optimizer<Self>::optimizer_workspace(const uint32_t *ids, uint64_t count,
                                                   uint64_t *bytes) const {
  *bytes = 0;
  uint64_t copies = 0;
  for (uint64_t i = 0; i < count; ++i) {
    check_sealed(ids[i]);
    const Parameter &w = parameters()[ids[i]];
    Pass step(self().device(), true, 0, nullptr, nullptr, nullptr);
    const octavo_parameter_item item = {ids[i], 0, nullptr, nullptr};
    if (!w.is_frozen())
      self().step(step, StepGroup(self().objects(), self().rules(), &item, 1, nullptr, true));
    if (step.status() != OCTAVO_OK) return step.status();
    Pass norm(self().device(), true, 0, nullptr, nullptr, nullptr);
    if (!w.is_frozen()) add_squares(norm, parameter(ids[i], nullptr, true), nullptr);
    if (norm.status() != OCTAVO_OK) return norm.status();
    copies = std::max(copies, norm.workspace_bytes());
    *bytes += (step.workspace_bytes() + 255) / 256 * 256;
    const octavo_tensor plain{nullptr, w.rows, w.cols, w.cols, OCTAVO_F32, 0};
    for (const uint32_t role :
         {OCTAVO_ROLE_WEIGHT, OCTAVO_ROLE_GRADIENT, OCTAVO_ROLE_EXP_AVG, OCTAVO_ROLE_EXP_AVG_SQ}) {
      const ParameterCall c = parameter(ids[i], nullptr, true);
      if (!c.has(role)) continue;
      Pass write(self().device(), true, 0, nullptr, nullptr, nullptr);
      self().write(write, WriteCall(c, role, plain));
      if (write.status() != OCTAVO_OK) return write.status();
      copies = std::max(copies, write.workspace_bytes());
    }
  }
  *bytes = std::max(*bytes, copies);
  return OCTAVO_OK;
}

template <typename Self>
octavo_status Optimizer<Self>::optimizer_step(const octavo_optimizer_call *c) const {
  for (uint64_t i = 0; i < c->count; ++i) check_step(c->items[i]);
  for (uint64_t first = 0; first < c->count; first += StepGroup::kMost) {
    const uint64_t count = std::min(StepGroup::kMost, c->count - first);
    Pass p = pass(c->stream, c->workspace);
    self().step(
        p, StepGroup(self().objects(), self().rules(), c->items + first, count, c->skip, false));
    if (p.status() != OCTAVO_OK) return p.status();
  }
  return OCTAVO_OK;
}

template <typename Self>
octavo_status Optimizer<Self>::sum_of_squares(const octavo_norm_call *c) const {
  for (uint64_t i = 0; i < c->count; ++i) trained(c->items[i]);
  Pass p = pass(c->stream, c->workspace);
  for (uint64_t i = 0; i < c->count; ++i)
    add_squares(p, parameter(c->items[i].parameter, c->items[i].slots), c->sum);
  return p.status();
}

template <typename Self>
void Optimizer<Self>::add_squares(Pass &p, const ParameterCall &c, float *out) const {
  const Codes gradient = c.stored(OCTAVO_ROLE_GRADIENT);
  auto sum = p.call<octavo_sum>(OCTAVO_KIND_SUM);
  sum.in = &gradient.rows;
  sum.in_scale_inv = if_scaled(gradient.scale_inv);
  sum.out = out;
  p.run(&octavo_adam_kernels::sum_of_squares, sum);
}

template <typename Self>
octavo_status Optimizer<Self>::prepare_step(const octavo_prepare_call *c) const {
  constexpr uint64_t kGroups = 64;
  if (c->count > kGroups || (c->count > 0 && c->hyper == nullptr))
    throw Error(OCTAVO_INVALID, "expected the addresses of at most 64 arrays of hyperparameters");
  float *grad_scale[kGroups];
  for (uint64_t i = 0; i < c->count; ++i) {
    if (c->hyper[i] == nullptr)
      throw Error(OCTAVO_INVALID, "expected hyperparameters f32[8] of every group, found null");
    grad_scale[i] = c->hyper[i] + OCTAVO_HYPER_GRAD_SCALE;
  }
  Pass p = pass(c->stream, nullptr);
  auto scale = p.call<octavo_gradient_scale>(OCTAVO_KIND_GRADIENT_SCALE);
  scale.sum = c->sum;
  scale.sum_count = c->sum_count;
  scale.nonfinite = c->nonfinite;
  scale.norm = c->norm;
  scale.skip = c->skip;
  scale.grad_scale = grad_scale;
  scale.count = c->count;
  scale.factor = c->factor;
  scale.max_norm = c->max_norm;
  p.run(&octavo_adam_kernels::gradient_scale, scale);
  return p.status();
}

template <typename Self>
octavo_status Optimizer<Self>::read_parameter(const octavo_parameter_call *c) const {
  const ParameterCall call = copied(*c);
  const uint32_t role = c->role == OCTAVO_ROLE_MASTER_WEIGHT ? call.stepped() : c->role;
  check_copy(*c, call, role);
  Pass p = pass(c->stream, c->workspace);
  const Operand stored = call.stored(role).by_rows();
  if (stored.is_plain())
    p.add(stored.codes, *c->plain, false);
  else
    p.decode(stored, *c->plain);
  return p.status();
}

template <typename Self>
octavo_status Optimizer<Self>::write_parameter(const octavo_parameter_call *c) const {
  const bool is_master = c->role == OCTAVO_ROLE_MASTER_WEIGHT;
  const uint32_t role = is_master ? uint32_t{OCTAVO_ROLE_WEIGHT} : c->role;
  const ParameterCall call = copied(*c);
  check_copy(*c, call, role);
  Pass p = pass(c->stream, c->workspace);
  self().write(p, WriteCall(call, role, *c->plain));
  return p.status();
}

// A parameter with a gradient at hand.
template <typename Self>
ParameterCall Optimizer<Self>::trained(const octavo_parameter_item &item) const {
  check_sealed(item.parameter);
  const ParameterCall c = parameter(item.parameter, item.slots);
  const auto refuse = [&](const char *text) {
    throw Error(OCTAVO_INVALID, about(c.parameter.name) + text);
  };
  if (c.parameter.is_frozen()) refuse("expected a parameter that is trained, found a frozen one");
  if (item.slots == nullptr) refuse("expected its list, found null");
  if (c.data(OCTAVO_ROLE_GRADIENT) == nullptr)
    refuse(
        "expected the address of its gradient, found null: hand in the native tensor, or leave the "
        "parameter out of the step");
  return c;
}

// What the kernels would refuse in the middle of a step is found before it.
template <typename Self>
void Optimizer<Self>::check_step(const octavo_parameter_item &item) const {
  const ParameterCall c = trained(item);
  const auto where = [&] { return about(c.parameter.name); };
  if (item.hyper == nullptr)
    throw Error(OCTAVO_INVALID, where() + "expected hyperparameters f32[8], found null");
  const auto is_usable = [](const void *data, uint32_t dtype) {
    return data != nullptr &&
           reinterpret_cast<uintptr_t>(data) % (OCTAVO_DTYPE_BITS(dtype) / 8) == 0;
  };
  for (const uint32_t role : {OCTAVO_ROLE_WEIGHT, OCTAVO_ROLE_GRADIENT, OCTAVO_ROLE_MASTER_WEIGHT,
                              OCTAVO_ROLE_EXP_AVG, OCTAVO_ROLE_EXP_AVG_SQ, OCTAVO_ROLE_COUNTER}) {
    const SlotRule *rule = c.rule(role);
    if (rule == nullptr) continue;
    const void *data = c.data(role);
    const auto name = [&] { return rule->name + (role == OCTAVO_ROLE_COUNTER ? " count" : ""); };
    if (data == nullptr)
      throw Error(OCTAVO_INVALID, where() + "expected the address of its " + name() +
                                      ", found null: only the rank that owns a parameter steps it");
    const uint32_t dtype = c.parameter.places[c.parameter.by_role[role]].dtype;
    if (!is_usable(data, dtype) ||
        (rule->scale_rule != OCTAVO_NONE && !is_usable(c[FloatSlot{rule->scale_rule}], OCTAVO_F32)))
      throw Error(OCTAVO_INVALID, where() + "expected its " + name() +
                                      " at an address that is a multiple of its element's size, "
                                      "and its scale_inv likewise; found another or null");
  }
}

// The parameter of a copy in either direction.
template <typename Self>
ParameterCall Optimizer<Self>::copied(const octavo_parameter_call &c) const {
  if (c.parameter >= self().objects().sealed_parameters)
    throw Error(OCTAVO_INVALID, "no such parameter is sealed");
  return parameter(c.parameter, c.slots);
}

// `role`: of the tensor that is read or written.
template <typename Self>
void Optimizer<Self>::check_copy(const octavo_parameter_call &c, const ParameterCall &call,
                                 uint32_t role) const {
  const Parameter &p = call.parameter;
  const auto refuse = [&](const std::string &text) {
    throw Error(OCTAVO_INVALID, about(p.name) + "expected " + text);
  };
  const auto shape = [](int64_t rows, int64_t cols) {
    return "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
  };
  if (c.plain == nullptr || c.slots == nullptr) refuse("a tensor and a list, found null");
  if (c.plain->rows != p.rows || c.plain->cols != p.cols)
    refuse("the shape " + shape(p.rows, p.cols) + " that it was added with, found " +
           shape(c.plain->rows, c.plain->cols));
  if (!is_plain_dtype(c.plain->dtype))
    refuse("f32, bf16 or f16, found dtype " + std::to_string(c.plain->dtype));
  const bool is_tensor = c.role >= OCTAVO_ROLE_WEIGHT && c.role <= OCTAVO_ROLE_EXP_AVG_SQ;
  if (!is_tensor || call.data(role) == nullptr)
    refuse("a role that this parameter has and whose slots are on this rank, found role " +
           std::to_string(c.role));
}

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
