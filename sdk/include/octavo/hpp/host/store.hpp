// octavo/hpp/host/store.hpp: slots in host memory, threads, and ranks of one process.
//
// What must not go wrong: a store lives no longer than its run, a run no longer than its threads.
#ifndef OCTAVO_HPP_HOST_STORE_HPP
#define OCTAVO_HPP_HOST_STORE_HPP

#include <memory>
#include <string>

#include "octavo/hpp/host/run.hpp"

namespace octavo {
inline namespace hpp {

class Store {
 public:
  explicit Store(const Run &run) : host_(&run.host()) {
    octavo_store *s = nullptr;
    host_->require(octavo_store_open(run.get(), &s), "octavo_store_open");
    store_.reset(s);
  }
  // One rank of `world`: slots that may live on one rank are allocated on one only.
  Store(const Run &run, uint32_t rank, uint32_t world) : host_(&run.host()) {
    octavo_store *s = nullptr;
    host_->require(octavo_store_open_sharded(run.get(), rank, world, &s),
                   "octavo_store_open_sharded");
    store_.reset(s);
  }

  octavo_store *get() const { return store_.get(); }

  // After each seal.
  void extend() { host_->require(octavo_store_extend(get()), "octavo_store_extend"); }
  // The host's own tensor for a native slot: its weight. Lists taken before are no longer valid.
  void native(uint32_t parameter, void *data, uint32_t role = OCTAVO_ROLE_WEIGHT) {
    host_->require(octavo_store_native(get(), parameter, role, data), "octavo_store_native");
  }
  void *const *list(uint32_t verb, uint32_t owner_kind, uint32_t owner) const noexcept {
    return octavo_store_list(get(), verb, owner_kind, owner);
  }
  void *address(uint32_t slot) const { return octavo_store_address(get(), slot); }
  uint64_t bytes(uint32_t role = 0) const { return octavo_store_bytes(get(), role); }
  uint32_t owner(uint32_t parameter) const noexcept { return octavo_store_owner(get(), parameter); }
  void clear(uint32_t role) {
    host_->require(octavo_store_clear(get(), role), "octavo_store_clear");
  }

  void save(std::string_view directory, uint64_t step) const {
    host_->require(octavo_store_save(get(), borrow(directory), step), "octavo_store_save");
  }
  // The step that was saved.
  uint64_t load(std::string_view directory) {
    uint64_t step = 0;
    host_->require(octavo_store_load(get(), borrow(directory), &step), "octavo_store_load");
    return step;
  }

  void reduce(const octavo_collective *c, void *stream = nullptr) {
    host_->require(octavo_store_reduce(get(), c, stream), "octavo_store_reduce");
  }
  void publish(const octavo_collective *c, void *stream = nullptr) {
    host_->require(octavo_store_publish(get(), c, stream), "octavo_store_publish");
  }

 private:
  struct Close {
    void operator()(octavo_store *s) const { octavo_store_close(s); }
  };
  Host *host_;
  std::unique_ptr<octavo_store, Close> store_;
};

// A thread pool for CPU kernels: host.set_parallel(threads.parallel()).
class Threads {
 public:
  // The caller counts; 0: one per core that this process may use.
  explicit Threads(uint32_t count = 0) {
    octavo_threads *t = nullptr;
    if (const octavo_status status = octavo_threads_open(count, &t); status != OCTAVO_OK)
      throw Error("octavo_threads_open", status, {});
    threads_.reset(t);
  }
  const octavo_parallel *parallel() const { return octavo_threads_parallel(threads_.get()); }

 private:
  struct Close {
    void operator()(octavo_threads *t) const { octavo_threads_close(t); }
  };
  std::unique_ptr<octavo_threads, Close> threads_;
};

// Ranks as threads of this process.
class Ranks {
 public:
  explicit Ranks(uint32_t world) {
    octavo_ranks *r = nullptr;
    if (const octavo_status status = octavo_ranks_open(world, &r); status != OCTAVO_OK)
      throw Error("octavo_ranks_open", status, {});
    ranks_.reset(r);
  }
  // Null when there is no such rank.
  const octavo_collective *collective(uint32_t rank) const {
    return octavo_ranks_collective(ranks_.get(), rank);
  }
  // What a rank that fails calls, so that the others do not wait for it.
  void abort() noexcept { octavo_ranks_abort(ranks_.get()); }

 private:
  struct Close {
    void operator()(octavo_ranks *r) const { octavo_ranks_close(r); }
  };
  std::unique_ptr<octavo_ranks, Close> ranks_;
};

}  // namespace hpp
}  // namespace octavo

#endif
