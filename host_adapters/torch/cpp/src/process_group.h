// The other processes of a data parallel run: over torch's gloo for tensors on the CPU, and over
// the backend that the program gives, such as NCCL, for those on devices.
#pragma once

#include <ATen/core/Tensor.h>
#include <octavo/octavo.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class Backend;
}

namespace octavo::torch {

// Every rank makes the same calls in the same order. Calls but start() block; they throw what torch
// throws when a peer is gone. On a device the stream waits in the place of the host, where the
// backend does it so.
class ProcessGroup {
 public:
  // From RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them. A world of 1 needs
  // none of them and communicates with nobody. Throws Error for values that make no sense.
  ProcessGroup();
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup &) = delete;
  ProcessGroup &operator=(const ProcessGroup &) = delete;

  int64_t rank() const { return rank_; }
  int64_t world() const { return world_; }
  // Among the processes of this machine: LOCAL_RANK, 0 when it is unset.
  int64_t local_rank() const { return local_rank_; }

  // The backend of tensors on devices. Throws Error unless it is one of these processes.
  void use(const c10::intrusive_ptr<c10d::Backend> &backend);
  // As the backend calls itself; empty without one.
  std::string device_backend() const;

  enum class Combine { kSum, kMax };
  void all_reduce(at::Tensor &tensor, Combine combine);  // dense; in place
  void broadcast(at::Tensor &tensor, int64_t root);      // dense; in place
  // One tensor of each rank, in their order; equal shapes.
  std::vector<at::Tensor> all_gather(const at::Tensor &tensor);
  void barrier();

  // Waits for a collective to end; called once.
  using Wait = std::function<void()>;
  // Begins an OCTAVO_COLLECTIVE_... from send to recv, which may be one tensor where their sizes
  // are equal. Only for a world above 1.
  Wait start(uint32_t collective, const at::Tensor &send, const at::Tensor &recv);

 private:
  struct Backends;
  c10d::Backend &backend_of(const at::Tensor &tensor);

  int64_t rank_ = 0;
  int64_t local_rank_ = 0;
  int64_t world_ = 1;
  std::unique_ptr<Backends> backends_;
};

}  // namespace octavo::torch
