// Which weights are prepared, and where a product with one of them, or with rows of one, runs.
#pragma once

#include <atomic>
#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "linear_call.h"

namespace octavo::torch {

// The sites of one tensor that stacks several weights, in the order of their rows.
using Pieces = std::vector<SitePointer>;

// What an operand turned out to be: a prepared weight, or rows of a tensor that stacks some.
struct Hit {
  SitePointer site;                      // of the whole tensor; or
  std::shared_ptr<const Pieces> pieces;  // of a stack,
  int64_t first = 0;                     // of which these rows are meant
  int64_t rows = 0;

  explicit operator bool() const { return site != nullptr || pieces != nullptr; }
  const Site &first_site() const { return site != nullptr ? *site : *pieces->front(); }
};

// y [..., out_features] of x. Rows of a stack that no site has are torch's own product, and so is
// all of an evaluation in the host's precision.
at::Tensor call(const Hit &hit, const at::Tensor &x, const at::Tensor &bias);

// The sites of each prepared weight, by identity of the module's tensor. The sites hold their
// weights, so an address in the table is never that of another tensor. THREAD_ANY.
class SiteRegistry {
 public:
  static SiteRegistry &instance();

  // Of a weight [out, in], or of rows of one.
  Hit find(const at::Tensor &weight) const;
  // Of the weight whose transpose this is.
  Hit find_transposed(const at::Tensor &t) const;

  // All of them or none. Throws Error when one is there already.
  void add(const std::vector<SitePointer> &sites);
  void remove(const std::vector<SitePointer> &sites);

 private:
  struct Target {
    SitePointer site;
    std::shared_ptr<const Pieces> pieces;
  };
  Hit rows_of(const at::TensorBase &base, const Target &target, int64_t offset, int64_t rows) const;

  mutable std::shared_mutex mutex_;
  std::unordered_map<const c10::TensorImpl *, Target> targets_;
  std::atomic<size_t> count_ = 0;
};

// Whether this library has dispatcher kernels for a type of devices.
bool can_intercept(at::DeviceType type);
// From here on a linear with these sites' weights, on a device of this type, runs through them; all
// or none. The process's dispatcher gets its kernels at the first call for a type. THREAD_ANY.
void intercept(const std::vector<SitePointer> &sites, at::DeviceType type);
void release(const std::vector<SitePointer> &sites);

}  // namespace octavo::torch
