/* dequantize, quantize_stats, copy, scale_values and the draft round_codes. */
#include "kernels/check/calls.h"
#include "kernels/cuda/device/dequantize.cuh"
#include "kernels/cuda/device/round_codes.cuh"
#include "kernels/cuda/device/scales.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/verbs.h"
#include "kernels/cuda/walk.h"

namespace octavo::cuda {
namespace {

ScaleInv scale_inv_at(const octavo_scale *s) {
  if (s == nullptr) return {nullptr, 0, OCTAVO_PER_TENSOR};
  return {s->data, s->stride, s->granularity};
}

/* Scales that do not depend on the row, or count elements in the order of rows. */
bool may_be_one_row(const octavo_dequantize &c) {
  return (c.scale_inv == nullptr || c.scale_inv->granularity == OCTAVO_PER_TENSOR ||
          c.scale_inv->granularity == OCTAVO_FLAT_256) &&
         is_dense(*c.in) && is_dense(*c.out);
}

/* The kernel for packs of kWide elements, if they fit: the matrices, and one scale a pack. */
bool launch_wide(Launcher &l, const octavo_dequantize &c) {
  const bool is_row = may_be_one_row(c);
  const ScaleInv scale = scale_inv_at(c.scale_inv);
  if (scale.granularity == OCTAVO_EXPANDED_128) return false;
  if (scale.granularity == OCTAVO_FLAT_256 && !is_row) return false;
  const octavo_tensor from = is_row ? as_row(*c.in) : *c.in;
  const octavo_tensor to = is_row ? as_row(*c.out) : *c.out;
  if (!is_wide(from) || !is_wide(to)) return false;
  const Walk walk = walk_of(l.context(), {from.rows, from.cols}, kWide);
  with_any(from.dtype, [&](auto in) {
    with_plain(to.dtype, [&](auto out) {
      using In = decltype(in);
      using Out = decltype(out);
      l.run(walk.blocks, walk.threads, dequantize_wide_kernel<In, Out>,
            WideMatrix<In>{static_cast<typename In::Stored *>(from.data), from.stride}, scale,
            WideMatrix<Out>{static_cast<typename Out::Stored *>(to.data), to.stride}, from.rows,
            from.cols, c.accumulate != 0);
    });
  });
  return true;
}

}  // namespace

octavo_status dequantize(void *ctx, const octavo_dequantize *c) {
  return run_verb<check_dequantize>(ctx, "dequantize", c, [&](Launcher &l) {
    const int64_t count = c->in->rows * c->in->cols;
    if (count == 0 || launch_wide(l, *c)) return;
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

octavo_status round_codes(void *ctx, const octavo_round_codes *c) {
  return run_verb<check_round_codes>(ctx, "round_codes", c, [&](Launcher &l) {
    const int64_t tiles = divide_up(c->in->rows, kRoundTile) * divide_up(c->in->cols, kRoundTile);
    if (tiles == 0) return;
    const octavo_tensor &codes = *c->codes;
    l.run(dim3(blocks_for(l.context(), tiles)), dim3(kRoundTile, kRoundRows), round_codes_kernel,
          RoundCodes{any_tensor(*c->in), static_cast<uint8_t *>(codes.data), codes.stride,
                     scale_inv_at(c->scale_inv), c->count, c->key, codes.dtype == OCTAVO_E4M3FN,
                     c->is_transposed != 0});
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
