/* sum_quantized, sum_rows and sum_of_squares. */
#include "kernels/cuda/device/sums.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/verbs.h"

namespace octavo::cuda {
namespace {

const float *factor_of(const octavo_scale *s) {
  return s == nullptr ? nullptr : static_cast<const float *>(s->data);
}

/* The slot of the stream, or an error that says why there is none. */
octavo_status find_scratch(Context &context, const char *verb, void *stream, Scratch **out) {
  *out = scratch_of(context, stream);
  if (*out != nullptr) return OCTAVO_OK;
  return report_error(context.caller, OCTAVO_RESOURCE,
                      "%s: expected at most %d streams for one opened device, found one more; use "
                      "fewer streams",
                      verb, kScratchSlots);
}

}  // namespace

octavo_status sum_quantized(void *ctx, const octavo_sum_quantized *c) {
  Context &context = context_of(ctx);
  octavo_status status = check_sum_quantized(context.caller, c);
  if (status == OCTAVO_OK) status = refuse_after_failure(context, "sum_quantized");
  if (status != OCTAVO_OK) return status;
  const bool counts = c->saturated != nullptr || c->added != nullptr;
  Scratch *scratch = nullptr;
  if (counts) status = find_scratch(context, "sum_quantized", c->stream, &scratch);
  if (status != OCTAVO_OK) return status;
  const auto count = static_cast<int64_t>(c->count);
  const unsigned wanted = blocks_for(context, divide_up(count, kThreads));
  const unsigned blocks = wanted < kScratchParts ? wanted : kScratchParts;
  const CodeSum call = {c->codes,
                        c->out,
                        count,
                        static_cast<int64_t>(c->shards),
                        static_cast<int64_t>(c->shard_stride),
                        counts ? scratch->counts : nullptr};
  Launcher l(context, "sum_quantized", c->stream);
  if (c->dtype == OCTAVO_E4M3FN) {
    l.run(dim3(blocks), dim3(kThreads), sum_quantized_kernel<E4m3>, call, kMaxE4m3);
  } else {
    l.run(dim3(blocks), dim3(kThreads), sum_quantized_kernel<E5m2>, call, kMaxE5m2);
  }
  if (counts)
    l.run(dim3(1), dim3(1), count_outside_kernel, static_cast<const uint64_t *>(scratch->counts),
          static_cast<int>(blocks), count, c->count_as == 0.0f ? 1.0f : c->count_as, c->saturated,
          c->added);
  return l.status();
}

octavo_status sum_rows(void *ctx, const octavo_sum *c) {
  return run_verb(ctx, "sum_rows", c, check_sum_rows, [&](Launcher &l) {
    if (c->in->cols == 0) return;
    constexpr int kColumns = 64;
    l.run(dim3(blocks_for(l.context(), divide_up(c->in->cols, kColumns))), dim3(kColumns),
          sum_rows_kernel, any_tensor(*c->in), factor_of(c->in_scale_inv),
          static_cast<float *>(c->out), c->accumulate != 0);
  });
}

octavo_status sum_of_squares(void *ctx, const octavo_sum *c) {
  Context &context = context_of(ctx);
  octavo_status status = check_sum_of_squares(context.caller, c);
  if (status == OCTAVO_OK) status = refuse_after_failure(context, "sum_of_squares");
  Scratch *scratch = nullptr;
  if (status == OCTAVO_OK) status = find_scratch(context, "sum_of_squares", c->stream, &scratch);
  if (status != OCTAVO_OK) return status;
  Launcher l(context, "sum_of_squares", c->stream);
  l.run(dim3(kSquareBlocks), dim3(kSquareParts), squares_kernel, any_tensor(*c->in),
        factor_of(c->in_scale_inv), scratch->sums);
  l.run(dim3(1), dim3(1), add_squares_kernel, static_cast<const double *>(scratch->sums),
        static_cast<float *>(c->out));
  return l.status();
}

}  // namespace octavo::cuda
