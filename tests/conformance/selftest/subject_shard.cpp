// octavo.shard/1 of the subject: a packet is the codes of a rank's rows and their scale_inv.
#include <algorithm>
#include <cstring>

#include "subject_session.h"

namespace octavo::selftest {
namespace {

const octavo_parameter_desc *weight_of(const octavo_session *s, uint32_t parameter, int64_t rows) {
  const size_t known = s->fault == kShardPlansEarly ? s->parameters.size() : s->sealed_parameters;
  if (parameter >= known || rows < 1) return nullptr;
  const octavo_parameter_desc &w = s->parameters[parameter].desc;
  return (w.flags & OCTAVO_PARAMETER_LINEAR_WEIGHT) != 0 ? &w : nullptr;
}

// Where scale_inv is in a packet; the codes are in front of it.
int64_t codes_bytes(const octavo_parameter_desc &w, int64_t rows) {
  return round_up(std::min(rows, w.rows) * w.cols, OCTAVO_ALIGNMENT);
}

octavo_quantize quantize_call(const octavo_tensor *in) {
  octavo_quantize q{};
  q.size = sizeof q;
  q.kind = OCTAVO_KIND_QUANTIZE;
  q.in = in;
  q.format_max = kE4m3Max;
  q.rule = OCTAVO_RULE_GIVEN;
  return q;
}

void look(const octavo_session *s, const octavo_tensor &in, void *amax, void *nonfinite = nullptr) {
  octavo_quantize q = quantize_call(&in);
  q.amax = static_cast<float *>(amax);
  q.nonfinite = static_cast<float *>(nonfinite);
  s->kernels->quantize(s->ctx, &q);
}

octavo_status plan(const octavo_session *s, octavo_shard_plan *plan) {
  const octavo_parameter_desc *w = weight_of(s, plan->parameter, plan->rows);
  if (w == nullptr || plan->reserved != 0) return subject_refuse(s);
  if (s->fault == kShardRefusesOneRank && plan->rows >= w->rows) {
    subject_report(s->host, OCTAVO_UNSUPPORTED);
    return OCTAVO_UNSUPPORTED;
  }
  if (s->fault == kShardRefusesSilently && plan->rows == 7) return OCTAVO_UNSUPPORTED;
  plan->packet_bytes = static_cast<uint64_t>(codes_bytes(*w, plan->rows)) + OCTAVO_ALIGNMENT;
  if (s->fault == kShardPlansAnew)
    plan->packet_bytes += OCTAVO_ALIGNMENT * static_cast<uint64_t>(s->calls++ % 2);
  plan->cast_workspace = 0;
  plan->place_workspace = sizeof(float);
  return OCTAVO_OK;
}

octavo_status measure(const octavo_session *s, const octavo_shard_call *c) {
  if (weight_of(s, c->parameter, c->rows) == nullptr) return OCTAVO_INVALID;
  if (s->fault == kShardMeasuresAnew) {
    octavo_copy zero{};
    zero.size = sizeof zero;
    zero.kind = OCTAVO_KIND_COPY;
    zero.out = c->amax;
    zero.bytes = sizeof(float);
    s->kernels->copy(s->ctx, &zero);
  }
  look(s, *c->shard, c->amax);
  return OCTAVO_OK;
}

octavo_status cast(const octavo_session *s, const octavo_shard_call *c) {
  const octavo_parameter_desc *w = weight_of(s, c->parameter, c->rows);
  if (w == nullptr) return OCTAVO_INVALID;
  auto *packet = static_cast<uint8_t *>(c->packet);
  if (c->shard->rows == 0) {
    octavo_copy zero{};
    zero.size = sizeof zero;
    zero.kind = OCTAVO_KIND_COPY;
    zero.out = packet;
    zero.bytes = s->fault == kShardClearsEmpty ? 1 : 0;
    s->kernels->copy(s->ctx, &zero);
    return OCTAVO_OK;
  }
  octavo_tensor out = {packet, c->shard->rows, w->cols, w->cols, OCTAVO_E4M3FN, 0};
  const octavo_scale scale_inv = OCTAVO_SCALE(packet + codes_bytes(*w, c->rows), 0, OCTAVO_F32, 0);
  octavo_quantize q = quantize_call(c->shard);
  q.out = &out;
  q.out_scale_inv = &scale_inv;
  q.scale = static_cast<const float *>(c->slots[kWScale]);
  q.nonfinite = static_cast<float *>(c->slots[kOwnNonfinite]);
  if (s->fault == kShardOwnScale) q.rule = OCTAVO_RULE_QUOTIENT;
  s->kernels->quantize(s->ctx, &q);
  const octavo_tensor amax = {c->amax, 1, 1, 1, OCTAVO_F32, 0};
  if (s->fault == kShardFlagsOthers) look(s, amax, nullptr, q.nonfinite);
  return OCTAVO_OK;
}

octavo_status place(const octavo_session *s, const octavo_gathered_call *c) {
  const octavo_parameter_desc *w = weight_of(s, c->parameter, c->rows);
  if (w == nullptr) return OCTAVO_INVALID;
  const int64_t packets = (w->rows + c->rows - 1) / c->rows;
  if (packets > c->world && s->fault != kShardTooFew) return OCTAVO_INVALID;
  const int64_t n = round_up(w->rows, s->alignment), k = round_up(w->cols, s->alignment);
  const int64_t bytes = codes_bytes(*w, c->rows) + OCTAVO_ALIGNMENT;
  const auto *data = static_cast<const uint8_t *>(c->packets);
  const octavo_scale one = OCTAVO_SCALE(c->workspace, 0, OCTAVO_F32, 0);
  for (int64_t i = 0; i < std::min<int64_t>(packets, c->world); ++i) {
    const int64_t first = i * c->rows, own = std::min(c->rows, w->rows - first);
    const int64_t at = s->fault == kShardReversed ? packets - 1 - i : i;
    const int64_t room = i == packets - 1 && s->fault != kShardNoPadding ? n - first : own;
    const octavo_tensor in = {
        const_cast<uint8_t *>(data + at * bytes), own, w->cols, w->cols, OCTAVO_E4M3FN, 0};
    octavo_tensor out = {
        static_cast<uint8_t *>(c->slots[kOwnCache]) + first * k, room, k, k, OCTAVO_E4M3FN, 0};
    octavo_tensor out_t = {
        static_cast<uint8_t *>(c->slots[kOwnCacheT]) + first, k, room, n, OCTAVO_E4M3FN, 0};
    octavo_quantize q = quantize_call(&in);
    q.out = &out;
    q.out_t = &out_t;
    q.out_scale_inv = &one;
    s->kernels->quantize(s->ctx, &q);
  }
  octavo_copy copy{};
  copy.size = sizeof copy;
  copy.kind = OCTAVO_KIND_COPY;
  copy.in = data + codes_bytes(*w, c->rows);
  copy.out = c->slots[kOwnCacheInv];
  copy.bytes = sizeof(float);
  if (s->fault == kShardCopiesOnHost)
    std::memcpy(copy.out, copy.in, sizeof(float));
  else
    s->kernels->copy(s->ctx, &copy);
  const octavo_tensor amax = {const_cast<float *>(c->amax), 1, 1, 1, OCTAVO_F32, 0};
  if (s->fault != kShardRecordsNothing) look(s, amax, c->slots[kWAmax]);
  if (s->fault == kShardPlaceFlags) look(s, amax, nullptr, c->slots[kOwnNonfinite]);
  return OCTAVO_OK;
}

}  // namespace

const octavo_shard *subject_shard() {
  static const octavo_shard kTable = {
      sizeof(octavo_shard), OCTAVO_KIND_SHARD, plan, measure, cast, place};
  return &kTable;
}

}  // namespace octavo::selftest
