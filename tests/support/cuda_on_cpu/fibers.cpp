// The fibers of fibers.h: Boost.Context switches between them, and turns go round until all are
// done. ThreadSanitizer never instruments this file: what it says by race_detector.h is all that is
// known of the order of threads.
#include "fibers.h"

#include <algorithm>
#include <atomic>
#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "race_detector.h"
#include "runtime.h"
#include "shared_memory.h"

constinit thread_local dim3 threadIdx;
constinit thread_local dim3 blockIdx;
constinit thread_local dim3 blockDim;
constinit thread_local dim3 gridDim;

namespace cuda_on_cpu {
namespace {

constexpr unsigned kWarp = 32;
constexpr size_t kStackBytes = 128 * 1024;
constexpr size_t kMostAtOnce = 64;         // blocks
constexpr size_t kMostLanesAtOnce = 2048;  // to ThreadSanitizer each is a thread, and it knows 8128

struct Lane {
  boost::context::fiber fiber;    // the lane's, while it does not run
  boost::context::fiber *caller;  // to give the turn back
  dim3 thread;
  unsigned index = 0;  // in its block
  enum { kNothing, kBarrier, kWarpOperation, kEnd, kFailure } waits_for = kEnd;
  unsigned mask = 0;      // of the operation that it waits for
  uint64_t barriers = 0;  // that the block had passed when it came to one
  uint64_t warp_operations = 0;
  uint64_t given[2] = {};  // by the last two operations of its warp
  char met[2] = {};        // of the first lane: what its warp signals in them
  struct {
    unsigned lanes, mask;
    uint64_t operation;
  } arrived[2] = {};  // of the first lane: so many of its warp are not missing in these operations
  LogicalThread logical;
};

// Kept between grids: new ones would be a page fault a lane.
boost::context::pooled_fixedsize_stack &stacks() {
  thread_local boost::context::pooled_fixedsize_stack all(kStackBytes);
  return all;
}

class Block;
thread_local Block *running_block = nullptr;
thread_local Lane *running_lane = nullptr;

// Lanes live for a whole grid: a fiber that ended a block waits for the next one.
class Block {
 public:
  Block(const dim3 &block, const std::function<void()> &kernel)
      : kernel_(kernel),
        lanes_(size_t{block.x} * block.y * block.z),
        turns_(lanes_.size()),
        stacks_(stacks()) {
    std::iota(turns_.begin(), turns_.end(), 0u);
    for (unsigned i = 0; i < lanes_.size(); ++i) {
      Lane &lane = lanes_[i];
      lane.index = i;
      lane.thread = dim3(i % block.x, i / block.x % block.y, i / block.x / block.y);
      lane.fiber = boost::context::fiber(std::allocator_arg, stacks_,
                                         [this, &lane](boost::context::fiber &&caller) {
                                           lane.caller = &caller;
                                           while (!ends_) run_kernel();
                                           return std::move(caller);
                                         });
    }
  }
  ~Block() {
    ends_ = true;
    for (Lane &lane : lanes_) {
      if (!started_) continue;
      if (lane.waits_for == Lane::kEnd)
        lane.fiber = std::move(lane.fiber).resume();
      else
        new boost::context::fiber(std::move(lane.fiber));  // after a failure; it never ends
    }
  }

  cudaError_t run(const dim3 &block, std::mt19937_64 &random) {
    started_ = true;
    waiting_ = 0;
    blockIdx = block;
    for (Lane &lane : lanes_) {
      lane.waits_for = Lane::kNothing;
      lane.warp_operations = 0;
      lane.arrived[0] = lane.arrived[1] = {};
    }
    order_ = script().order;
    if (order_ == Script::Order::kBackward && turns_.front() == 0)
      std::reverse(turns_.begin(), turns_.end());
    if (order_ == Script::Order::kUnfair) std::shuffle(turns_.begin(), turns_.end(), random);
    const size_t warps = (lanes_.size() + kWarp - 1) / kWarp;
    const size_t starved = order_ == Script::Order::kUnfair && warps > 1 ? random() % warps : warps;
    running_block = this;
    left_ = lanes_.size();
    signal(&begun_);  // the launch, and the block before, whose memory this one takes over
    while (left_ > 0 && failed_ == cudaSuccess) {
      if (order_ == Script::Order::kShuffled) std::shuffle(turns_.begin(), turns_.end(), random);
      const bool others_ran = give_turns([&](unsigned i) { return i / kWarp != starved; });
      if (others_ran) continue;
      const bool ran = give_turns([&](unsigned i) { return i / kWarp == starved; });
      if (!ran) refuse_hang();
    }
    running_lane = nullptr;
    if (failed_ != cudaSuccess) {  // what those did that will never end
      for (const Lane &lane : lanes_) {
        lane.logical.enter();
        signal(&ended_);
      }
      logical_.enter();
    }
    wait_for(&ended_);
    return failed_;
  }

  void barrier() {
    Lane &me = *running_lane;
    me.barriers = barriers_;
    char *const all = &passed_[barriers_ % 2];
    signal(all);
    if (++waiting_ == lanes_.size()) {
      waiting_ = 0;
      ++barriers_;
    }
    give_turn(Lane::kBarrier);
    wait_for(all);
  }

  // All lanes of `mask` give a value; the number of this operation, for given().
  uint64_t meet(unsigned mask, uint64_t value) {
    Lane &me = *running_lane;
    if ((mask >> me.index % kWarp & 1) == 0) refuse("a lane that is not in its own mask");
    const uint64_t operation = ++me.warp_operations;
    me.given[operation % 2] = value;
    me.mask = mask;
    give_turn(Lane::kWarpOperation);
    return operation;
  }
  // What a lane of the warp gave; `otherwise` where it does not exist.
  uint64_t given(unsigned lane, uint64_t operation, uint64_t otherwise) const {
    const size_t at = running_lane->index / kWarp * kWarp + lane;
    return lane < kWarp && at < lanes_.size() ? lanes_[at].given[operation % 2] : otherwise;
  }
  // Of the lanes of a mask, as __syncwarp does.
  void order_memory(unsigned mask) {
    Lane &me = *running_lane;
    char *const all = &lanes_[me.index / kWarp * kWarp].met[(me.warp_operations + 1) % 2];
    signal(all);
    meet(mask, 0);
    wait_for(all);
  }

  [[noreturn]] void fail(cudaError_t error) {
    failed_ = error;
    for (;;) give_turn(Lane::kFailure);
  }

 private:
  void run_kernel() {
    wait_for(&begun_);
    kernel_();
    signal(&ended_);
    --left_;
    give_turn(Lane::kEnd);
  }

  // Whether one of those lanes could run.
  template <typename Which>
  bool give_turns(Which &&is_meant) {
    bool ran = false;
    for (const unsigned i : turns_) {
      Lane &lane = lanes_[i];
      if (!is_meant(i) || !is_ready(lane)) continue;
      ran = true;
      running_lane = &lane;
      threadIdx = lane.thread;
      lane.waits_for = Lane::kNothing;
      lane.logical.enter();
      lane.fiber = std::move(lane.fiber).resume();
      if (failed_ != cudaSuccess) break;
    }
    return ran;
  }

  bool is_ready(const Lane &lane) {
    switch (lane.waits_for) {
      case Lane::kNothing: return true;
      case Lane::kBarrier: return lane.barriers != barriers_;
      case Lane::kWarpOperation: return all_arrived(lane);
      default: return false;
    }
  }
  // A lane that is one operation ahead has kept its value of this one. Lanes beyond the block's
  // size do not exist, as in a mask of 32 ones.
  bool all_arrived(const Lane &lane) {
    const unsigned first = lane.index / kWarp * kWarp;
    auto &arrived = lanes_[first].arrived[lane.warp_operations % 2];
    if (arrived.operation != lane.warp_operations || arrived.mask != lane.mask)
      arrived = {0, lane.mask, lane.warp_operations};
    for (unsigned &i = arrived.lanes; i < kWarp && first + i < lanes_.size(); ++i) {
      if ((lane.mask >> i & 1) != 0 && lanes_[first + i].warp_operations < lane.warp_operations)
        return false;
    }
    return true;
  }

  // Whoever was the last to come goes on at once, but in the unfair order, where others are first.
  void give_turn(decltype(Lane::waits_for) reason) {
    Lane &me = *running_lane;
    me.waits_for = reason;
    if (order_ != Script::Order::kUnfair && is_ready(me)) return;
    logical_.enter();
    *me.caller = std::move(*me.caller).resume();
  }

  [[noreturn]] void refuse(const char *what) const {
    std::fprintf(stderr, "device code: %s (thread %u)\n", what, running_lane->index);
    std::abort();
  }
  [[noreturn]] void refuse_hang() const {
    std::fprintf(stderr, "device code hangs: ");
    for (const Lane &lane : lanes_) {
      if (lane.waits_for == Lane::kEnd) continue;
      std::fprintf(stderr, "thread %u of block %u waits for %s, which others left\n", lane.index,
                   blockIdx.x,
                   lane.waits_for == Lane::kBarrier ? "__syncthreads" : "the lanes of its warp");
      break;
    }
    std::abort();
  }

  const std::function<void()> &kernel_;
  std::vector<Lane> lanes_;
  std::vector<unsigned> turns_;
  boost::context::pooled_fixedsize_stack stacks_;
  LogicalThread logical_ = LogicalThread::current();
  Script::Order order_ = Script::Order::kForward;
  cudaError_t failed_ = cudaSuccess;
  bool started_ = false;
  bool ends_ = false;
  size_t left_ = 0;  // lanes that have not ended
  size_t waiting_ = 0;
  uint64_t barriers_ = 0;
  char passed_[2] = {};  // what the lanes of one barrier in two signal
  char begun_ = 0;
  char ended_ = 0;
};

}  // namespace

void block_barrier() {
  running_block->barrier();
}
void warp_barrier(unsigned mask) {
  running_block->order_memory(mask);
}
uint64_t exchange(unsigned mask, uint64_t value, unsigned lane) {
  return running_block->given(lane, running_block->meet(mask, value), value);
}
unsigned lane_id() {
  return running_lane->index % kWarp;
}

unsigned ballot(unsigned mask, bool vote) {
  const uint64_t operation = running_block->meet(mask, vote ? 1 : 0);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if ((mask >> lane & 1) != 0 && running_block->given(lane, operation, 0) != 0)
      votes |= 1u << lane;
  }
  return votes;
}

// Two fences in turn order what is before the first and what is behind the second.
void thread_fence() {
  static char all_fences;
  wait_for(&all_fences);
  signal(&all_fences);
}

void fail_in_kernel(cudaError_t error) {
  if (running_lane == nullptr) std::abort();
  running_block->fail(error);
}

void run_grid(const dim3 &grid, const dim3 &block, const void *function,
              const std::function<void()> &kernel) {
  const SharedMemory shared(function);
  const Script &s = script();
  const uint64_t seed = s.seed * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(counters().launches);
  std::mt19937_64 random(seed);
  std::vector<unsigned> blocks(size_t{grid.x} * grid.y * grid.z);
  std::iota(blocks.begin(), blocks.end(), 0u);
  if (s.order == Script::Order::kBackward) std::reverse(blocks.begin(), blocks.end());
  if (s.order == Script::Order::kShuffled || s.order == Script::Order::kUnfair)
    std::shuffle(blocks.begin(), blocks.end(), random);
  const auto run = [&](Block &threads, unsigned i, std::mt19937_64 &numbers) {
    shared.poison();
    return threads.run(dim3(i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y), numbers);
  };
  const auto begin = [&] {
    blockDim = block;
    gridDim = grid;
  };
  std::atomic<cudaError_t> error = cudaSuccess;
  // Of one address of memory that comes again the race detector knows nothing from before, so
  // blocks are on the heap.
  const size_t lanes = blocks.size() * block.x * block.y * block.z;
  if (s.blocks_at_once && blocks.size() <= kMostAtOnce && lanes <= kMostLanesAtOnce) {
    std::vector<std::thread> threads;
    for (const unsigned i : blocks) {
      threads.emplace_back([&, i] {
        begin();
        std::mt19937_64 numbers(seed + i);
        const auto one = std::make_unique<Block>(block, kernel);
        const cudaError_t found = run(*one, i, numbers);
        if (found != cudaSuccess) error = found;
      });
    }
    for (std::thread &thread : threads) thread.join();
  } else {
    begin();
    const auto all = std::make_unique<Block>(block, kernel);
    for (size_t i = 0; i < blocks.size() && error == cudaSuccess; ++i)
      error = run(*all, blocks[i], random);
  }
  LogicalThread::reuse();
  if (error != cudaSuccess) fail_later(error);
}

}  // namespace cuda_on_cpu
