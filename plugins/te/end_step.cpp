// end_step: the next scales from the amax of this step, then cleared accumulators.
#include "layout.h"
#include "plugins/common/product.h"

namespace octavo::te {
namespace {

octavo_status update_scales(const octavo_session &s, const octavo_step_call &c, const Pool &pool) {
  auto update = make_call<octavo_delayed_scale_update>(OCTAVO_KIND_DELAYED_SCALE_UPDATE, c.stream);
  update.amax = float_at(c.slots, pool.amax);
  update.history = float_at(c.slots, pool.amax + 1);
  update.scale = float_at(c.slots, pool.amax + 2);
  update.n = pool.count;
  update.length = s.recipe.amax_history_len;
  update.format_max = pool.format_max;
  update.margin = s.recipe.margin;
  update.use_max = s.recipe.use_max ? 1 : 0;
  update.rule = s.recipe.rule;
  return s.device.kernels().delayed_scale_update(s.device.ctx(), &update);
}

octavo_status clear(const octavo_session &s, const octavo_step_call &c, Position position,
                    uint64_t count) {
  float *address = float_at(c.slots, position);
  return address == nullptr ? OCTAVO_OK
                            : plugin::clear(s.device, c.stream, address, count * sizeof(float));
}

}  // namespace

octavo_status end_step(const octavo_session *s, const octavo_step_call *c) {
  for (const Pool &pool : s->pools) {
    octavo_status status =
        s->recipe.delayed() ? update_scales(*s, *c, pool) : clear(*s, *c, pool.amax, pool.count);
    for (const Position statistic : pool.statistics)
      if (status == OCTAVO_OK) status = clear(*s, *c, statistic, pool.count);
    if (status != OCTAVO_OK) return status;
  }
  return s->emitted.slots == 0 ? OCTAVO_OK : clear(*s, *c, 0, 1);
}

}  // namespace octavo::te
