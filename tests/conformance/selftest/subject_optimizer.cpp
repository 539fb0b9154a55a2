// octavo.optimizer/2 of the subject: Adam on native weights and gradients with f32 states.
//
// Parameters are read and written by dequantize, which copies plain values.
#include "subject_session.h"

namespace octavo::selftest {
namespace {

octavo_status workspace_bytes(const octavo_session *, const uint32_t *, uint64_t, uint64_t *bytes) {
  *bytes = 0;
  return OCTAVO_OK;
}

octavo_tensor plain(void *data, const octavo_parameter_desc &d, uint32_t dtype) {
  return {data, d.rows, d.cols, d.cols, dtype, 0};
}

void copy(const octavo_session *s, void *out, const void *in, uint64_t bytes) {
  octavo_copy c{};
  c.size = sizeof c;
  c.kind = OCTAVO_KIND_COPY;
  c.out = out;
  c.in = in;
  c.bytes = bytes;
  s->kernels->copy(s->ctx, &c);
}

octavo_status optimizer_step(const octavo_session *s, const octavo_optimizer_call *c) {
  for (uint64_t i = 0; i < c->count; ++i) {
    const octavo_parameter_item &item = c->items[i];
    const octavo_parameter_desc &d = s->parameters[item.parameter].desc;
    if (s->fault == kReadsHyperOnHost && item.hyper[OCTAVO_HYPER_LR] < 0) return OCTAVO_INVALID;
    octavo_adam_item adam{};
    adam.weight = plain(item.slots[kWeight], d, d.dtype);
    adam.gradient = plain(item.slots[kGradient], d, d.gradient_dtype);
    adam.exp_avg = plain(item.slots[kExpAvg], d, OCTAVO_F32);
    adam.exp_avg_sq = plain(item.slots[kExpAvgSq], d, OCTAVO_F32);
    adam.step = static_cast<int32_t *>(item.slots[kStep]);
    adam.hyper = item.hyper;
    float changed[OCTAVO_HYPER_COUNT];
    const bool changes = s->fault == kGradScaleIgnored || s->fault == kDecayIgnored;
    if (s->fault == kHyperOfFirst) adam.hyper = c->items[0].hyper;
    if (s->fault == kStepOfFirst) adam.step = static_cast<int32_t *>(c->items[0].slots[kStep]);
    if (changes) {
      copy(s, changed, item.hyper, sizeof changed);
      if (s->fault == kGradScaleIgnored) changed[OCTAVO_HYPER_GRAD_SCALE] = 1;
      if (s->fault == kDecayIgnored) changed[OCTAVO_HYPER_WEIGHT_DECAY] = 0;
      adam.hyper = changed;
    }
    int32_t step = 0;
    if (s->fault == kStepFrozen) copy(s, &step, adam.step, sizeof step);
    octavo_adam_step call{};
    call.size = sizeof call;
    call.kind = OCTAVO_KIND_ADAM_STEP;
    call.items = &adam;
    call.count = 1;
    const bool is_vector = (d.flags & OCTAVO_PARAMETER_LINEAR_WEIGHT) == 0;
    const bool no_skip =
        s->fault == kSkipIgnored || (s->fault == kSkipIgnoredForVectors && is_vector);
    call.skip = no_skip ? nullptr : c->skip;
    s->tables.get<octavo_adam_kernels>()->adam_step(s->ctx, &call);
    if (s->fault == kStepFrozen) copy(s, adam.step, &step, sizeof step);
    if (s->fault == kWritesStepElsewhere) copy(s, item.slots[kGradient], nullptr, sizeof(float));
  }
  return OCTAVO_OK;
}

octavo_status sum_of_squares(const octavo_session *s, const octavo_norm_call *c) {
  if (s->fault == kNormOverwrites) copy(s, c->sum, nullptr, sizeof(float));
  for (uint64_t i = 0; i < c->count; ++i) {
    const octavo_parameter_desc &d = s->parameters[c->items[i].parameter].desc;
    const octavo_tensor gradient = plain(c->items[i].slots[kGradient], d, d.gradient_dtype);
    octavo_sum sum{};
    sum.size = sizeof sum;
    sum.kind = OCTAVO_KIND_SUM;
    sum.in = &gradient;
    sum.out = c->sum;
    s->tables.get<octavo_adam_kernels>()->sum_of_squares(s->ctx, &sum);
  }
  return OCTAVO_OK;
}

octavo_status move_parameter(const octavo_session *s, const octavo_parameter_call *c, bool write) {
  const octavo_parameter_desc &d = s->parameters[c->parameter].desc;
  octavo_tensor slot{};
  switch (c->role) {
    case OCTAVO_ROLE_WEIGHT: slot = plain(c->slots[kWeight], d, d.dtype); break;
    case OCTAVO_ROLE_GRADIENT: slot = plain(c->slots[kGradient], d, d.gradient_dtype); break;
    case OCTAVO_ROLE_EXP_AVG: slot = plain(c->slots[kExpAvg], d, OCTAVO_F32); break;
    case OCTAVO_ROLE_EXP_AVG_SQ: slot = plain(c->slots[kExpAvgSq], d, OCTAVO_F32); break;
    default: return OCTAVO_UNSUPPORTED;
  }
  if (write && s->fault == kWriteExpAvgIgnored && c->role == OCTAVO_ROLE_EXP_AVG) return OCTAVO_OK;
  octavo_dequantize copy{};
  copy.size = sizeof copy;
  copy.kind = OCTAVO_KIND_DEQUANTIZE;
  copy.in = write ? c->plain : &slot;
  copy.out = write ? &slot : c->plain;
  copy.accumulate = write && s->fault == kWriteAdds ? 1 : 0;
  return s->kernels->dequantize(s->ctx, &copy);
}

octavo_status prepare_step(const octavo_session *s, const octavo_prepare_call *c) {
  for (uint64_t i = 0; i < c->count; ++i) {
    float *grad_scale = c->hyper[i] + OCTAVO_HYPER_GRAD_SCALE;
    octavo_gradient_scale scale{};
    scale.size = sizeof scale;
    scale.kind = OCTAVO_KIND_GRADIENT_SCALE;
    scale.sum = c->sum;
    scale.sum_count = c->sum_count;
    scale.nonfinite = c->nonfinite;
    scale.norm = c->norm;
    scale.skip = c->skip;
    scale.grad_scale = &grad_scale;
    scale.count = 1;
    scale.factor = c->factor;
    scale.max_norm = c->max_norm;
    if (const octavo_status status =
            s->tables.get<octavo_adam_kernels>()->gradient_scale(s->ctx, &scale);
        status != OCTAVO_OK)
      return status;
  }
  return OCTAVO_OK;
}

octavo_status describe(const octavo_session *s, octavo_optimizer_desc *out) {
  if (s->fault == kOptimizerNameless) return OCTAVO_OK;
  out->algorithm = OCTAVO_STR("adamw");
  if (s->fault == kOptimizerMisnamed) out->algorithm = OCTAVO_STR("adam");
  if (s->fault == kOtherOptimizer) out->algorithm = OCTAVO_STR("lion");
  out->hyper[OCTAVO_HYPER_LR] = OCTAVO_STR("lr");
  return OCTAVO_OK;
}

octavo_status read_parameter(const octavo_session *s, const octavo_parameter_call *c) {
  return move_parameter(s, c, false);
}
octavo_status write_parameter(const octavo_session *s, const octavo_parameter_call *c) {
  return move_parameter(s, c, true);
}

}  // namespace

const octavo_optimizer *subject_optimizer() {
  static const octavo_optimizer kTable = {
      sizeof(octavo_optimizer), OCTAVO_KIND_OPTIMIZER, describe,     workspace_bytes,
      optimizer_step,           sum_of_squares,        prepare_step, read_parameter,
      write_parameter};
  return &kTable;
}

}  // namespace octavo::selftest
