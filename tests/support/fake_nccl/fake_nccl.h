// What a test may script and count of the fake libnccl.so.2, which computes on the CPU with the
// ranks as threads of one process; with FAKE_NCCL_SHARED as processes of one machine.
//
// The library is opened by its path; fake_nccl_control() in it answers this struct. A rank's
// operation ends when all ranks have made theirs: a communicator that does not block answers "in
// progress" until then, one that blocks waits in the call. Everything else in the struct is set
// before the threads start.
#pragma once

#include <atomic>

namespace fake_nccl {

struct Control {
  // Script.
  int version = 22809;
  int init_result = 0;  // what ncclCommInitRankConfig answers, an ncclResult_t
  int init_async = 0;   // what it answers in progress, and then this as asynchronous error
  bool init_hangs = false;
  int get_id_result = 0;
  // The operation of this number, 0 is the first of a communicator, on rank `at_rank` (-1: every).
  int at_rank = -1;
  int fails_at = -1;  // is answered with fail_result
  int fail_result = 0;
  int stalls_at = -1;   // is answered with success and never ends; its stream is held
  int stall_error = 0;  // what the communicator then tells as its asynchronous error
  int blocks_at = -1;   // does not return until the communicator is aborted
  int send_result = 0;  // what ncclSend answers; its group does, too
  bool finalize_hangs = false;
  bool aborts_are_seen = false;  // by the other ranks, as ncclRemoteError; else they wait
  void (*hold)(void *stream) = nullptr;
  void (*release)(void *stream) = nullptr;
  // Runs what the stream holds: operations happen in the call, so what they read must be there.
  void (*settle)(void *stream) = nullptr;

  // Counted.
  std::atomic<int> alive{0};  // communicators that were neither destroyed nor aborted
  std::atomic<int> aborts{0};
  std::atomic<int> destroys{0};
  std::atomic<int> operations{0};   // all-gathers, broadcasts and groups, of all ranks
  std::atomic<int> bytes_types{0};  // operations in ncclUint8; others are refused
  std::atomic<int> violations{0};   // calls that NCCL forbids; `violation` tells the last one
  std::atomic<const char *> violation{nullptr};
  std::atomic<void *> last_stream{nullptr};
};

}  // namespace fake_nccl
