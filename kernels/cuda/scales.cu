/* scale_from_amax, delayed_scale_update, gradient_scale and the drafts prescale_update and count.
 */
#include "kernels/check/calls.h"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/scales.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/verbs.h"

namespace octavo::cuda {

octavo_status scale_from_amax(void *ctx, const octavo_scale_from_amax *c) {
  return run_verb<check_scale_from_amax>(ctx, "scale_from_amax", c, [&](Launcher &l) {
    if (c->n == 0) return;
    l.run(dim3(blocks_for(l.context(), divide_up(static_cast<int64_t>(c->n), kThreads))),
          dim3(kThreads), scale_from_amax_kernel, *c);
  });
}

octavo_status delayed_scale_update(void *ctx, const octavo_delayed_scale_update *c) {
  return run_verb<check_delayed_scale_update>(ctx, "delayed_scale_update", c, [&](Launcher &l) {
    if (c->n == 0) return;
    constexpr int kColumns =
        64; /* of a block: few, so that a few hundred columns use many blocks */
    l.run(dim3(blocks_for(l.context(), divide_up(static_cast<int64_t>(c->n), kColumns))),
          dim3(kColumns), delayed_scale_update_kernel, *c);
  });
}

namespace {}  // namespace

octavo_status prescale_update(void *ctx, const octavo_prescale_update *c) {
  return run_verb<check_prescale_update>(ctx, "prescale_update", c, [&](Launcher &l) {
    l.run(dim3(1), dim3(1), prescale_update_kernel, *c);
  });
}

octavo_status count(void *ctx, const octavo_count *c) {
  return run_verb<check_count>(ctx, "count", c,
                               [&](Launcher &l) { l.run(dim3(1), dim3(1), count_kernel, *c); });
}

octavo_status gradient_scale(void *ctx, const octavo_gradient_scale *c) {
  return run_verb<check_gradient_scale>(ctx, "gradient_scale", c, [&](Launcher &l) {
    octavo_gradient_scale call = *c;
    call.grad_scale = nullptr; /* a list of the host's, whose addresses go in `to` */
    uint64_t first = 0;
    do {
      GradientScales to = {};
      while (to.count < kGradientScales && first < c->count)
        to.at[to.count++] = c->grad_scale[first++];
      l.run(dim3(1), dim3(kGradientScales), gradient_scale_kernel, call, to);
    } while (first < c->count);
  });
}

}  // namespace octavo::cuda
