/* The collectives on NCCL: what moves is moved as bytes, what is combined is exchanged first and
 * combined by this rank in the order of the ranks.
 *
 * Every rank cuts an operation into the same pieces, since counts, world and scratch are equal on
 * all; piece after piece uses the scratch again, which the stream keeps in order.
 */
#include <algorithm>

#include "host_adapters/ranks/nccl/combine.h"
#include "host_adapters/ranks/nccl/communicator.h"

namespace octavo::cuda::nccl {

/* Up to here every rank gets all of an all-reduce and combines all of it: one exchange of W times
 * the bytes is faster than two of them while latency is what counts. */
constexpr uint64_t kOneShot = 4096; /* elements */

/* One operation on one stream; the first failure ends it. */
class Operation {
 public:
  Operation(Communicator &c, const char *verb, uint64_t bytes, void *stream)
      : c_(c),
        verb_(verb),
        bytes_(bytes),
        stream_(static_cast<cudaStream_t>(stream)),
        device_(c.device_) {}

  octavo_status begin() {
    if (c_.has_failed()) return c_.refuse_after_failure(verb_);
    if (device_.error() != cudaSuccess) return cuda(device_.error());
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    const octavo_status status = cuda(cudaStreamIsCapturing(stream_, &capture));
    is_captured_ = capture != cudaStreamCaptureStatusNone;
    if (status != OCTAVO_OK || is_captured_) return status;
    const Communicator::Lock lock(c_.mutex_);
    return cuda(c_.pending_.order(stream_));
  }

  /* A graph has no time at which its nodes were enqueued, and its events cannot be asked. */
  octavo_status end() {
    if (is_captured_) return OCTAVO_OK;
    const Communicator::Lock lock(c_.mutex_);
    if (c_.has_failed()) return c_.refuse_after_failure(verb_, "given up");
    return cuda(c_.pending_.add({verb_, bytes_}, stream_));
  }

  octavo_status all_gather(const void *send, uint64_t bytes, void *recv) {
    return c_.call(verb_, "ncclAllGather", bytes_, [&](const Functions &nccl, Comm *comm) {
      return nccl.AllGather(send, recv, bytes, kUint8, comm, stream_);
    });
  }

  octavo_status broadcast(uint32_t root, void *data, uint64_t bytes) {
    return c_.call(verb_, "ncclBroadcast", bytes_, [&](const Functions &nccl, Comm *comm) {
      return nccl.Broadcast(data, data, bytes, kUint8, static_cast<int>(root), comm, stream_);
    });
  }

  /* Part r of `send`, r * stride bytes in, goes to rank r; the others' parts are one after
   * another in recv. */
  octavo_status all_to_all(const void *send, uint64_t stride, uint64_t bytes, void *recv) {
    const auto *from = static_cast<const char *>(send);
    auto *to = static_cast<char *>(recv);
    return c_.call(verb_, "a group of ncclSend and ncclRecv", bytes_,
                   [&](const Functions &nccl, Comm *comm) {
                     Result result = nccl.GroupStart();
                     if (result != kSuccess) return result;
                     for (uint32_t r = 0; r < c_.world_ && goes_on(result); ++r) {
                       const int peer = static_cast<int>(r);
                       result = nccl.Send(from + r * stride, bytes, kUint8, peer, comm, stream_);
                       if (goes_on(result))
                         result = nccl.Recv(to + r * bytes, bytes, kUint8, peer, comm, stream_);
                     }
                     const Result end = nccl.GroupEnd(); /* also after a failure */
                     return goes_on(result) ? end : result;
                   });
  }

  octavo_status combine(uint64_t count, bool is_max, float *out) {
    const Parts parts = {c_.scratch_, out, count, c_.world_, is_max ? 1U : 0U};
    return cuda(nccl::combine(parts, c_.blocks_, stream_));
  }

  octavo_status reduce_scatter(const Call &call) {
    const auto *send = static_cast<const float *>(call.send);
    auto *recv = static_cast<float *>(call.recv);
    const uint64_t most = piece();
    octavo_status status = OCTAVO_OK;
    for (uint64_t at = 0; at < call.recv_count && status == OCTAVO_OK; at += most) {
      const uint64_t n = std::min(most, call.recv_count - at);
      status =
          all_to_all(send + at, call.recv_count * sizeof(float), n * sizeof(float), c_.scratch_);
      if (status == OCTAVO_OK) status = combine(n, false, recv + at);
    }
    return status;
  }

  /* May be in place: what a piece writes was sent before, and the stream keeps the order. */
  octavo_status all_reduce(const Call &call) {
    const auto *send = static_cast<const float *>(call.send);
    auto *recv = static_cast<float *>(call.recv);
    const bool is_max = call.collective == OCTAVO_COLLECTIVE_ALL_REDUCE_MAX;
    octavo_status status = OCTAVO_OK;
    uint64_t at = 0;
    while (at < call.send_count && status == OCTAVO_OK) {
      const uint64_t left = call.send_count - at;
      /* Also what does not divide by the world, which comes last. */
      if (left <= kOneShot || left < c_.world_) {
        const uint64_t n = std::min(left, piece());
        status = all_gather(send + at, n * sizeof(float), c_.scratch_);
        if (status == OCTAVO_OK) status = combine(n, is_max, recv + at);
        at += n;
        continue;
      }
      const uint64_t part = std::min(piece(), left / c_.world_);
      float *own = recv + at + c_.rank_ * part;
      status = all_to_all(send + at, part * sizeof(float), part * sizeof(float), c_.scratch_);
      if (status == OCTAVO_OK) status = combine(part, is_max, own);
      if (status == OCTAVO_OK) status = all_gather(own, part * sizeof(float), recv + at);
      at += part * c_.world_;
    }
    return status;
  }

 private:
  static bool goes_on(Result result) { return result == kSuccess || result == kInProgress; }
  octavo_status cuda(cudaError_t error) {
    return error == cudaSuccess ? OCTAVO_OK : c_.fail_cuda(verb_, error);
  }
  /* Elements of one rank that fit into the scratch next to the others'. */
  uint64_t piece() const { return c_.scratch_bytes_ / sizeof(float) / c_.world_; }

  Communicator &c_;
  const char *verb_;
  uint64_t bytes_;
  cudaStream_t stream_;
  const DeviceScope device_;
  bool is_captured_ = false;
};

octavo_status Communicator::run(const Call &c) {
  octavo_status status = check_collective(caller_, c, world_);
  if (status != OCTAVO_OK) return status;
  const uint64_t width = element_bytes(c.dtype);
  Operation o(*this, name_of_collective(c.collective), c.send_count * width, c.stream);
  status = o.begin();
  if (status != OCTAVO_OK || c.send_count == 0) return status;
  switch (c.collective) {
    case OCTAVO_COLLECTIVE_ALL_TO_ALL: {
      const uint64_t part = c.send_count / world_ * width;
      status = o.all_to_all(c.send, part, part, c.recv);
      break;
    }
    case OCTAVO_COLLECTIVE_ALL_GATHER:
      status = o.all_gather(c.send, c.send_count * width, c.recv);
      break;
    case OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM: status = o.reduce_scatter(c); break;
    default: status = o.all_reduce(c); break;
  }
  return status == OCTAVO_OK ? o.end() : status;
}

octavo_status Communicator::broadcast(uint32_t root, void *data, uint64_t bytes, void *stream) {
  octavo_status status = check_broadcast(caller_, root, data, bytes, world_);
  if (status != OCTAVO_OK) return status;
  Operation o(*this, "broadcast", bytes, stream);
  status = o.begin();
  if (status != OCTAVO_OK || bytes == 0) return status;
  status = o.broadcast(root, data, bytes);
  return status == OCTAVO_OK ? o.end() : status;
}

}  // namespace octavo::cuda::nccl
