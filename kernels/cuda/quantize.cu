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

/* Dense matrices of one scale are one row, which has no ends inside. */
struct AsRow {
  octavo_quantize call;
  octavo_tensor in;
  octavo_tensor out;

  explicit AsRow(const octavo_quantize &c) : call(c), in(*c.in) {
    if (has_row_scales(c) || is_block_scaled(c) || c.out_t != nullptr || !is_dense(in)) return;
    if (c.out != nullptr) {
      if (!is_dense(*c.out) || c.out->rows != in.rows || c.out->cols != in.cols) return;
      out = as_row(*c.out);
      call.out = &out;
    }
    in = as_row(in);
    call.in = &in;
  }
  AsRow(const AsRow &) = delete;
  AsRow &operator=(const AsRow &) = delete;
};

octavo_status check_with_workspace(const Caller &caller, const octavo_quantize *c,
                                   const DeviceLimits &limits) {
  const octavo_status status = check_quantize(caller, c, limits);
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
    const AsRow row(*c);
    with_any(row.in.dtype, [&](auto format) {
      launch_quantize(l, row.call, tensor_source<decltype(format)>(row.in, c->in_scale_inv));
    });
  });
}

octavo_status compute_amax(void *ctx, const octavo_compute_amax *c) {
  return run_verb<check_compute_amax>(ctx, "compute_amax", c, [&](Launcher &l) {
    if (c->in->rows == 0 || c->in->cols == 0) return;
    const octavo_tensor in = is_dense(*c->in) ? as_row(*c->in) : *c->in;
    const float *factor = scale_inv_of(c->in_scale_inv);
    with_any(in.dtype, [&](auto format) {
      launch_measure(l, tensor_source<decltype(format)>(in, factor), in, factor, TensorScale{},
                     static_cast<Stats *>(nullptr), Accumulators{c->amax, c->nonfinite});
    });
  });
}

}  // namespace octavo::cuda
