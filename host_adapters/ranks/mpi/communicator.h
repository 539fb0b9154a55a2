/* One rank's communicator: a duplicate of the host's, what every rank asks for in a call, and the
 * first failure.
 *
 * Every call of MPI but those of open and close is made under `mutex_`, and none of them waits.
 */
#pragma once

#include <mpi.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "host_adapters/ranks/mpi/octavo_mpi.h"
#include "host_adapters/ranks/mpi/peers.h"
#include "kernels/check/collective.h"

namespace octavo::mpi {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kMostRanks = 4096; /* as octavo_ranks */

class Communicator {
 public:
  explicit Communicator(const octavo_mpi_desc &desc);
  Communicator(const Communicator &) = delete;
  Communicator &operator=(const Communicator &) = delete;

  /* communicator.cpp */
  octavo_status open(const octavo_mpi_desc &desc);
  void close();
  bool is_inherited() const; /* by a child of fork */

  /* operations.cpp */
  octavo_status run(const CollectiveCall &call);
  octavo_status broadcast(uint32_t root, void *data, uint64_t bytes);

  /* wait.cpp */
  octavo_status check();
  void abort();
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }

  uint32_t world() const { return world_; }
  uint32_t rank() const { return rank_; }
  const Caller &caller() const { return caller_; }

 private:
  friend class Operation;

  /* What one rank asks for, which all of them see before anything moves. */
  struct Ask {
    uint32_t collective = OCTAVO_COLLECTIVE_NONE; /* none: a broadcast */
    uint32_t dtype = OCTAVO_U8;
    uint32_t root = 0;
    octavo_status status = OCTAVO_OK; /* of this rank's own check */
    uint64_t send_count = 0, recv_count = 0;
  };
  /* Sizes that ranks must agree about, and where they are. */
  struct Introduction {
    uint64_t scratch_bytes = 0;
    Process process;
  };

  /* communicator.cpp */
  octavo_status start_mpi();
  octavo_status duplicate(MPI_Comm comm);
  octavo_status introduce();

  /* operations.cpp. Whether all ask for the same, and no rank was refused. */
  octavo_status agree(const char *verb, Ask ask);

  /* wait.cpp. Until the request has ended, at most until the deadline of the operation, which began
   * at `began`. `verb` and `bytes` are for texts; `code` is what the call that made the request
   * answered. */
  octavo_status wait(const char *verb, uint64_t bytes, Clock::time_point began, int code,
                     MPI_Request *request);
  octavo_status look_around(const char *verb, uint64_t bytes, Clock::time_point began);
  octavo_status find_abort(const char *verb);
  octavo_status fail(const char *format, ...) __attribute__((format(printf, 2, 3)));
  octavo_status fail_mpi(const char *verb, int code);
  octavo_status refuse_after_failure(const char *verb);
  void keep_failure(const char *text);
  /* Under mutex_: a call that waits on another thread must not return, and its buffers must not go,
   * while MPI works. */
  void tell_others();

  const Caller caller_;
  const std::chrono::milliseconds deadline_;
  const uint64_t scratch_bytes_;
  const pid_t process_;
  uint32_t world_ = 0, rank_ = 0;
  MPI_Comm comm_ = MPI_COMM_NULL;
  bool finalizes_ = false; /* MPI was initialized here */
  bool was_told_ = false;  /* the failure came from another rank, which told all */
  Peers peers_;
  Clock::time_point peer_lost_; /* first seen so; zero: never */
  Clock::time_point looked_;    /* at the other ranks */
  std::unique_ptr<float[]> scratch_;
  std::vector<Ask> asks_; /* by rank */

  std::mutex mutex_;         /* of MPI */
  std::mutex failure_mutex_; /* guards failure_ */
  std::string failure_;
  std::atomic<bool> failed_{false};
};

}  // namespace octavo::mpi
