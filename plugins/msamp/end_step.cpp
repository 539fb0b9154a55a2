// end_step: the next scales from the amax of this step, the next pre-scale from what saturated in
// the reduction, then cleared accumulators.
#include "linear.h"
#include "plugins/common/product.h"

namespace octavo::msamp {
namespace {

// FP8-LM, arXiv 2310.18313, section 2.2: the share of saturated values that is too much, and a
// growth that doubles in 1,000 steps. One rank's own values never saturate at 1.
constexpr float kSaturatedShare = 1e-5f;
constexpr float kGrowth = 1.000693387f;  // 2^(1/1000)
constexpr float kLow = 1.0f / (1 << 20);
constexpr float kHigh = 1.0f;

octavo_status update_pool(const octavo_session &s, const octavo_step_call &c, const Pool &pool) {
  void *const *slots = c.slots + pool.position;
  auto update = make_call<octavo_delayed_scale_update>(OCTAVO_KIND_DELAYED_SCALE_UPDATE, c.stream);
  update.amax = static_cast<float *>(slots[0]);
  update.history = static_cast<float *>(slots[1]);
  update.scale = static_cast<float *>(slots[2]);
  update.counter = static_cast<float *>(slots[3]);
  update.n = pool.count;
  update.length = s.recipe.amax_history_len;
  update.format_max = pool.format_max;
  update.use_max = 1;
  update.rule = s.recipe.rule();
  return s.device.kernels().delayed_scale_update(s.device.ctx(), &update);
}

octavo_status update_prescale(const octavo_session &s, const octavo_step_call &c) {
  float *saturated = float_at(c.slots, s.saturated);
  float *added = float_at(c.slots, s.added);
  if (s.prescale.position == OCTAVO_NONE) {
    const octavo_status status = plugin::clear(s.device, c.stream, saturated, sizeof(float));
    return status != OCTAVO_OK ? status : plugin::clear(s.device, c.stream, added, sizeof(float));
  }
  auto update = make_call<octavo_prescale_update>(OCTAVO_KIND_PRESCALE_UPDATE, c.stream);
  update.prescale = float_at(c.slots, s.prescale);
  update.saturated = saturated;
  update.added = added;
  update.threshold = kSaturatedShare;
  update.growth = kGrowth;
  update.low = kLow;
  update.high = kHigh;
  return s.device.kernels().prescale_update(s.device.ctx(), &update);
}

}  // namespace

octavo_status end_step(const octavo_session *s, const octavo_step_call *c) {
  if (s->emitted.slots == 0) return OCTAVO_OK;
  for (const Pool &pool : s->pools)
    if (const octavo_status status = update_pool(*s, *c, pool); status != OCTAVO_OK) return status;
  if (const octavo_status status = update_prescale(*s, *c); status != OCTAVO_OK) return status;
  return plugin::clear(s->device, c->stream, at(c->slots, s->nonfinite), sizeof(float));
}

}  // namespace octavo::msamp
