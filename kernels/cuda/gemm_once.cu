/* One call of cuBLASLt: its plan, and its operands. */
#include <cstdio>

#include "kernels/cuda/gemm.h"

namespace octavo::cuda {
namespace {

/* The address as a multiple of a power of two. */
uint8_t alignment_of(const void *pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  uint8_t power = 0;
  while (power < kMostAlignment && address % (uintptr_t{2} << power) == 0) ++power;
  return power;
}

PlanKey key_of(const Context &context, const octavo_gemm &c, const Scaling &scaling) {
  const GemmShape shape = gemm_shape(c);
  const bool is_blocks = has_blocks(c.a_scale_inv);
  PlanKey key = {};
  key.m = shape.m;
  key.n = shape.n;
  key.k = shape.k;
  key.a_stride = c.a->stride;
  key.b_stride = c.b->stride;
  key.d_stride = c.d->stride;
  key.workspace = context.gemm.workspace;
  key.a_dtype = c.a->dtype;
  key.b_dtype = c.b->dtype;
  key.d_dtype = c.d->dtype;
  key.bias_dtype = c.bias == nullptr ? 0 : c.bias->dtype;
  key.a_scaling = scaling.a;
  key.b_scaling = scaling.b;
  key.sm_target = context.gemm.sm_target;
  key.layout = c.layout;
  key.accumulates = c.accumulate != 0;
  key.is_fast = c.fast_accumulation != 0 && OCTAVO_DTYPE_BITS(c.a->dtype) == 8 && !is_blocks;
  key.a_alignment = alignment_of(c.a->data);
  key.b_alignment = alignment_of(c.b->data);
  key.d_alignment = alignment_of(c.d->data);
  key.bias_alignment = c.bias == nullptr ? uint8_t{0} : alignment_of(c.bias->data);
  return key;
}

/* Where the library failed, with all that it was asked. */
octavo_status checked_call(const Launcher &l, const GemmState &state, const char *what,
                           const PlanKey &key, cublasStatus_t answer) {
  if (answer == CUBLAS_STATUS_SUCCESS) return OCTAVO_OK;
  char text[320];
  std::snprintf(text, sizeof(text),
                "%s M = %lld, N = %lld, K = %lld, a 0x%x stride %lld, b 0x%x stride %lld, d 0x%x "
                "stride %lld, bias 0x%x, scale modes %d %d, layout %u, accumulate %u, alignment "
                "2^%u %u %u %u, %llu bytes of workspace",
                what, static_cast<long long>(key.m), static_cast<long long>(key.n),
                static_cast<long long>(key.k), key.a_dtype, static_cast<long long>(key.a_stride),
                key.b_dtype, static_cast<long long>(key.b_stride), key.d_dtype,
                static_cast<long long>(key.d_stride), key.bias_dtype, key.a_scaling, key.b_scaling,
                key.layout, unsigned{key.accumulates}, unsigned{key.a_alignment},
                unsigned{key.b_alignment}, unsigned{key.d_alignment}, unsigned{key.bias_alignment},
                static_cast<unsigned long long>(key.workspace));
  return checked(l.context(), state.blas, text, answer);
}

/* Timing writes d several times: where d is added to, into the tile instead. What a graph captures
 * is never timed. */
Tuning tuning_of(const Context &context, const octavo_gemm &c, const Operands &operands,
                 const GemmWorkspace &workspace) {
  Tuning tuning = {0, operands};
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  if (context.gemm.tune_count == 0 ||
      cudaStreamIsCapturing(operands.stream, &capture) != cudaSuccess ||
      capture != cudaStreamCaptureStatusNone)
    return tuning;
  if (c.accumulate != 0) {
    const int64_t bytes = c.d->rows * c.d->stride * dtype_bytes(c.d->dtype);
    if (static_cast<uint64_t>(bytes) > workspace.tile_bytes) return tuning;
    tuning.operands.d = workspace.tile;
  }
  tuning.count = context.gemm.tune_count;
  return tuning;
}

}  // namespace

Outcome multiply_once(Launcher &l, GemmState &state, const octavo_gemm &c, const Scaling &scaling,
                      const GemmWorkspace &workspace, octavo_status *status) {
  const ScalePointers scales = arrange_scales(l, c, scaling, workspace);
  *status = l.status();
  if (*status != OCTAVO_OK) return Outcome::kFailed;
  Operands operands = {};
  operands.a = c.a->data;
  operands.b = c.b->data;
  operands.c = c.d->data;
  operands.d = c.d->data;
  operands.a_scale = scales.a;
  operands.b_scale = scales.b;
  operands.bias = c.bias == nullptr ? nullptr : c.bias->data;
  operands.workspace = workspace.blas;
  operands.stream = static_cast<cudaStream_t>(c.stream);
  const PlanKey key = key_of(l.context(), c, scaling);
  PlanCache::Lease lease;
  cublasStatus_t answer =
      state.plans.take(key, tuning_of(l.context(), c, operands, workspace), &lease);
  *status = checked_call(l, state, "planning", key, answer);
  if (*status != OCTAVO_OK) return Outcome::kFailed;
  const Plan &plan = PlanCache::plan_of(lease);
  const bool is_possible = plan.is_possible;
  if (is_possible) answer = multiply(state.blas, key, plan, lease.descriptor, operands);
  state.plans.give_back(lease);
  /* Some calls are refused only here, before anything runs. */
  if (!is_possible || answer == CUBLAS_STATUS_NOT_SUPPORTED) return Outcome::kImpossible;
  *status = checked_call(l, state, "multiplying", key, answer);
  return *status == OCTAVO_OK ? Outcome::kDone : Outcome::kFailed;
}

}  // namespace octavo::cuda
