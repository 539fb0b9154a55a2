/* kernels/cuda/launch.h: starting a kernel on the host's stream. */
#pragma once

#include <type_traits>

#include "kernels/check/granularity.h"
#include "kernels/cuda/capture_mode.h"
#include "kernels/cuda/context.h"

namespace octavo::cuda {

/* Blocks for `count` pieces of work of one block each; kernels walk the rest in steps. At most
 * eight blocks of 256 threads fit on a multiprocessor. */
inline unsigned blocks_for(const Context &context, int64_t count) {
  const int64_t most = int64_t{8} * context.multiprocessors;
  return static_cast<unsigned>(count < 1 ? 1 : count < most ? count : most);
}

/* Launches in one verb: the first failure ends it. */
class Launcher {
 public:
  Launcher(Context &context, const char *verb, void *stream)
      : context_(context),
        verb_(verb),
        stream_(static_cast<cudaStream_t>(stream)),
        scope_(context.device),
        status_(checked(context, verb, scope_.error())) {}

  Context &context() const { return context_; }
  octavo_status status() const { return status_; }
  /* Ends the verb, where nothing has failed before. */
  void fail(octavo_status status) {
    if (status_ == OCTAVO_OK) status_ = status;
  }

  template <typename... Wanted, typename... Given>
  void run(dim3 blocks, dim3 threads, void (*kernel)(Wanted...), const Given &...given) {
    if (status_ != OCTAVO_OK) return;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.stream = stream_;
    const CaptureMode relaxed(cudaStreamCaptureModeRelaxed);
    status_ = checked(context_, verb_, cudaLaunchKernelEx(&config, kernel, Wanted(given)...));
  }

  void clear(void *data, size_t bytes) {
    if (status_ != OCTAVO_OK || bytes == 0) return;
    status_ = checked(context_, verb_, cudaMemsetAsync(data, 0, bytes, stream_));
  }

  void copy(void *to, const void *from, size_t bytes) {
    if (status_ != OCTAVO_OK || bytes == 0) return;
    status_ =
        checked(context_, verb_, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
  }

 private:
  Context &context_;
  const char *verb_;
  cudaStream_t stream_;
  DeviceScope scope_;
  octavo_status status_;
};

/* A verb: the call is checked, a device that failed before is not asked again, then body(l)
 * launches. kCheck is the verb's function of kernels/check/verbs.h, or one like it. */
template <auto kCheck, typename Call, typename Body>
octavo_status run_verb(void *ctx, const char *verb, const Call *c, Body &&body) {
  Context &context = context_of(ctx);
  octavo_status status = OCTAVO_OK;
  if constexpr (std::is_invocable_v<decltype(kCheck), Caller, const Call *>) {
    status = kCheck(context.caller, c);
  } else {
    status = kCheck(context.caller, c, context.limits);
  }
  if (status == OCTAVO_OK) status = refuse_after_failure(context, verb);
  if (status != OCTAVO_OK) return status;
  Launcher l(context, verb, c->stream);
  body(l);
  return l.status();
}

/* For verbs whose workspace the shared checks know nothing of. */
inline octavo_status refuse_null_workspace(const Caller &caller, const char *verb, uint64_t bytes) {
  Check check(caller, verb);
  check.fail(OCTAVO_INVALID, "workspace is null; expected %llu bytes, see workspace_bytes",
             static_cast<unsigned long long>(bytes));
  return check.status();
}

}  // namespace octavo::cuda
