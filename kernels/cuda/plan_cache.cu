/* The bounded store of plans. */
#include "kernels/cuda/plan_cache.h"

#include <new>
#include <utility>

namespace octavo::cuda {

PlanCache::Entry::~Entry() {
  destroy_plan(blas, &plan);
  while (spare_count > 0) blas.MatmulDescDestroy(spares[--spare_count]);
}

PlanCache::~PlanCache() = default;

const Plan &PlanCache::plan_of(const Lease &lease) {
  return lease.entry->plan;
}

size_t PlanCache::size() const {
  const std::lock_guard<std::mutex> hold(lock_);
  return entries_.size();
}

void PlanCache::clear() {
  const std::lock_guard<std::mutex> hold(lock_);
  entries_.clear();
}

/* The lock is held. */
PlanCache::Entry *PlanCache::find(const PlanKey &key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  Entry *entry = found->second.get();
  ++entry->users;
  entry->used_at = ++clock_;
  return entry;
}

/* The lock is held; calls in flight keep their plans. */
void PlanCache::drop_oldest() {
  auto oldest = entries_.end();
  for (auto at = entries_.begin(); at != entries_.end(); ++at) {
    if (at->second->users > 0) continue;
    if (oldest == entries_.end() || at->second->used_at < oldest->second->used_at) oldest = at;
  }
  if (oldest != entries_.end()) entries_.erase(oldest);
}

/* Another thread may have made the same plan meanwhile: then that one is used. */
PlanCache::Entry *PlanCache::insert(const PlanKey &key, std::unique_ptr<Entry> made) {
  const std::lock_guard<std::mutex> hold(lock_);
  if (entries_.find(key) == entries_.end()) {
    if (entries_.size() >= most_) drop_oldest();
    entries_.emplace(key, std::move(made));
  }
  return find(key);
}

cublasStatus_t PlanCache::take(const PlanKey &key, const Tuning &tuning, Lease *out) {
  *out = {};
  {
    const std::lock_guard<std::mutex> hold(lock_);
    out->entry = find(key);
    if (out->entry != nullptr && out->entry->spare_count > 0)
      out->descriptor = out->entry->spares[--out->entry->spare_count];
  }
  if (out->entry == nullptr) {
    try {
      auto made = std::make_unique<Entry>(blas_);
      const cublasStatus_t status = make_plan(blas_, key, tuning, &made->plan);
      if (status != CUBLAS_STATUS_SUCCESS) return status;
      out->entry = insert(key, std::move(made));
    } catch (const std::bad_alloc &) {
      return CUBLAS_STATUS_ALLOC_FAILED;
    }
  }
  if (out->descriptor != nullptr || !out->entry->plan.is_possible) return CUBLAS_STATUS_SUCCESS;
  const cublasStatus_t status = make_descriptor(blas_, key, &out->descriptor);
  if (status == CUBLAS_STATUS_SUCCESS) return status;
  if (out->descriptor != nullptr) blas_.MatmulDescDestroy(out->descriptor);
  out->descriptor = nullptr;
  give_back(*out);
  *out = {};
  return status;
}

void PlanCache::give_back(const Lease &lease) {
  cublasLtMatmulDesc_t extra = lease.descriptor;
  {
    const std::lock_guard<std::mutex> hold(lock_);
    Entry &entry = *lease.entry;
    --entry.users;
    if (extra != nullptr && entry.spare_count < Entry::kSpares) {
      entry.spares[entry.spare_count++] = extra;
      extra = nullptr;
    }
  }
  if (extra != nullptr) blas_.MatmulDescDestroy(extra);
}

}  // namespace octavo::cuda
