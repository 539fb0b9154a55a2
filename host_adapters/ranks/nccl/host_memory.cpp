/* The collectives for operands in CPU memory: through memory of the device, on a stream of their
 * own, and with the result there when they return. For what a host computes itself: losses, norms,
 * gradients of its own layers.
 */
#include "host_adapters/ranks/nccl/communicator.h"

namespace octavo::cuda::nccl {

octavo_status Communicator::Staged::grow(uint64_t wanted) {
  if (wanted <= bytes) return OCTAVO_OK;
  cudaFree(data);
  data = nullptr;
  bytes = 0;
  if (cudaMalloc(&data, wanted) != cudaSuccess) return OCTAVO_NO_RESOURCE;
  bytes = wanted;
  return OCTAVO_OK;
}

/* Copies in, calls body(device send, device recv), waits for it and copies out. */
template <typename Body>
octavo_status Communicator::stage(const char *verb, const void *send, uint64_t send_bytes,
                                  void *recv, uint64_t recv_bytes, Body &&body) {
  if (has_failed()) return refuse_after_failure(verb);
  const DeviceScope device(device_);
  cudaError_t error = device.error();
  if (error == cudaSuccess && stream_ == nullptr)
    error = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  if (error != cudaSuccess) return fail_cuda(verb, error);
  if (staged_[0].grow(send_bytes) != OCTAVO_OK || staged_[1].grow(recv_bytes) != OCTAVO_OK)
    return fail_cuda(verb, cudaErrorMemoryAllocation);
  error = cudaMemcpyAsync(staged_[0].data, send, send_bytes, cudaMemcpyHostToDevice, stream_);
  if (error != cudaSuccess) return fail_cuda(verb, error);
  octavo_status status = body(staged_[0].data, staged_[1].data);
  if (status == OCTAVO_OK) status = wait_for_pending(verb); /* within the deadline */
  if (status != OCTAVO_OK) return status;
  error = cudaMemcpyAsync(recv, staged_[1].data, recv_bytes, cudaMemcpyDeviceToHost, stream_);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream_);
  return error == cudaSuccess ? OCTAVO_OK : fail_cuda(verb, error);
}

octavo_status Communicator::run_on_host(const Call &c) {
  const octavo_status status = check_collective(caller_, c, world_);
  if (status != OCTAVO_OK || c.send_count == 0) return status;
  const uint64_t width = element_bytes(c.dtype);
  return stage(
      name_of_collective(c.collective), c.send, c.send_count * width, c.recv, c.recv_count * width,
      [&](const void *send, void *recv) {
        return run({c.collective, c.dtype, send, c.send_count, recv, c.recv_count, stream_});
      });
}

octavo_status Communicator::broadcast_on_host(uint32_t root, void *data, uint64_t bytes) {
  const octavo_status status = check_broadcast(caller_, root, data, bytes, world_);
  if (status != OCTAVO_OK || bytes == 0) return status;
  return stage("broadcast", data, bytes, data, bytes, [&](const void *send, void *recv) {
    const cudaError_t error = cudaMemcpyAsync(recv, send, bytes, cudaMemcpyDeviceToDevice, stream_);
    return error == cudaSuccess ? broadcast(root, recv, bytes, stream_)
                                : fail_cuda("broadcast", error);
  });
}

/* After what used them has ended. */
void Communicator::release_staged() {
  for (Staged &s : staged_) {
    cudaFree(s.data);
    s = {};
  }
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
  stream_ = nullptr;
}

}  // namespace octavo::cuda::nccl
