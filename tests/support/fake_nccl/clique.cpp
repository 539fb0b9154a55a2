// One round: all requests are checked against each other, then the bytes move.
#include "clique.h"

#include <cstring>

namespace fake_nccl {

const char *Clique::join(int rank) {
  if (rank < 0 || static_cast<size_t>(rank) >= joined_.size()) return "a rank outside the world";
  if (joined_[rank]) return "two communicators with one rank";
  joined_[rank] = true;
  ++joined_count_;
  return nullptr;
}

uint64_t Clique::enter(int rank, Request request, const char **error) {
  const uint64_t round = ended_;
  *error = nullptr;
  if (is_broken_) return round;
  if (taken_[rank]) {
    *error = "a second operation of a rank before its first one ended";
    return round;
  }
  requests_[rank] = std::move(request);
  taken_[rank] = true;
  if (++arrived_ < requests_.size()) return round;
  *error = carry_out();
  arrived_ = 0;
  taken_.assign(taken_.size(), false);
  ++ended_;
  changed.notify_all();
  return round;
}

const char *Clique::carry_out() {
  const Request &first = requests_[0];
  for (const Request &r : requests_)
    if (r.kind != first.kind || r.bytes != first.bytes || r.root != first.root)
      return "ranks that ask for different operations";
  const size_t world = requests_.size();
  for (size_t to = 0; to < world; ++to) {
    const Request &in = requests_[to];
    if (first.kind == Request::Kind::kAllGather) {
      for (size_t from = 0; from < world; ++from)
        std::memmove(static_cast<char *>(in.recv) + from * in.bytes, requests_[from].send,
                     in.bytes);
    } else if (first.kind == Request::Kind::kBroadcast) {
      if (in.recv != requests_[in.root].send)
        std::memcpy(in.recv, requests_[in.root].send, in.bytes);
    } else {
      std::vector<size_t> next(world, 0);  // sends of a peer to this rank that were received
      for (const Request::Piece &wanted : in.recvs) {
        size_t skip = next[wanted.peer]++;
        const Request::Piece *found = nullptr;
        for (const Request::Piece &s : requests_[wanted.peer].sends)
          if (s.peer == static_cast<int>(to) && skip-- == 0) found = &s;
        if (found == nullptr) return "an ncclRecv without its ncclSend";
        if (found->bytes != wanted.bytes) return "ncclSend and ncclRecv of different counts";
        std::memcpy(wanted.data, found->data, wanted.bytes);
      }
      for (size_t from = 0; from < world; ++from) {
        size_t sent = 0;
        for (const Request::Piece &s : requests_[from].sends)
          sent += s.peer == static_cast<int>(to);
        if (sent != next[from]) return "an ncclSend without its ncclRecv";
      }
    }
  }
  return nullptr;
}

}  // namespace fake_nccl
