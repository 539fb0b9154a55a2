/* kernels/cuda/gemm_state.h: what gemm keeps of a device: cuBLASLt and its plans. */
#pragma once

#include <atomic>

#include "kernels/cuda/plan_cache.h"

namespace octavo::cuda {

/* "reference": every product by the kernel of this tree, whose bits are those of kernels/cpu. */
constexpr char kGemmVariable[] = "OCTAVO_CUDA_GEMM";
/* How many algorithms are timed for a plan; 0, as without it: the first is taken unseen. Another
 * number takes OCTAVO_CAPS_DETERMINISTIC from the caps. */
constexpr char kTuneVariable[] = "OCTAVO_CUDA_TUNE";
/* Multiprocessors that products are planned for, where communication needs the rest; 0: all. */
constexpr char kSmVariable[] = "OCTAVO_CUDA_GEMM_SMS";
/* MiB of each call's workspace for cuBLASLt, which leaves out algorithms that want more. */
constexpr char kWorkspaceVariable[] = "OCTAVO_CUDA_GEMM_WORKSPACE";

/* Why a product takes a way that is slower than cuBLASLt's own; each is reported once. */
enum class Detour {
  kForced,    /* OCTAVO_CUDA_GEMM */
  kE5m2,      /* both operands are E5M2, multiplied as bf16 */
  kMixed,     /* operands of two dtypes, multiplied as one */
  kAlignment, /* codes whose sizes or addresses are no multiple of 16 bytes, multiplied as bf16 */
  kBlocks,    /* block scales that this device does not have */
  kRefused,   /* cuBLASLt has no algorithm, or not even 16 rows fit into the workspace */
  kTiles,     /* through f32 tiles, since cuBLASLt lacks the scales, the bias or the output */
  kCount
};

struct GemmState {
  Blas blas;
  PlanCache plans{blas};
  std::atomic<uint32_t> reported{0}; /* bits of Detour */

  GemmState() = default;
  ~GemmState();
  GemmState(const GemmState &) = delete;
  GemmState &operator=(const GemmState &) = delete;
};

/* The state of the context. Its library is opened with the device; where that failed, here, with
 * the reason, but for a stream that is being captured, which opening would invalidate. */
octavo_status gemm_state(Context &context, void *stream, GemmState **out);

/* Tells the host, the first time, which way `c` takes. */
void tell_detour(const Context &context, GemmState &state, Detour detour, const octavo_gemm &c);

}  // namespace octavo::cuda
