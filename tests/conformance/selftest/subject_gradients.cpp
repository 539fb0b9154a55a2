// octavo.gradients/1 of the subject: f32 gradients, added up by the host's collective.
//
// Two stages: all gradients of the bucket one behind the other into send, then the sum over ranks
// times 1 / W back into them.
#include <cstring>

#include "subject_session.h"

namespace octavo::selftest {
namespace {

uint64_t elements(const octavo_session *s, uint32_t parameter) {
  const octavo_parameter_desc &d = s->parameters[parameter].desc;
  return static_cast<uint64_t>(d.rows * d.cols);
}

octavo_status plan_reduction(const octavo_session *s, octavo_gradient_plan *plan) {
  uint64_t count = 0;
  for (uint64_t i = 0; i < plan->count; ++i) {
    if (plan->parameters[i] >= s->sealed_parameters) return OCTAVO_INVALID;
    count += elements(s, plan->parameters[i]);
  }
  plan->state_bytes = 0;
  if (plan->world == 1) return OCTAVO_OK;
  octavo_gradient_stage stage{};
  stage.size = sizeof stage;
  stage.kind = OCTAVO_KIND_GRADIENT_STAGE;
  stage.collective = OCTAVO_COLLECTIVE_ALL_REDUCE_SUM;
  stage.dtype = OCTAVO_F32;
  stage.send_count = count;
  stage.recv_count = count;
  octavo_status status = plan->stage(plan->ctx, &stage);
  stage.collective = OCTAVO_COLLECTIVE_NONE;
  stage.send_count = 0;
  stage.recv_count = 0;
  const int more = s->fault == kPlansAnew ? s->calls++ : 0;
  for (int i = 0; i <= more && status == OCTAVO_OK; ++i) status = plan->stage(plan->ctx, &stage);
  return status;
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

void gather(const octavo_session *s, const octavo_gradient_call *c) {
  auto *out = static_cast<float *>(c->send);
  for (uint64_t i = 0; i < c->count; ++i) {
    const uint64_t n = elements(s, c->items[i].parameter);
    const uint64_t missing = s->fault == kForgetsSent && i + 1 == c->count ? 1 : 0;
    const void *gradient = c->items[i].slots[kGradient];
    if (s->fault == kReducesOnHost) {
      std::memcpy(out, gradient, n * sizeof(float));
    } else {
      copy(s, out, gradient, (n - missing) * sizeof(float));
    }
    out += n;
  }
}

void scatter(const octavo_session *s, const octavo_gradient_call *c) {
  const auto *in = static_cast<const float *>(c->recv);
  for (uint64_t i = 0; i < c->count; ++i) {
    const uint64_t n = elements(s, c->items[i].parameter);
    octavo_scale_values v{};
    v.size = sizeof v;
    v.kind = OCTAVO_KIND_SCALE_VALUES;
    auto *gradient = static_cast<float *>(c->items[i].slots[kGradient]);
    v.out = s->fault == kWritesRecv ? const_cast<float *>(in) : gradient;
    v.in = in;
    v.n = n;
    v.factor = s->fault == kSumsWithoutMean ? 1 : 1 / static_cast<float>(c->world);
    if (i > 0 || s->fault != kKeepsOwnGradient)
      s->tables.get<octavo_msamp_kernels>()->scale_values(s->ctx, &v);
    if (s->fault == kWritesRecv) copy(s, gradient, in, n * sizeof(float));
    in += n;
  }
}

octavo_status run_stage(const octavo_session *s, const octavo_gradient_call *c) {
  if (c->stage == 0) gather(s, c);
  if (c->stage == 1) scatter(s, c);
  return OCTAVO_OK;
}

}  // namespace

const octavo_gradients *subject_gradients() {
  static const octavo_gradients kTable = {sizeof(octavo_gradients), OCTAVO_KIND_GRADIENTS,
                                          plan_reduction, run_stage};
  return &kTable;
}

}  // namespace octavo::selftest
