// octavo.optimizer/1: Adam on the stored formats.
//
// Every item is checked before the first one is stepped, so a refused call changes nothing. Items
// cross to the kernels in groups on the stack: a step allocates nothing.
#include <algorithm>
#include <cstring>

#include "linear.h"
#include "plugins/common/product.h"

namespace octavo::msamp {
namespace {

constexpr uint64_t kGroup = 32;

octavo_status refuse_item(const octavo_session &s, const char *verb, const Parameter &p,
                          const std::string &text) {
  return refuse(s, OCTAVO_INVALID, std::string(verb) + " \"" + p.name + "\": " + text);
}

struct Need {
  const Stored *stored;
  const char *name;
};

// What the kernels would refuse in the middle of a step is found before it.
bool is_usable(const void *data, uint64_t width) {
  return data != nullptr && reinterpret_cast<uintptr_t>(data) % width == 0;
}

octavo_status check_item(const octavo_session &s, const char *verb,
                         const octavo_parameter_item &item, bool steps) {
  if (item.parameter >= s.sealed_parameters) return refuse_id(s, verb, item.parameter);
  const Parameter &p = s.parameters[item.parameter];
  if (p.is_frozen())
    return refuse_item(s, verb, p, "expected a parameter that is trained, found a frozen one");
  if (item.slots == nullptr) return refuse_item(s, verb, p, "expected its list, found null");
  if (at(item.slots, p.gradient.data) == nullptr)
    return refuse_item(s, verb, p,
                       "expected the address of its gradient, found null: hand in the native "
                       "tensor, or leave the parameter out of the step");
  if (!steps) return OCTAVO_OK;
  if (item.hyper == nullptr)
    return refuse_item(s, verb, p, "expected hyperparameters f32[8], found null");
  const Need needs[] = {{&p.weight, "weight"},
                        {&p.gradient, "gradient"},
                        {&p.master, "master_weight"},
                        {&p.exp_avg, "exp_avg"},
                        {&p.exp_avg_sq, "exp_avg_sq"}};
  for (const Need &need : needs) {
    if (!need.stored->exists()) continue;
    const void *data = at(item.slots, need.stored->data);
    if (data == nullptr)
      return refuse_item(s, verb, p,
                         std::string("expected the address of its ") + need.name +
                             ", found null: only the rank that owns a parameter steps it");
    const bool scaled = need.stored->scale_inv.position != OCTAVO_NONE;
    if (!is_usable(data, OCTAVO_DTYPE_BITS(need.stored->dtype) / 8) ||
        (scaled && !is_usable(at(item.slots, need.stored->scale_inv), sizeof(float))))
      return refuse_item(s, verb, p,
                         std::string("expected its ") + need.name +
                             " at an address that is a multiple of its element's size, and its "
                             "scale_inv likewise; found another or null");
  }
  if (!is_usable(at(item.slots, p.step), sizeof(int32_t)))
    return refuse_item(s, verb, p,
                       "expected the address of its step count, found null: only the rank that "
                       "owns a parameter steps it");
  return OCTAVO_OK;
}

octavo_adam_item adam_item(const Parameter &p, void *const *slots, const float *hyper) {
  octavo_adam_item a{};
  a.weight = tensor_at(slots, p.stepped(), p.rows, p.cols);
  a.gradient = tensor_at(slots, p.gradient, p.rows, p.cols);
  a.exp_avg = tensor_at(slots, p.exp_avg, p.rows, p.cols);
  a.exp_avg_sq = tensor_at(slots, p.exp_avg_sq, p.rows, p.cols);
  a.weight_scale_inv = float_at(slots, p.stepped().scale_inv);
  a.gradient_scale_inv = float_at(slots, p.gradient.scale_inv);
  a.exp_avg_scale_inv = float_at(slots, p.exp_avg.scale_inv);
  a.exp_avg_sq_scale_inv = float_at(slots, p.exp_avg_sq.scale_inv);
  a.step = static_cast<int32_t *>(at(slots, p.step));
  a.hyper = hyper;
  return a;
}

octavo_adam_step adam_call(const octavo_session &s, void *stream, const octavo_adam_item *items,
                           uint64_t count) {
  auto step = make_call<octavo_adam_step>(OCTAVO_KIND_ADAM_STEP, stream);
  step.items = items;
  step.count = count;
  step.rule = s.recipe.rule();
  step.decay_mode = !s.recipe.decay_is_l2 ? OCTAVO_DECAY_DECOUPLED
                    : s.recipe.parity     ? OCTAVO_DECAY_L2_MSAMP04
                                          : OCTAVO_DECAY_L2;
  step.state_granularity = s.recipe.state_granularity;
  step.flags = s.recipe.parity ? 0 : OCTAVO_ADAM_KEEP_POSITIVE;
  return step;
}

// O3: the E4M3 weight from its master. After a skipped step it gives the same codes again.
octavo_status cast_master(const octavo_session &s, void *stream, const Parameter &p,
                          void *const *slots, void *workspace) {
  octavo_tensor codes = tensor_at(slots, p.weight, p.rows, p.cols);
  TensorCast cast;
  cast.in = tensor_at(slots, p.master, p.rows, p.cols);
  cast.in_scale_inv = float_at(slots, p.master.scale_inv);
  cast.out = &codes;
  cast.out_scale_inv = {at(slots, p.weight.scale_inv), 0, OCTAVO_F32, OCTAVO_PER_TENSOR};
  cast.workspace = workspace;
  return cast_by_rule(s, stream, cast);
}

}  // namespace

octavo_status optimizer_workspace_bytes(const octavo_session *s, const uint32_t *parameters,
                                        uint64_t count, uint64_t *bytes) {
  *bytes = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (parameters[i] >= s->sealed_parameters)
      return refuse_id(*s, "workspace_bytes", parameters[i]);
    const Parameter &p = s->parameters[parameters[i]];
    uint64_t adam = 0;
    if (!p.is_frozen()) {
      const octavo_adam_item item = adam_item(p, nullptr, nullptr);
      const octavo_adam_step call = adam_call(*s, nullptr, &item, 1);
      const octavo_status status =
          s->device.kernels().workspace_bytes(s->device.ctx(), &call, &adam);
      if (status != OCTAVO_OK) return status;
    }
    // Reading and writing one parameter: an f16 master between the host's values and E4M3 codes.
    Carver carver(nullptr);
    carver.scale_inv();
    carver.tensor(p.rows, p.cols, OCTAVO_F16);
    carver.take(0);
    const uint64_t copies = carver.used() + plugin::quantize_bytes(s->device, p.rows, p.cols);
    *bytes = std::max(*bytes, copies) + adam;
  }
  return OCTAVO_OK;
}

octavo_status optimizer_step(const octavo_session *s, const octavo_optimizer_call *c) {
  for (uint64_t i = 0; i < c->count; ++i) {
    const octavo_status status = check_item(*s, "optimizer_step", c->items[i], true);
    if (status != OCTAVO_OK) return status;
  }
  for (uint64_t first = 0; first < c->count; first += kGroup) {
    const uint64_t count = std::min(kGroup, c->count - first);
    octavo_adam_item items[kGroup];
    for (uint64_t i = 0; i < count; ++i) {
      const octavo_parameter_item &item = c->items[first + i];
      items[i] = adam_item(s->parameters[item.parameter], item.slots, item.hyper);
    }
    octavo_adam_step step = adam_call(*s, c->stream, items, count);
    step.skip = c->skip;
    step.workspace = c->workspace;
    octavo_status status = s->device.kernels().adam_step(s->device.ctx(), &step);
    for (uint64_t i = 0; i < count && status == OCTAVO_OK; ++i) {
      const octavo_parameter_item &item = c->items[first + i];
      const Parameter &p = s->parameters[item.parameter];
      if (p.master.exists()) status = cast_master(*s, c->stream, p, item.slots, c->workspace);
    }
    if (status != OCTAVO_OK) return status;
  }
  return OCTAVO_OK;
}

octavo_status sum_of_squares(const octavo_session *s, const octavo_norm_call *c) {
  for (uint64_t i = 0; i < c->count; ++i) {
    const octavo_status status = check_item(*s, "sum_of_squares", c->items[i], false);
    if (status != OCTAVO_OK) return status;
  }
  for (uint64_t i = 0; i < c->count; ++i) {
    const octavo_parameter_item &item = c->items[i];
    const Parameter &p = s->parameters[item.parameter];
    const octavo_tensor gradient = tensor_at(item.slots, p.gradient, p.rows, p.cols);
    const octavo_scale scale_inv{at(item.slots, p.gradient.scale_inv), 0, OCTAVO_F32,
                                 OCTAVO_PER_TENSOR};
    auto sum = make_call<octavo_sum>(OCTAVO_KIND_SUM, c->stream);
    sum.in = &gradient;
    sum.in_scale_inv = scale_inv.data != nullptr ? &scale_inv : nullptr;
    sum.out = c->sum;
    const octavo_status status = s->device.kernels().sum_of_squares(s->device.ctx(), &sum);
    if (status != OCTAVO_OK) return status;
  }
  return OCTAVO_OK;
}

octavo_status prepare_step(const octavo_session *s, const octavo_prepare_call *c) {
  constexpr uint64_t kGroups = 64;
  if (c->count > kGroups || (c->count > 0 && c->hyper == nullptr))
    return refuse(*s, OCTAVO_INVALID,
                  "prepare_step: expected the addresses of at most 64 arrays of hyperparameters");
  float *grad_scale[kGroups];
  for (uint64_t i = 0; i < c->count; ++i) {
    if (c->hyper[i] == nullptr)
      return refuse(*s, OCTAVO_INVALID,
                    "prepare_step: expected hyperparameters f32[8] of every group, found null");
    grad_scale[i] = c->hyper[i] + OCTAVO_HYPER_GRAD_SCALE;
  }
  auto scale = make_call<octavo_gradient_scale>(OCTAVO_KIND_GRADIENT_SCALE, c->stream);
  scale.sum = c->sum;
  scale.sum_count = c->sum_count;
  scale.nonfinite = c->nonfinite;
  scale.norm = c->norm;
  scale.skip = c->skip;
  scale.grad_scale = grad_scale;
  scale.count = c->count;
  scale.factor = c->factor;
  scale.max_norm = c->max_norm;
  return s->device.kernels().gradient_scale(s->device.ctx(), &scale);
}

}  // namespace octavo::msamp
