// end_step: the next scales from the amax of this step, then cleared accumulators.
#include "layout.h"

namespace octavo::te {
namespace {

octavo_status clear(const octavo_session &s, void *stream, void *out, uint64_t count) {
  auto fill = make_call<octavo_copy>(OCTAVO_KIND_COPY, stream);
  fill.out = out;
  fill.bytes = count * sizeof(float);
  return s.kernels().copy(s.desc.kernels_ctx, &fill);
}

}  // namespace

octavo_status end_step(const octavo_session *s, const octavo_step_call *c) {
  for (const Pool &pool : s->pools) {
    void *const *at = c->slots + pool.position;
    octavo_status status = OCTAVO_OK;
    if (s->delayed()) {
      auto update =
          make_call<octavo_delayed_scale_update>(OCTAVO_KIND_DELAYED_SCALE_UPDATE, c->stream);
      update.amax = static_cast<float *>(at[0]);
      update.history = static_cast<float *>(at[1]);
      update.scale = static_cast<float *>(at[2]);
      update.n = pool.count;
      update.length = s->recipe.amax_history_len;
      update.format_max = pool.format_max;
      update.margin = s->recipe.margin;
      update.use_max = s->recipe.use_max ? 1 : 0;
      update.rule = s->recipe.rule;
      status = s->kernels().delayed_scale_update(s->desc.kernels_ctx, &update);
    } else {
      status = clear(*s, c->stream, at[0], pool.count);
    }
    if (status != OCTAVO_OK) return status;
  }
  return s->slot_count == 0 ? OCTAVO_OK : clear(*s, c->stream, c->slots[0], 1);
}

}  // namespace octavo::te
