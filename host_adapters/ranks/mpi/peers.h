/* The other ranks' processes on this machine: the kernel says when one of them has ended, which MPI
 * does not say of a process that was killed. */
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace octavo::mpi {

/* What a process tells the others of itself: equal `machine` and `space`: its id means the same. */
struct Process {
  uint64_t machine = 0; /* of this boot; 0: unknown */
  uint64_t space = 0;   /* of process ids; 0: unknown */
  int64_t id = 0;
};
Process this_process();

class Peers {
 public:
  Peers() = default;
  ~Peers() { forget(); }
  Peers(const Peers &) = delete;
  Peers &operator=(const Peers &) = delete;

  /* Those of `all`, by rank, that are on this machine; where the kernel cannot tell (before Linux
   * 5.3), nobody is watched. */
  void watch(const std::vector<Process> &all, uint32_t rank);
  void forget();

  /* The rank of a process that has ended; -1: none. */
  int64_t lost();
  pid_t process_of(uint32_t rank) const;
  size_t count() const { return descriptors_.size(); }

 private:
  std::vector<pollfd> descriptors_;
  std::vector<uint32_t> ranks_; /* of descriptors_ */
  std::vector<Process> all_;
  int64_t gone_ = -1; /* had ended before it could be watched */
};

}  // namespace octavo::mpi
