// octavo_ranks: collectives between threads of one process.
//
// A call is two meetings: at the first every rank has said what it sends, at the second everybody
// has read. Between them each rank reads the others' memory and writes its own.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <vector>

#include "octavo/octavo.h"
#include "wall.h"

namespace {

constexpr uint32_t kMaxWorld = 4096;
constexpr uint32_t kBroadcast = 0xFFFF0000u;  // apart from every OCTAVO_COLLECTIVE_...

// What one rank asks for; equal on all ranks but for the addresses.
struct Ask {
  uint32_t collective = 0;
  uint32_t dtype = 0;
  uint32_t root = 0;
  uint64_t send_count = 0;
  uint64_t recv_count = 0;
  const void *send = nullptr;
  void *recv = nullptr;
};

bool matches(const Ask &a, const Ask &b) {
  return a.collective == b.collective && a.dtype == b.dtype && a.root == b.root &&
         a.send_count == b.send_count && a.recv_count == b.recv_count;
}

// Whether the counts fit the collective.
bool fits(const Ask &a, uint64_t world) {
  if ((a.send == nullptr && a.send_count != 0) || (a.recv == nullptr && a.recv_count != 0))
    return false;
  switch (a.collective) {
    case OCTAVO_COLLECTIVE_NONE: return true;
    case OCTAVO_COLLECTIVE_ALL_REDUCE_MAX:
    case OCTAVO_COLLECTIVE_ALL_REDUCE_SUM:
    case kBroadcast: return a.send_count == a.recv_count;
    case OCTAVO_COLLECTIVE_ALL_TO_ALL:
      return a.send_count == a.recv_count && a.send_count % world == 0;
    case OCTAVO_COLLECTIVE_ALL_GATHER: return a.recv_count == a.send_count * world;
    case OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM: return a.send_count == a.recv_count * world;
    default: return false;
  }
}

bool adds(uint32_t collective) {
  return collective == OCTAVO_COLLECTIVE_ALL_REDUCE_MAX ||
         collective == OCTAVO_COLLECTIVE_ALL_REDUCE_SUM ||
         collective == OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM;
}

}  // namespace

struct octavo_ranks {
 public:
  explicit octavo_ranks(uint32_t world) : asks_(world), tables_(world), seats_(world) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      seats_[rank] = {this, rank};
      octavo_collective &table = tables_[rank];
      table = {};
      table.size = sizeof(table);
      table.kind = OCTAVO_KIND_COLLECTIVE;
      table.ctx = &seats_[rank];
      table.world = world;
      table.run = run;
      table.broadcast = broadcast;
    }
  }

  const octavo_collective *table(uint32_t rank) const {
    return rank < tables_.size() ? &tables_[rank] : nullptr;
  }

  void abort() {
    const std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
    all_here_.notify_all();
  }

 private:
  struct Seat {
    octavo_ranks *ranks;
    uint32_t rank;
  };

  static octavo_status run(void *ctx, uint32_t collective, uint32_t dtype, const void *send,
                           uint64_t send_count, void *recv, uint64_t recv_count, void *) {
    const Seat &seat = *static_cast<Seat *>(ctx);
    return octavo::guarded(nullptr, [&] {
      return seat.ranks->exchange(seat.rank,
                                  {collective, dtype, 0, send_count, recv_count, send, recv});
    });
  }

  static octavo_status broadcast(void *ctx, uint32_t root, void *data, uint64_t bytes, void *) {
    const Seat &seat = *static_cast<Seat *>(ctx);
    return octavo::guarded(nullptr, [&] {
      return seat.ranks->exchange(seat.rank,
                                  {kBroadcast, OCTAVO_U8, root, bytes, bytes, data, data});
    });
  }

  // Waits for all ranks; false after abort().
  bool meet() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (aborted_) return false;
    const uint64_t round = round_;
    if (++here_ == tables_.size()) {
      here_ = 0;
      ++round_;
      all_here_.notify_all();
      return true;
    }
    all_here_.wait(lock, [&] { return round_ != round || aborted_; });
    return round_ != round;
  }

  octavo_status exchange(uint32_t rank, const Ask &ask) {
    asks_[rank] = ask;
    if (!meet()) return OCTAVO_DEVICE;
    // Every rank comes to the same answer, so nobody is left waiting.
    octavo_status status = check();
    if (status == OCTAVO_OK) status = prepare(rank);
    if (!meet()) return OCTAVO_DEVICE;
    if (status == OCTAVO_OK) finish(rank);
    return status;
  }

  octavo_status check() const {
    octavo_status status = OCTAVO_OK;
    for (const Ask &ask : asks_) {
      if (!matches(ask, asks_[0]) || !fits(ask, asks_.size())) return OCTAVO_INVALID;
      if (ask.root >= asks_.size()) return OCTAVO_INVALID;
      if (adds(ask.collective) && ask.dtype != OCTAVO_F32) status = OCTAVO_UNSUPPORTED;
    }
    return status;
  }

  // Reads the others' memory. What is added up goes to scratch first, since send may be recv.
  octavo_status prepare(uint32_t rank) {
    const Ask &own = asks_[rank];
    const size_t width = OCTAVO_DTYPE_BITS(own.dtype) / 8;
    auto *out = static_cast<char *>(own.recv);
    switch (own.collective) {
      case OCTAVO_COLLECTIVE_ALL_REDUCE_MAX:
      case OCTAVO_COLLECTIVE_ALL_REDUCE_SUM: combine(rank, 0, own.send_count); break;
      case OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM:
        combine(rank, rank * own.recv_count, own.recv_count);
        break;
      case OCTAVO_COLLECTIVE_ALL_GATHER: {
        const size_t bytes = own.send_count * width;
        for (const Ask &other : asks_) out = copy(out, other.send, 0, bytes);
        break;
      }
      case OCTAVO_COLLECTIVE_ALL_TO_ALL: {
        const size_t bytes = own.send_count / asks_.size() * width;
        for (const Ask &other : asks_) out = copy(out, other.send, rank * bytes, bytes);
        break;
      }
      case kBroadcast:
        if (rank != own.root) copy(out, asks_[own.root].send, 0, own.send_count);
        break;
      default: break;
    }
    return OCTAVO_OK;
  }

  static char *copy(char *out, const void *in, size_t offset, size_t bytes) {
    if (bytes > 0) std::memcpy(out, static_cast<const char *>(in) + offset, bytes);
    return out + bytes;
  }

  // In the order of the ranks. A NaN stays: whoever reduces it wants to know.
  void combine(uint32_t rank, uint64_t first, uint64_t count) {
    const bool is_max = asks_[rank].collective == OCTAVO_COLLECTIVE_ALL_REDUCE_MAX;
    std::vector<float> &sums = seats_scratch(rank);
    sums.resize(std::max<size_t>(sums.size(), count));
    for (size_t other = 0; other < asks_.size(); ++other) {
      const float *in = static_cast<const float *>(asks_[other].send) + first;
      for (uint64_t i = 0; i < count; ++i) {
        if (other == 0)
          sums[i] = in[i];
        else if (!is_max)
          sums[i] += in[i];
        else if (in[i] > sums[i] || in[i] != in[i])
          sums[i] = in[i];
      }
    }
  }

  void finish(uint32_t rank) {
    const Ask &own = asks_[rank];
    if (adds(own.collective) && own.recv_count > 0)
      std::memcpy(own.recv, seats_scratch(rank).data(), own.recv_count * sizeof(float));
  }

  std::vector<float> &seats_scratch(uint32_t rank) { return scratch_[rank]; }

  std::vector<Ask> asks_;  // each written by its rank, read by all between two meetings
  std::vector<octavo_collective> tables_;
  std::vector<Seat> seats_;
  std::vector<std::vector<float>> scratch_ = std::vector<std::vector<float>>(asks_.size());
  std::mutex mutex_;
  std::condition_variable all_here_;
  size_t here_ = 0;
  uint64_t round_ = 0;
  bool aborted_ = false;
};

octavo_status octavo_ranks_open(uint32_t world, octavo_ranks **out) {
  if (out == nullptr || world == 0 || world > kMaxWorld) return OCTAVO_INVALID;
  return octavo::guarded(nullptr, [&] {
    *out = new octavo_ranks(world);
    return OCTAVO_OK;
  });
}

const octavo_collective *octavo_ranks_collective(octavo_ranks *r, uint32_t rank) {
  return r == nullptr ? nullptr : r->table(rank);
}

void octavo_ranks_abort(octavo_ranks *r) {
  if (r != nullptr) r->abort();
}

void octavo_ranks_close(octavo_ranks *r) {
  delete r;
}
