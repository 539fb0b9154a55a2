/* quantize and compute_amax. */
#include "kernels/cuda/device/states.cuh"
#include "kernels/cuda/quantize_launch.cuh"
#include "kernels/cuda/verbs.h"

namespace octavo::cuda {
namespace {

void launch_state(Launcher &l, const octavo_quantize &c) {
  const int64_t count = c.in->rows * c.in->cols;
  if (count == 0) return;
  const StateScales scales = {static_cast<float *>(c.out_scale_inv->data),
                              c.out_scale_inv->granularity};
  l.run(dim3(blocks_for(l.context(), divide_up(count, kStateBlock * kWarps))), dim3(kThreads),
        quantize_state_kernel, any_tensor(as_row(*c.in)), c.in_scale_inv,
        any_tensor(as_row(*c.out)), scales, keeps_positive(c),
        is_aligned_to(16, {c.in->data, c.out->data}), c.amax, c.nonfinite);
}

octavo_status check_with_workspace(const Caller &caller, const octavo_quantize *c) {
  const octavo_status status = check_quantize(caller, c);
  if (status != OCTAVO_OK) return status;
  const bool casts = c->out != nullptr || c->out_t != nullptr;
  const bool measures = casts && c->rule != OCTAVO_RULE_GIVEN && !is_state_scaled(*c) &&
                        !has_row_scales(*c) && !is_block_scaled(*c);
  if (!measures || c->workspace != nullptr) return OCTAVO_OK;
  return refuse_null_workspace(caller, "quantize", quantize_workspace());
}

}  // namespace

uint64_t quantize_workspace() {
  return kMostParts * sizeof(Stats);
}

octavo_status quantize(void *ctx, const octavo_quantize *c) {
  return run_verb<check_with_workspace>(ctx, "quantize", c, [&](Launcher &l) {
    if (is_state_scaled(*c)) return launch_state(l, *c);
    with_any(c->in->dtype, [&](auto format) {
      launch_quantize(l, *c, tensor_source<decltype(format)>(*c->in, c->in_scale_inv));
    });
  });
}

octavo_status compute_amax(void *ctx, const octavo_compute_amax *c) {
  return run_verb<check_compute_amax>(ctx, "compute_amax", c, [&](Launcher &l) {
    const int64_t quads = c->in->rows * divide_up(c->in->cols, kQuad);
    if (quads == 0) return;
    with_any(c->in->dtype, [&](auto format) {
      using Source = TensorSource<decltype(format)>;
      l.run(dim3(blocks_for(l.context(), divide_up(quads, kThreads))), dim3(kThreads),
            measure_kernel<Source>,
            tensor_source<decltype(format)>(*c->in, scale_inv_of(c->in_scale_inv)), TensorScale{},
            static_cast<Stats *>(nullptr), Accumulators{c->amax, c->nonfinite});
    });
  });
}

}  // namespace octavo::cuda
