/* sum_quantized, sum_rows and sum_of_squares. */
#include "kernels/cuda/device/sums.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/verbs.h"

namespace octavo::cuda {
namespace {

const float *factor_of(const octavo_scale *s) {
  return s == nullptr ? nullptr : static_cast<const float *>(s->data);
}

/* The slot of the stream; where there is none, the verb has failed and says why. */
Scratch *find_scratch(Launcher &l, const char *verb, void *stream) {
  Scratch *found = scratch_of(l.context(), stream);
  if (found == nullptr) {
    l.fail(
        report_error(l.context().caller, OCTAVO_RESOURCE,
                     "%s: expected at most %d streams for one opened device, found one more; use "
                     "fewer streams",
                     verb, kScratchSlots));
  }
  return found;
}

}  // namespace

octavo_status sum_quantized(void *ctx, const octavo_sum_quantized *c) {
  return run_verb<check_sum_quantized>(ctx, "sum_quantized", c, [&](Launcher &l) {
    const bool counts = c->saturated != nullptr || c->added != nullptr;
    Scratch *scratch = counts ? find_scratch(l, "sum_quantized", c->stream) : nullptr;
    if (l.status() != OCTAVO_OK) return;
    const auto count = static_cast<int64_t>(c->count);
    const unsigned wanted = blocks_for(l.context(), divide_up(count, kThreads));
    const unsigned blocks = wanted < kScratchParts ? wanted : kScratchParts;
    const CodeSum call = {c->codes,
                          c->out,
                          count,
                          static_cast<int64_t>(c->shards),
                          static_cast<int64_t>(c->shard_stride),
                          counts ? scratch->counts : nullptr};
    if (c->dtype == OCTAVO_E4M3FN) {
      l.run(dim3(blocks), dim3(kThreads), sum_quantized_kernel<E4m3>, call, kMaxE4m3);
    } else {
      l.run(dim3(blocks), dim3(kThreads), sum_quantized_kernel<E5m2>, call, kMaxE5m2);
    }
    if (counts)
      l.run(dim3(1), dim3(1), count_outside_kernel, static_cast<const uint64_t *>(scratch->counts),
            static_cast<int>(blocks), count, c->count_as == 0.0f ? 1.0f : c->count_as, c->saturated,
            c->added);
  });
}

octavo_status sum_rows(void *ctx, const octavo_sum *c) {
  return run_verb<check_sum_rows>(ctx, "sum_rows", c, [&](Launcher &l) {
    if (c->in->cols == 0) return;
    constexpr int kColumns = 64;
    l.run(dim3(blocks_for(l.context(), divide_up(c->in->cols, kColumns))), dim3(kColumns),
          sum_rows_kernel, any_tensor(*c->in), factor_of(c->in_scale_inv),
          static_cast<float *>(c->out), c->accumulate != 0);
  });
}

octavo_status sum_of_squares(void *ctx, const octavo_sum *c) {
  return run_verb<check_sum_of_squares>(ctx, "sum_of_squares", c, [&](Launcher &l) {
    Scratch *scratch = find_scratch(l, "sum_of_squares", c->stream);
    if (scratch == nullptr) return;
    l.run(dim3(kSquareBlocks), dim3(kSquareParts), squares_kernel, any_tensor(*c->in),
          factor_of(c->in_scale_inv), scratch->sums);
    l.run(dim3(1), dim3(1), add_squares_kernel, static_cast<const double *>(scratch->sums),
          static_cast<float *>(c->out));
  });
}

}  // namespace octavo::cuda
