// The table of prepared weights. A stack, as the projections of nn::MultiheadAttention are, is one
// tensor of the module with a site for each of its weights; torch multiplies by all of it or by a
// range of its rows.
#include "site_registry.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear_native.h>

#include <algorithm>
#include <mutex>

#include "octavo/torch/error.h"

namespace octavo::torch {
namespace {

int64_t end_of(const Site &site) {
  return site.weight->first_row + site.weight->rows;
}

// A range of rows and its site; null: torch's own product.
struct Part {
  const SitePointer *site;
  int64_t count;
};

// The ranges that make up the rows of the hit.
std::vector<Part> parts_of(const Hit &hit) {
  std::vector<Part> parts;
  int64_t next = hit.first;
  const int64_t end = hit.first + hit.rows;
  for (const SitePointer &site : *hit.pieces) {
    const int64_t first = site->weight->first_row;
    if (first < next || end_of(*site) > end) continue;
    if (first > next) parts.push_back({nullptr, first - next});
    parts.push_back({&site, site->weight->rows});
    next = end_of(*site);
  }
  if (next < end) parts.push_back({nullptr, end - next});
  return parts;
}

// Autocast has cast x only: a prepared weight stays what it is.
at::Tensor torch_linear(const at::Tensor &x, const at::Tensor &weight, const at::Tensor &bias) {
  const at::ScalarType type = x.scalar_type();
  return at::native::linear(
      x, weight.to(type), bias.defined() ? std::optional<at::Tensor>(bias.to(type)) : std::nullopt);
}

}  // namespace

at::Tensor call(const Hit &hit, const at::Tensor &x, const at::Tensor &bias) {
  const at::Tensor &whole = hit.first_site().weight->tensor;
  const at::Tensor range = hit.site != nullptr || hit.rows == whole.size(0)
                               ? whole
                               : whole.narrow(0, hit.first, hit.rows);
  if (is_plain_evaluation(hit.first_site())) return torch_linear(x, range, bias);
  if (hit.site != nullptr) return call_linear(hit.site, x, whole, bias);
  const std::vector<Part> parts = parts_of(hit);
  std::vector<int64_t> counts;
  for (const Part &part : parts) counts.push_back(part.count);
  // In one operator, whose derivative writes each gradient into its rows once.
  const std::vector<at::Tensor> weights = range.split_with_sizes(counts);
  std::vector<at::Tensor> results;
  int64_t first = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor part = bias.defined() ? bias.narrow(0, first, counts[i]) : bias;
    results.push_back(parts[i].site != nullptr ? call_linear(*parts[i].site, x, weights[i], part)
                                               : torch_linear(x, weights[i], part));
    first += counts[i];
  }
  return results.size() == 1 ? results[0] : at::cat(results, -1);
}

SiteRegistry &SiteRegistry::instance() {
  static auto *registry = new SiteRegistry;  // outlives every tensor that is freed at exit
  return *registry;
}

// offset: in elements from the first one of the stack. Nothing when a site has only some of the
// rows, or no site any of them.
Hit SiteRegistry::rows_of(const at::TensorBase &base, const Target &target, int64_t offset,
                          int64_t rows) const {
  const int64_t stride = base.stride(0);
  if (target.pieces == nullptr || stride < 1 || offset < 0 || offset % stride != 0) return {};
  const int64_t first = offset / stride;
  const int64_t end = first + rows;
  bool found = false;
  for (const SitePointer &site : *target.pieces) {
    if (end_of(*site) <= first || site->weight->first_row >= end) continue;
    if (site->weight->first_row < first || end_of(*site) > end) return {};
    found = true;
  }
  return found ? Hit{{}, target.pieces, first, rows} : Hit{};
}

Hit SiteRegistry::find(const at::Tensor &weight) const {
  if (count_.load(std::memory_order_acquire) == 0) return {};
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto found = targets_.find(weight.unsafeGetTensorImpl());
  if (found != targets_.end()) {
    const Target &target = found->second;
    return target.site != nullptr ? Hit{target.site, {}, 0, 0}
                                  : Hit{{}, target.pieces, 0, weight.size(0)};
  }
  if (weight.dim() != 2 || weight.is_inference() || !weight.is_view()) return {};
  const at::TensorBase &base = weight._base();
  const auto whole = targets_.find(base.unsafeGetTensorImpl());
  if (whole == targets_.end() || whole->second.pieces == nullptr || base.dim() != 2 ||
      weight.size(1) != base.size(1) || weight.strides() != base.strides())
    return {};
  return rows_of(base, whole->second, weight.storage_offset() - base.storage_offset(),
                 weight.size(0));
}

Hit SiteRegistry::find_transposed(const at::Tensor &t) const {
  if (count_.load(std::memory_order_acquire) == 0) return {};
  if (t.dim() != 2 || t.is_inference() || !t.is_view()) return {};
  const at::TensorBase &base = t._base();
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto found = targets_.find(base.unsafeGetTensorImpl());
  if (found == targets_.end() || t.size(0) != base.size(1) || t.stride(0) != base.stride(1) ||
      t.stride(1) != base.stride(0))
    return {};
  const int64_t offset = t.storage_offset() - base.storage_offset();
  const Target &target = found->second;
  if (target.site == nullptr) return rows_of(base, target, offset, t.size(1));
  if (t.size(1) != base.size(0) || offset != 0) return {};
  return Hit{target.site, {}, 0, 0};
}

void SiteRegistry::add(const std::vector<SitePointer> &sites) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  for (const SitePointer &site : sites) {
    if (targets_.count(site->weight->tensor.unsafeGetTensorImpl()) != 0)
      throw Error(OCTAVO_WRONG_STATE,
                  "linear \"" + site->name +
                      "\": expected a weight that is not prepared, found one that is; close the "
                      "Prepared of its model first");
  }
  std::unordered_map<const c10::TensorImpl *, Pieces> stacks;
  for (const SitePointer &site : sites) {
    const c10::TensorImpl *key = site->weight->tensor.unsafeGetTensorImpl();
    if (site->weight->is_piece) {
      stacks[key].push_back(site);
    } else {
      targets_.emplace(key, Target{site, nullptr});  // the first site: see placement.cpp on ties
    }
  }
  for (auto &[key, pieces] : stacks) {
    std::stable_sort(pieces.begin(), pieces.end(), [](const SitePointer &a, const SitePointer &b) {
      return a->weight->first_row < b->weight->first_row;
    });
    targets_.emplace(key, Target{{}, std::make_shared<const Pieces>(std::move(pieces))});
  }
  count_ = targets_.size();
}

void SiteRegistry::remove(const std::vector<SitePointer> &sites) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  for (const SitePointer &site : sites) {
    const auto found = targets_.find(site->weight->tensor.unsafeGetTensorImpl());
    if (found == targets_.end()) continue;
    const Target &target = found->second;
    if (target.site == site ||
        (target.pieces != nullptr &&
         std::find(target.pieces->begin(), target.pieces->end(), site) != target.pieces->end()))
      targets_.erase(found);
  }
  count_ = targets_.size();
}

}  // namespace octavo::torch
