/* kernels/cuda/plan_cache.h: the plans of a device, made once and kept.
 *
 * A hit allocates nothing and holds the lock for a look-up: cuBLASLt itself is called outside of
 * it. A plan's descriptor carries the addresses of one call, so each call in flight has one to
 * itself; a plan keeps a few.
 */
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "kernels/cuda/plan.h"

namespace octavo::cuda {

class PlanCache {
 public:
  /* More plans than this are kept only while all of them are in use. */
  static constexpr size_t kMost = 4096;

  explicit PlanCache(const Blas &blas, size_t most = kMost) : blas_(blas), most_(most) {}
  ~PlanCache();
  PlanCache(const PlanCache &) = delete;
  PlanCache &operator=(const PlanCache &) = delete;

  /* A plan, and a descriptor for one call. */
  struct Entry;
  struct Lease {
    Entry *entry = nullptr;
    cublasLtMatmulDesc_t descriptor = nullptr; /* null where the plan is not possible */
  };

  /* Finds or makes the plan of the key; a lease that was given goes back by give_back.
   * CUBLAS_STATUS_ALLOC_FAILED also where the host's memory is full. */
  cublasStatus_t take(const PlanKey &key, const Tuning &tuning, Lease *out);
  void give_back(const Lease &lease);
  static const Plan &plan_of(const Lease &lease);

  size_t size() const;
  /* Drops every plan; none may be in use. */
  void clear();

 private:
  Entry *find(const PlanKey &key);
  Entry *insert(const PlanKey &key, std::unique_ptr<Entry> made);
  void drop_oldest();

  const Blas &blas_;
  const size_t most_;
  mutable std::mutex lock_;
  std::unordered_map<PlanKey, std::unique_ptr<Entry>, PlanHash> entries_;
  uint64_t clock_ = 0; /* takes */
};

struct PlanCache::Entry {
  static constexpr int kSpares = 4;

  explicit Entry(const Blas &b) : blas(b) {}
  ~Entry();
  Entry(const Entry &) = delete;
  Entry &operator=(const Entry &) = delete;

  const Blas &blas;
  Plan plan;
  cublasLtMatmulDesc_t spares[kSpares] = {};
  int spare_count = 0;
  int users = 0; /* calls in flight */
  uint64_t used_at = 0;
};

}  // namespace octavo::cuda
