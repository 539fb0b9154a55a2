// octavo/hpp/host/store.hpp: slot memory, and a thread pool.
//
// A run must outlive its stores, and a thread pool the runs that use it.
#ifndef OCTAVO_HPP_HOST_STORE_HPP
#define OCTAVO_HPP_HOST_STORE_HPP

#include <memory>
#include <string>
#include <type_traits>

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
  // For one rank of `world`: slots with OCTAVO_SHARD_WHOLE are allocated on their owner only.
  Store(const Run &run, uint32_t rank, uint32_t world) : host_(&run.host()) {
    octavo_store *s = nullptr;
    host_->require(octavo_store_open_sharded(run.get(), rank, world, &s),
                   "octavo_store_open_sharded");
    store_.reset(s);
  }

  octavo_store *get() const { return store_.get(); }

  // Allocates the slots of later seals; call it after each. Invalidates lists.
  void extend() { host_->require(octavo_store_extend(get()), "octavo_store_extend"); }
  // Sets the host's tensor for a native slot, such as its weight. Invalidates lists.
  void native(uint32_t parameter, void *data, uint32_t role = OCTAVO_ROLE_WEIGHT) {
    host_->require(octavo_store_native(get(), parameter, role, data), "octavo_store_native");
  }
  // As native, where the backend looks at the host's tensor of this role; else does nothing.
  void lend(const Run &run, uint32_t parameter, void *data, uint32_t role = OCTAVO_ROLE_WEIGHT) {
    const octavo_slot *slot = run.slot(OCTAVO_OWNER_PARAMETER, parameter, role);
    if (slot != nullptr && (slot->flags & OCTAVO_SLOT_NATIVE) != 0) native(parameter, data, role);
  }
  void *const *list(uint32_t verb, uint32_t owner_kind, uint32_t owner) const noexcept {
    return octavo_store_slots(get(), verb, owner_kind, owner);
  }
  void *address(uint32_t slot) const { return octavo_store_address(get(), slot); }
  // Not 0 where a cast of this step met infinity or NaN, which FP8 codes do not keep; on the run's
  // device. Null: the backend has no such flag.
  const float *nonfinite(const Run &run) const {
    const octavo_slot *slot = run.slot(OCTAVO_OWNER_SESSION, 0, OCTAVO_ROLE_NONFINITE);
    return slot == nullptr ? nullptr : static_cast<const float *>(address(slot->id));
  }
  uint64_t bytes(uint32_t role = 0) const { return octavo_store_bytes(get(), role); }
  uint32_t owner(uint32_t parameter) const noexcept { return octavo_store_owner(get(), parameter); }
  void clear(uint32_t role) {
    host_->require(octavo_store_clear(get(), role), "octavo_store_clear");
  }

  void save(std::string_view directory, uint64_t step) const {
    host_->require(octavo_store_save(get(), borrow(directory), step), "octavo_store_save");
  }
  // Returns the step that was passed to save().
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

// A thread pool for CPU kernels, host.set_parallel(threads.parallel()), and for the host's loops.
class Threads {
 public:
  // `count` includes the caller; 0 means one per core that this process may use.
  explicit Threads(uint32_t count = 0) {
    octavo_threads *t = nullptr;
    if (const octavo_status status = octavo_threads_open(count, &t); status != OCTAVO_OK)
      throw Error("octavo_threads_open", status, {});
    threads_.reset(t);
  }
  const octavo_parallel *parallel() const { return octavo_threads_parallel(threads_.get()); }
  // For the host's own loops: body(begin, end) for disjoint ranges that cover [0, count), each of
  // about `grain` or more. A body whose result does not depend on the cuts gives equal bits on any
  // number of threads.
  template <typename Body>
  void for_ranges(int64_t count, int64_t grain, Body &&body) const {
    using Plain = std::remove_reference_t<Body>;
    const octavo_parallel *p = parallel();
    auto call = [](void *arg, int64_t begin, int64_t end) {
      (*static_cast<Plain *>(arg))(begin, end);
    };
    if (const octavo_status status = p->parallel_for(p->ctx, 0, count, grain, call, &body);
        status != OCTAVO_OK)
      throw Error("parallel_for", status, {});
  }

 private:
  struct Close {
    void operator()(octavo_threads *t) const { octavo_threads_close(t); }
  };
  std::unique_ptr<octavo_threads, Close> threads_;
};

}  // namespace hpp
}  // namespace octavo

#endif
