// What a rank sends is in its part of the file until all ranks have copied what they get.
#include "shared_clique.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

namespace fake_nccl {
namespace {

constexpr int kMostRanks = 8, kMostPieces = 16;
constexpr size_t kMostBytes = size_t{64}
                              << 20;  // of a rank's request; pages that are written count

}  // namespace

struct SharedClique::Shared {
  struct Rank {
    Request::Kind kind;
    int root;
    size_t bytes, pieces;
    struct {
      size_t at, bytes;
      int peer;
    } sends[kMostPieces];
    char data[kMostBytes];
  };
  size_t world, joined_count, arrived, copied;
  uint64_t ended;
  bool joined[kMostRanks], is_broken, is_wrong;
  Rank ranks[kMostRanks];
};

void SharedClique::Mutex::lock() {
  threads_.lock();
  while (flock(file_, LOCK_EX) != 0) {
  }
}

void SharedClique::Mutex::unlock() {
  flock(file_, LOCK_UN);
  threads_.unlock();
}

SharedClique::SharedClique(const std::string &id, int world) : path_("/dev/shm/" + id) {
  mutex.file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  void *memory = MAP_FAILED;
  if (mutex.file_ >= 0 && ftruncate(mutex.file_, sizeof(Shared)) == 0)
    memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, mutex.file_, 0);
  if (memory == MAP_FAILED || world > kMostRanks) throw std::runtime_error("no shared memory");
  shared_ = static_cast<Shared *>(memory);  // zeros at first
  shared_->world = static_cast<size_t>(world);
}

SharedClique::~SharedClique() {
  munmap(shared_, sizeof(Shared));
  close(mutex.file_);
}

const char *SharedClique::join(int rank) {
  if (rank < 0 || static_cast<size_t>(rank) >= shared_->world) return "a rank outside the world";
  if (shared_->joined[rank]) return "two communicators with one rank";
  rank_ = rank;
  shared_->joined[rank] = true;
  if (++shared_->joined_count == shared_->world) unlink(path_.c_str());  // nobody else comes
  return nullptr;
}

bool SharedClique::is_complete() const {
  return shared_->joined_count == shared_->world;
}
void SharedClique::lose_a_rank() {
  shared_->is_broken = true;
}
bool SharedClique::is_broken() const {
  return shared_->is_broken;
}
size_t SharedClique::world() const {
  return shared_->world;
}

uint64_t SharedClique::enter(int rank, Request request, const char **error) {
  *error = nullptr;
  const uint64_t round = shared_->ended;
  if (shared_->is_broken) return round;
  Shared::Rank &mine = shared_->ranks[rank];
  mine.kind = request.kind;
  mine.root = request.root;
  mine.bytes = request.bytes;
  mine.pieces = request.sends.size();
  size_t at = 0;
  if (mine.pieces > kMostPieces) *error = "more sends in a group than the fake has room for";
  for (size_t i = 0; i < mine.pieces && *error == nullptr; ++i) {
    const Request::Piece &p = request.sends[i];
    mine.sends[i] = {at, p.bytes, p.peer};
    if (p.bytes > kMostBytes - at) *error = "more bytes than the fake has room for";
    if (*error == nullptr) std::memcpy(mine.data + at, p.data, p.bytes);
    at += p.bytes;
  }
  if (request.kind != Request::Kind::kGroup) {
    if (request.bytes > kMostBytes) *error = "more bytes than the fake has room for";
    if (*error == nullptr) std::memcpy(mine.data, request.send, request.bytes);
  }
  own_ = std::move(request);
  if (*error == nullptr && ++shared_->arrived == shared_->world)
    for (const Shared::Rank *r = shared_->ranks; r < shared_->ranks + shared_->world; ++r)
      shared_->is_wrong = shared_->is_wrong || r->kind != mine.kind || r->bytes != mine.bytes ||
                          r->root != mine.root;
  return round;
}

bool SharedClique::has_ended(uint64_t round) {
  if (shared_->is_wrong) return false;  // a rank waits for its deadline, as with NCCL
  if (shared_->ended == round && shared_->arrived == shared_->world &&
      own_.kind != Request::Kind::kNone) {
    copy_in();
    own_ = {};
    if (++shared_->copied == shared_->world) {
      shared_->arrived = shared_->copied = 0;
      ++shared_->ended;
    }
  }
  return shared_->ended > round;
}

void SharedClique::copy_in() {
  const Shared::Rank *ranks = shared_->ranks;
  if (own_.kind == Request::Kind::kBroadcast) {
    std::memcpy(own_.recv, ranks[own_.root].data, own_.bytes);
  } else if (own_.kind == Request::Kind::kAllGather) {
    for (size_t from = 0; from < shared_->world; ++from)
      std::memcpy(static_cast<char *>(own_.recv) + from * own_.bytes, ranks[from].data, own_.bytes);
  } else {
    std::vector<size_t> next(shared_->world, 0);  // sends of a peer that were looked at
    for (const Request::Piece &wanted : own_.recvs) {
      const Shared::Rank &peer = ranks[wanted.peer];
      size_t &i = next[wanted.peer];
      while (i < peer.pieces && peer.sends[i].peer != rank_) ++i;
      if (i == peer.pieces || peer.sends[i].bytes != wanted.bytes) {
        shared_->is_wrong = true;
        return;
      }
      std::memcpy(wanted.data, peer.data + peer.sends[i++].at, wanted.bytes);
    }
  }
}

}  // namespace fake_nccl
