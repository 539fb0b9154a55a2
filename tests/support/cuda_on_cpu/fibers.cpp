// The fibers of fibers.h: Boost.Context switches between them, and turns go round until all are
// done.
#include "fibers.h"

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "runtime.h"

constinit thread_local dim3 threadIdx;
constinit thread_local dim3 blockIdx;
constinit thread_local dim3 blockDim;
constinit thread_local dim3 gridDim;

namespace cuda_on_cpu {
namespace {

constexpr unsigned kWarp = 32;
constexpr size_t kStackBytes = 128 * 1024;

struct Lane {
  boost::context::fiber fiber;    // the lane's, while it does not run
  boost::context::fiber *caller;  // to give the turn back
  dim3 thread;
  unsigned index = 0;  // in its block
  bool is_done = true;
  uint64_t warp_operations = 0;
  uint64_t given[2] = {};  // by the last two operations of its warp
  const char *waits_for = nullptr;
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
                                           for (;;) {
                                             kernel_();
                                             lane.is_done = true;
                                             caller = std::move(caller).resume();
                                             if (ends_) return std::move(caller);
                                           }
                                         });
    }
  }
  ~Block() {
    ends_ = true;
    for (Lane &lane : lanes_) {
      if (started_) lane.fiber = std::move(lane.fiber).resume();
    }
  }

  void run(const dim3 &block, std::mt19937_64 &random) {
    started_ = true;
    waiting_ = 0;
    blockIdx = block;
    for (Lane &lane : lanes_) {
      lane.is_done = false;
      lane.warp_operations = 0;
    }
    const Script::Order order = script().order;
    if (order == Script::Order::kBackward && turns_.front() == 0)
      std::reverse(turns_.begin(), turns_.end());
    size_t left = lanes_.size();
    while (left > 0) {
      if (order == Script::Order::kShuffled) std::shuffle(turns_.begin(), turns_.end(), random);
      const uint64_t before = progress_;
      for (const unsigned i : turns_) {
        Lane &lane = lanes_[i];
        if (lane.is_done) continue;
        running_block = this;
        running_lane = &lane;
        threadIdx = lane.thread;
        lane.fiber = std::move(lane.fiber).resume();
        if (!lane.is_done) continue;
        ++progress_;
        --left;
      }
      if (left > 0 && progress_ == before) refuse_hang();
    }
    running_lane = nullptr;
  }

  void barrier() {
    const uint64_t mine = barriers_;
    ++progress_;
    if (++waiting_ == lanes_.size()) {
      waiting_ = 0;
      ++barriers_;
      return;
    }
    while (barriers_ == mine) give_turn("__syncthreads");
  }

  uint64_t exchange(unsigned mask, uint64_t value, unsigned from) {
    Lane &me = *running_lane;
    const unsigned first = me.index / kWarp * kWarp;
    if ((mask >> (me.index - first) & 1) == 0) refuse("a lane that is not in its own mask");
    const uint64_t operation = ++me.warp_operations;
    me.given[operation % 2] = value;
    ++progress_;
    while (!all_arrived(first, mask, operation)) give_turn("the lanes of its warp");
    return from < kWarp && first + from < lanes_.size() ? lanes_[first + from].given[operation % 2]
                                                        : value;
  }

 private:
  // A lane that is one operation ahead has kept its value of this one. Lanes beyond the block's
  // size do not exist, as in a mask of 32 ones.
  bool all_arrived(unsigned first, unsigned mask, uint64_t operation) const {
    for (unsigned i = 0; i < kWarp && first + i < lanes_.size(); ++i) {
      if ((mask >> i & 1) != 0 && lanes_[first + i].warp_operations < operation) return false;
    }
    return true;
  }

  void give_turn(const char *reason) {
    Lane &me = *running_lane;
    me.waits_for = reason;
    *me.caller = std::move(*me.caller).resume();
    me.waits_for = nullptr;
  }

  [[noreturn]] void refuse(const char *what) const {
    std::fprintf(stderr, "device code: %s (thread %u)\n", what, running_lane->index);
    std::abort();
  }
  [[noreturn]] void refuse_hang() const {
    std::fprintf(stderr, "device code hangs: ");
    for (const Lane &lane : lanes_) {
      if (!lane.is_done) {
        std::fprintf(stderr, "thread %u of block %u waits for %s, which others left\n", lane.index,
                     blockIdx.x, lane.waits_for);
        break;
      }
    }
    std::abort();
  }

  const std::function<void()> &kernel_;
  std::vector<Lane> lanes_;
  std::vector<unsigned> turns_;
  boost::context::pooled_fixedsize_stack stacks_;
  bool started_ = false;
  bool ends_ = false;
  size_t waiting_ = 0;
  uint64_t barriers_ = 0;
  uint64_t progress_ = 0;
};

}  // namespace

void block_barrier() {
  running_block->barrier();
}
uint64_t exchange(unsigned mask, uint64_t value, unsigned lane) {
  return running_block->exchange(mask, value, lane);
}
unsigned lane_id() {
  return running_lane->index % kWarp;
}

unsigned ballot(unsigned mask, bool vote) {
  unsigned votes = 0;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const uint64_t of_lane = exchange(mask, vote ? 1 : 0, lane);
    if ((mask >> lane & 1) != 0 && of_lane != 0) votes |= 1u << lane;
  }
  return votes;
}

void run_grid(const dim3 &grid, const dim3 &block, const std::function<void()> &kernel) {
  std::mt19937_64 random(script().seed);
  std::vector<unsigned> blocks(size_t{grid.x} * grid.y * grid.z);
  std::iota(blocks.begin(), blocks.end(), 0u);
  if (script().order == Script::Order::kBackward) std::reverse(blocks.begin(), blocks.end());
  if (script().order == Script::Order::kShuffled)
    std::shuffle(blocks.begin(), blocks.end(), random);
  blockDim = block;
  gridDim = grid;
  Block threads(block, kernel);
  for (const unsigned i : blocks) {
    threads.run(dim3(i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y), random);
  }
}

}  // namespace cuda_on_cpu
