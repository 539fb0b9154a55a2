// The ranks of one communicator of the fake, and the rounds in which they meet.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "host_adapters/ranks/nccl/nccl_types.h"

namespace fake_nccl {

// What one rank asks for: one collective, or the sends and receives of a group.
struct Request {
  enum class Kind { kNone, kAllGather, kBroadcast, kGroup } kind = Kind::kNone;
  struct Piece {
    void *data = nullptr;
    size_t bytes = 0;
    int peer = 0;
  };
  const void *send = nullptr;
  void *recv = nullptr;
  size_t bytes = 0;
  int root = 0;
  std::vector<Piece> sends, recvs;
};

class Clique {
 public:
  explicit Clique(int world) : requests_(world), taken_(world), joined_(world, false) {}

  // Null when it was accepted; else what is wrong with it.
  const char *join(int rank);
  bool is_complete() const { return joined_count_ == requests_.size(); }

  // Under mutex. Rank's next request; the round is carried out when it is the last one. `error`:
  // what NCCL forbids about the round.
  uint64_t enter(int rank, Request request, const char **error);
  bool has_ended(uint64_t round) const { return ended_ > round; }
  // A rank was aborted: its memory is not touched any more, and no round ends.
  void lose_a_rank() { is_broken_ = true; }
  bool is_broken() const { return is_broken_; }
  size_t world() const { return requests_.size(); }

  std::mutex mutex;  // guards everything here and in the communicators of the clique
  std::condition_variable changed;

 private:
  const char *carry_out();

  std::vector<Request> requests_;
  std::vector<bool> taken_, joined_;
  size_t joined_count_ = 0;
  size_t arrived_ = 0;
  uint64_t ended_ = 0;
  bool is_broken_ = false;
};

}  // namespace fake_nccl
