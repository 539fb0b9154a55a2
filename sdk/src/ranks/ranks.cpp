// octavo_ranks: ranks as threads of one process, whose collectives read and write each other's
// memory between two barriers.
//
// A round that every rank has entered always runs to its end, abort or not: a rank that left early
// could free memory that another one still reads. No call allocates.
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "octavo/octavo.h"
#include "sdk/src/base/fork.h"
#include "sdk/src/base/handles.h"
#include "sdk/src/ranks/process_ranks.h"
#include "sdk/src/ranks/rank_call.h"

struct octavo_ranks {
 public:
  explicit octavo_ranks(uint32_t world)
      : members_(world), tables_(world), calls_(world), present_(world, 0) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      members_[rank] = {this, rank};
      octavo_collective &t = tables_[rank];
      t = {};
      t.size = sizeof(t);
      t.kind = OCTAVO_KIND_COLLECTIVE;
      t.ctx = &members_[rank];
      t.world = world;
      t.run = run;
      t.broadcast = broadcast;
    }
  }

  const octavo_collective *table(uint32_t rank) const {
    return rank < tables_.size() ? &tables_[rank] : nullptr;
  }

  // Whether the ranks that wait here are threads of another process.
  bool is_inherited() const { return made_at_ != octavo::fork_count(); }

  void abort() {
    if (is_inherited()) return;  // nobody waits, and the lock may never be free
    // Waiters are woken under the lock: once it is free, this object may be closed.
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }

 private:
  struct Member {
    octavo_ranks *ranks = nullptr;
    uint32_t rank = 0;
  };

  static octavo_status run(void *ctx, uint32_t collective, uint32_t dtype, const void *send,
                           uint64_t send_count, void *recv, uint64_t recv_count, void *) {
    const auto *m = static_cast<const Member *>(ctx);
    return m->ranks->enter(m->rank,
                           octavo::run_call(collective, dtype, send, send_count, recv, recv_count));
  }

  static octavo_status broadcast(void *ctx, uint32_t root, void *data, uint64_t bytes, void *) {
    const auto *m = static_cast<const Member *>(ctx);
    return m->ranks->enter(m->rank, octavo::broadcast_call(root, m->rank, data, bytes));
  }

  octavo_status enter(uint32_t rank, const octavo::RankCall &call) {
    if (is_inherited()) return OCTAVO_WRONG_STATE;  // the other ranks did not come along
    std::unique_lock lock(mutex_);
    if (aborted_) return OCTAVO_FAILED_DEVICE;
    if (present_[rank] != 0) return OCTAVO_WRONG_STATE;  // a second thread with the same rank
    const uint64_t round = ended_;
    calls_[rank] = call;
    present_[rank] = 1;
    if (++arrived_ == calls_.size()) {
      verdict_ = octavo::check_calls(calls_);
      started_ = round + 1;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return started_ > round || aborted_; });
    if (started_ == round) return OCTAVO_FAILED_DEVICE;
    const octavo_status verdict = verdict_;
    lock.unlock();
    if (verdict == OCTAVO_OK) octavo::perform(calls_, rank);
    lock.lock();
    if (++finished_ == calls_.size()) {
      arrived_ = finished_ = 0;
      std::fill(present_.begin(), present_.end(), 0);
      ended_ = round + 1;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return ended_ > round; });
    return verdict;
  }

  std::vector<Member> members_;
  std::vector<octavo_collective> tables_;
  // Written under mutex_ before a round starts; read without it by every rank while it runs.
  std::vector<octavo::RankCall> calls_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<char> present_;
  size_t arrived_ = 0;
  size_t finished_ = 0;
  uint64_t started_ = 0;  // rounds
  uint64_t ended_ = 0;
  octavo_status verdict_ = OCTAVO_OK;
  bool aborted_ = false;
  const uint64_t made_at_ = octavo::fork_count();
};

octavo_status octavo_ranks_open(uint32_t world, octavo_ranks **out) {
  if (out == nullptr || world < 1 || world > 4096) return OCTAVO_INVALID;
  return octavo::guarded(nullptr, [&] {
    *out = octavo::open_handle(std::make_unique<octavo_ranks>(world));
    octavo::add_process_world(world);
  });
}

const octavo_collective *octavo_ranks_collective(octavo_ranks *r, uint32_t rank) {
  const octavo_ranks *ranks = octavo::find_handle(r);
  return ranks == nullptr ? nullptr : ranks->table(rank);
}

void octavo_ranks_abort(octavo_ranks *r) {
  octavo_ranks *ranks = octavo::find_handle(r);
  if (ranks != nullptr) ranks->abort();
}

void octavo_ranks_close(octavo_ranks *r) {
  octavo::close_or_retire(r);
}
