/* kernels/cuda/context.h: what open_device keeps of one CUDA device.
 *
 * A Context never changes after open but for the first error that the device cannot recover from: a
 * process whose device has failed gets that error from every later call, at once.
 */
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <mutex>

#include "kernels/check/verbs.h"
#include "kernels/cuda/device_scope.h"

namespace octavo::cuda {

struct GemmState;

/* What gemm keeps; see gemm_state.h. */
struct GemmSlot {
  std::atomic<GemmState *> state{nullptr}; /* cuBLASLt and its plans, from the first product on */
  std::mutex opening;
  bool is_reference = false;
  int tune_count = 0;
  int sm_target = 0;
  uint64_t workspace = 0; /* bytes for cuBLASLt */
};

struct Context {
  Caller caller = {};
  DeviceLimits limits = {};
  int device = 0;
  int multiprocessors = 1;
  int capability = 0; /* 90 for sm_90 */
  std::atomic<int> failed{cudaSuccess};
  GemmSlot gemm;
};

inline Context &context_of(void *ctx) {
  return *static_cast<Context *>(ctx);
}

/* What an answer of the runtime means to a caller; the text has gone to the host. Errors that the
 * device does not recover from are kept. */
octavo_status checked(Context &context, const char *verb, cudaError_t error);

/* Whether the device has failed before; tells the host so. */
octavo_status refuse_after_failure(Context &context, const char *verb);

/* Reads what the environment asks of gemm, once the rest of the context is known. */
octavo_status open_gemm(Context &context);
/* Ends what gemm keeps. */
void close_gemm(Context &context);

/* Table entries; see octavo/kernels.h. */
octavo_status probe_device(octavo_device device, const octavo_verdict_sink *sink);
octavo_status open_device(octavo_device device, const octavo_host *host, void **ctx);
void close_device(void *ctx);
octavo_status describe(void *ctx, octavo_kernels_caps *out);
octavo_status ability(void *ctx, octavo_ability *question);

}  // namespace octavo::cuda
