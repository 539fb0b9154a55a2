// end_step: the next scales from the amax of this step, then cleared accumulators.
#include "layout.h"
#include "plugins/common/product.h"

namespace octavo::te {
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
      status = s->device.kernels().delayed_scale_update(s->device.ctx(), &update);
    } else {
      status = plugin::clear(s->device, c->stream, at[0], pool.count * sizeof(float));
    }
    if (status != OCTAVO_OK) return status;
  }
  return s->emitted.slots == 0 ? OCTAVO_OK
                               : plugin::clear(s->device, c->stream, c->slots[0], sizeof(float));
}

}  // namespace octavo::te
