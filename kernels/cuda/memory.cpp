/* Memory of the device for hosts without a tensor library; setup only, so it may wait. */
#include "kernels/cuda/context.h"
#include "kernels/cuda/verbs.h"

namespace octavo::cuda {

octavo_status allocate(void *ctx, uint64_t bytes, void **out) {
  Context &context = context_of(ctx);
  Check check(context.caller, "allocate");
  check.not_null(out, "out");
  if (!check.ok()) return check.status();
  *out = nullptr;
  const octavo_status status = refuse_after_failure(context, "allocate");
  if (status != OCTAVO_OK || bytes == 0) return status;
  const DeviceScope scope(context.device);
  const cudaError_t error = cudaMalloc(out, bytes);
  if (error != cudaErrorMemoryAllocation) return checked(context, "allocate", error);
  cudaGetLastError(); /* forgotten: the host may free something and go on */
  *out = nullptr;
  size_t free = 0;
  size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) cudaGetLastError();
  return report_error(
      context.caller, OCTAVO_NO_RESOURCE,
      "allocate: device %d has no %llu bytes: %zu of %zu are free; end what fills "
      "it (nvidia-smi lists the processes), or train with smaller states or batches",
      context.device, static_cast<unsigned long long>(bytes), free, total);
}

void release(void *ctx, void *data) {
  const DeviceScope scope(context_of(ctx).device);
  if (data != nullptr && cudaFree(data) != cudaSuccess) cudaGetLastError();
}

octavo_status copy_now(void *ctx, void *to, const void *from, uint64_t bytes) {
  Context &context = context_of(ctx);
  Check check(context.caller, "copy");
  if (bytes > 0) {
    check.not_null(to, "to");
    check.not_null(from, "from");
  }
  if (!check.ok()) return check.status();
  octavo_status status = synchronize(ctx);
  if (status != OCTAVO_OK || bytes == 0) return status;
  const DeviceScope scope(context.device);
  status = checked(context, "copy", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, nullptr));
  return status == OCTAVO_OK ? checked(context, "copy", cudaStreamSynchronize(nullptr)) : status;
}

octavo_status synchronize(void *ctx) {
  Context &context = context_of(ctx);
  const octavo_status status = refuse_after_failure(context, "synchronize");
  if (status != OCTAVO_OK) return status;
  const DeviceScope scope(context.device);
  return checked(context, "synchronize", cudaDeviceSynchronize());
}

}  // namespace octavo::cuda
