// The other processes of a data parallel run: over torch's gloo for tensors on the CPU, and over
// the backend that the program gives, such as NCCL, for those on devices.
#pragma once

#include <ATen/core/Tensor.h>
#include <octavo/octavo.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class Backend;
}

namespace octavo::torch {

// Every rank makes the same calls in the same order, and says what for. Calls but start() block.
// They throw Error with OCTAVO_FAILED_DEVICE, the purpose and the step when a rank does not answer:
// once the timeout is over, at once where its connection closes. On a device the stream waits in
// the place of the host, where the backend does it so; the deadline there is the backend's.
class ProcessGroup {
 public:
  // From RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them. A world of 1 needs
  // none of them and communicates with nobody. Throws Error for values that make no sense, and for
  // ranks that do not come within the timeout.
  explicit ProcessGroup(std::chrono::seconds timeout);
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

  // Of OCTAVO_COLLECTIVE_ALL_REDUCE_...; dense; in place.
  void all_reduce(at::Tensor &tensor, uint32_t collective, const char *what) {
    if (world_ > 1) start(collective, tensor, tensor, what)();
  }
  void broadcast(at::Tensor &tensor, int64_t root, const char *what);  // dense; in place
  // One tensor of each rank, in their order; equal shapes.
  std::vector<at::Tensor> all_gather(const at::Tensor &tensor, const char *what);
  void barrier(const char *what);

  // Waits for a collective to end; called once.
  using Wait = std::function<void()>;
  // Begins an OCTAVO_COLLECTIVE_... from send to recv, which may be one tensor where their sizes
  // are equal. Only for a world above 1.
  Wait start(uint32_t collective, const at::Tensor &send, const at::Tensor &recv, const char *what);

  // A step of this process has begun to end; errors say its number.
  void note_step() { ++step_; }

 private:
  struct Backends;
  c10d::Backend &backend_of(const at::Tensor &tensor);
  Wait begin(uint32_t collective, const at::Tensor &send, const at::Tensor &recv);
  template <class Fn>
  auto answered(const char *what, Fn call) const;
  [[noreturn]] void fail(const char *what, const std::string &found) const;

  const std::chrono::seconds timeout_;
  int64_t step_ = 1;
  int64_t rank_ = 0;
  int64_t local_rank_ = 0;
  int64_t world_ = 1;
  std::unique_ptr<Backends> backends_;
};

}  // namespace octavo::torch
