/* dequantize, quantize_stats, copy and scale_values. */
#include "kernels/check/calls.h"
#include "kernels/cuda/device/dequantize.cuh"
#include "kernels/cuda/device/scales.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/verbs.h"

namespace octavo::cuda {
namespace {

ScaleInv scale_inv_at(const octavo_scale *s) {
  if (s == nullptr) return {nullptr, 0, OCTAVO_PER_TENSOR};
  return {s->data, s->stride, s->granularity};
}

}  // namespace

octavo_status dequantize(void *ctx, const octavo_dequantize *c) {
  return run_verb<check_dequantize>(ctx, "dequantize", c, [&](Launcher &l) {
    const int64_t count = c->in->rows * c->in->cols;
    if (count == 0) return;
    l.run(dim3(blocks_for(l.context(), divide_up(count, kThreads))), dim3(kThreads),
          dequantize_kernel, any_tensor(*c->in), scale_inv_at(c->scale_inv), any_tensor(*c->out),
          c->accumulate != 0);
  });
}

octavo_status quantize_stats(void *ctx, const octavo_quantize_stats *c) {
  return run_verb<check_quantize_stats>(ctx, "quantize_stats", c, [&](Launcher &l) {
    l.run(dim3(1), dim3(kStatsParts), quantize_stats_kernel, any_tensor(*c->in),
          any_tensor(*c->codes), scale_inv_at(c->scale_inv), largest_of(c->codes->dtype),
          StatsTargets{c->saturated, c->underflow, c->signal, c->noise});
  });
}

octavo_status copy(void *ctx, const octavo_copy *c) {
  return run_verb<check_copy>(ctx, "copy", c, [&](Launcher &l) {
    if (c->in == nullptr) {
      l.clear(c->out, c->bytes);
    } else {
      l.copy(c->out, c->in, c->bytes);
    }
  });
}

octavo_status scale_values(void *ctx, const octavo_scale_values *c) {
  return run_verb<check_scale_values>(ctx, "scale_values", c, [&](Launcher &l) {
    if (c->n == 0) return;
    l.run(dim3(blocks_for(l.context(), divide_up(static_cast<int64_t>(c->n), kThreads))),
          dim3(kThreads), scale_values_kernel, *c);
  });
}

}  // namespace octavo::cuda
