// octavo/hpp/host/ranks.hpp: ranks as threads of one process, and one rank's side of collectives.
//
// What must not go wrong: every rank makes the same calls in the same order.
#ifndef OCTAVO_HPP_HOST_RANKS_HPP
#define OCTAVO_HPP_HOST_RANKS_HPP

#include <algorithm>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "octavo/draft/reduction.h"
#include "octavo/hpp/host/memory.hpp"

namespace octavo {
inline namespace hpp {

class Collective {
 public:
  // Alone: a world of one rank, for which no call waits.
  Collective() = default;
  // The table belongs to the rank and outlives this object.
  Collective(const octavo_collective *table, uint32_t rank) : table_(table), rank_(rank) {}

  uint32_t rank() const { return rank_; }
  uint32_t world() const { return table_ != nullptr ? table_->world : 1; }
  // For functions of liboctavo that communicate; null when alone.
  const octavo_collective *table() const { return table_; }

  // Each value becomes the sum over ranks in their order, equal on every rank.
  void all_reduce_sum(float *values, uint64_t count) const {
    if (table_ != nullptr)
      run(OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, values, count, values, count);
  }
  // The number of each rank, exactly, in their order.
  std::vector<double> gather(double mine) const {
    std::vector<double> all(world(), mine);
    if (table_ != nullptr)  // as bytes, since collectives have no f64
      run(OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_U8, &mine, sizeof mine, all.data(),
          sizeof mine * all.size());
    return all;
  }
  double mean(double mine) const {
    double sum = 0;
    for (const double one : gather(mine)) sum += one;
    return sum / static_cast<double>(world());
  }
  // The text of each rank, in their order.
  std::vector<std::string> gather_texts(const std::string &mine) const {
    const std::vector<double> sizes = gather(static_cast<double>(mine.size()));
    const auto longest = static_cast<size_t>(*std::max_element(sizes.begin(), sizes.end()));
    std::string sent = mine, all = mine;
    sent.resize(longest);
    all.resize(longest * world());
    if (table_ != nullptr && longest > 0)
      run(OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_U8, sent.data(), longest, all.data(), all.size());
    std::vector<std::string> texts;
    for (size_t rank = 0; rank < sizes.size(); ++rank)
      texts.push_back(all.substr(rank * longest, static_cast<size_t>(sizes[rank])));
    return texts;
  }
  // What rank 0 passes, on every rank.
  bool root_says(bool mine) const { return gather(mine ? 1 : 0).front() != 0; }

 private:
  void run(uint32_t collective, uint32_t dtype, const void *send, uint64_t send_count, void *recv,
           uint64_t recv_count) const {
    if (const octavo_status status = table_->run(table_->ctx, collective, dtype, send, send_count,
                                                 recv, recv_count, nullptr);
        status != OCTAVO_OK)
      throw Error("a collective of rank " + std::to_string(rank_), status, {});
  }

  const octavo_collective *table_ = nullptr;
  uint32_t rank_ = 0;
};

// Ranks as threads of this process.
class Ranks {
 public:
  explicit Ranks(uint32_t world) : world_(world) {
    octavo_ranks *r = nullptr;
    if (const octavo_status status = octavo_ranks_open(world, &r); status != OCTAVO_OK)
      throw Error("octavo_ranks_open", status, {});
    ranks_.reset(r);
  }
  // Null when there is no such rank.
  const octavo_collective *collective(uint32_t rank) const {
    return octavo_ranks_collective(ranks_.get(), rank);
  }
  // What this rank communicates through; the only rank of a world communicates with nobody.
  Collective member(uint32_t rank) const {
    return world_ == 1 ? Collective() : Collective(collective(rank), rank);
  }
  // What a rank that fails calls, so that the others do not wait for it.
  void abort() noexcept { octavo_ranks_abort(ranks_.get()); }

  // Calls body(rank) for every rank at once, each on a thread of its own, and returns when all are
  // done. When bodies throw, the others are woken from their collectives, and the first exception
  // comes out of this call; these ranks are of no use then.
  template <typename Body>
  void run(Body body) {
    if (world_ == 1) {
      body(0);
      return;
    }
    std::mutex mutex;
    std::exception_ptr first;
    const auto fail = [&] {
      {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!first) first = std::current_exception();
      }
      abort();
    };
    const auto guarded = [&](uint32_t rank) {
      try {
        body(rank);
      } catch (...) {
        fail();
      }
    };
    std::vector<std::thread> threads;
    try {
      for (uint32_t rank = 0; rank < world_; ++rank) threads.emplace_back(guarded, rank);
    } catch (...) {
      fail();  // no thread for this rank: the others must not wait for it
    }
    for (std::thread &thread : threads) thread.join();
    if (first) std::rethrow_exception(first);
  }

 private:
  struct Close {
    void operator()(octavo_ranks *r) const { octavo_ranks_close(r); }
  };
  uint32_t world_;
  std::unique_ptr<octavo_ranks, Close> ranks_;
};

// A collective for tensors on a device, by one that works on host memory: ranks of one process may
// share a GPU, which NCCL does not offer.
class DeviceCollective {
 public:
  // inner: null when alone. Both outlive this object.
  DeviceCollective(const Memory &memory, const octavo_collective *inner)
      : memory_(memory), inner_(inner) {
    if (inner == nullptr) return;
    table_.ctx = this;
    table_.world = inner->world;
    table_.run = run;
    table_.broadcast = inner->broadcast != nullptr ? broadcast : nullptr;
  }
  DeviceCollective(const DeviceCollective &) = delete;
  DeviceCollective &operator=(const DeviceCollective &) = delete;

  // For functions of liboctavo; null when alone.
  const octavo_collective *table() const {
    return inner_ == nullptr || memory_.is_host() ? inner_ : &table_;
  }

 private:
  static uint64_t bytes_of(uint32_t dtype, uint64_t count) {
    return count * OCTAVO_DTYPE_BITS(dtype) / 8;
  }
  static octavo_status run(void *ctx, uint32_t collective, uint32_t dtype, const void *send,
                           uint64_t send_count, void *recv, uint64_t recv_count,
                           void *stream) noexcept try {
    auto &self = *static_cast<DeviceCollective *>(ctx);
    const uint64_t sent = bytes_of(dtype, send_count), received = bytes_of(dtype, recv_count);
    self.send_.grow(sent);
    self.recv_.grow(received);
    self.memory_.copy(self.send_.data(), send, sent);
    const octavo_status status =
        self.inner_->run(self.inner_->ctx, collective, dtype, self.send_.data(), send_count,
                         self.recv_.data(), recv_count, stream);
    if (status == OCTAVO_OK) self.memory_.copy(recv, self.recv_.data(), received);
    return status;
  } catch (...) {
    return OCTAVO_FAILED_DEVICE;  // the device's own message was already given
  }
  static octavo_status broadcast(void *ctx, uint32_t root, void *data, uint64_t bytes,
                                 void *stream) noexcept try {
    auto &self = *static_cast<DeviceCollective *>(ctx);
    self.send_.grow(bytes);
    self.memory_.copy(self.send_.data(), data, bytes);  // what the root sends
    const octavo_status status =
        self.inner_->broadcast(self.inner_->ctx, root, self.send_.data(), bytes, stream);
    if (status == OCTAVO_OK) self.memory_.copy(data, self.send_.data(), bytes);
    return status;
  } catch (...) {
    return OCTAVO_FAILED_DEVICE;
  }

  const Memory &memory_;
  const octavo_collective *inner_;
  octavo_collective table_ = make<octavo_collective>(OCTAVO_KIND_COLLECTIVE);
  Array<unsigned char> send_, recv_;
};

}  // namespace hpp
}  // namespace octavo

#endif
