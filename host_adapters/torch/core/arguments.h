// From tensors to what the contract takes: matrices, and the pointer list of one call.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "entry.h"
#include "error.h"
#include "octavo/hpp/text.hpp"
#include "view.h"

namespace octavo::core {

// Throws unless the status of a verb is OCTAVO_OK, with the verb and the object's name.
inline void check(octavo_status status, const char *verb, const Entry &e, uint32_t owner_kind,
                  int64_t owner) {
  if (status != OCTAVO_OK) raise(status, std::string(verb) + " of " + e.name(owner_kind, owner));
}

// A call of the contract on the run's stream, behind what it must not meet, with all other fields
// 0.
template <typename Call>
Call call_of(const Entry &e, uint32_t kind, Uses uses) {
  Call call = make<Call>(kind);
  call.stream = e.stream();
  e.order.enter(e.device, call.stream, uses);
  return call;
}

// The pointer list of one call: a copy, in which natives are filled in.
class Pointers {
 public:
  // records: whether accumulators are passed.
  Pointers(const Entry &e, const List &list, bool records);
  Pointers(const Pointers &) = delete;
  Pointers &operator=(const Pointers &) = delete;

  void set(uint32_t at, void *address) { data_[at] = address; }
  void **data() { return data_; }

 private:
  std::array<void *, 24> few_;
  std::vector<void *> many_;
  void **data_;
};

// A dense matrix view of t with its leading dimensions flattened; t is [..., cols] and contiguous.
octavo_tensor matrix(View t, int64_t cols);
// One row [1, n].
octavo_tensor row(View t);

// Throws unless t is float32, bfloat16 or float16, on the run's device, with a last dimension of
// `cols`.
void check_operand(const Entry &e, View t, int64_t cols, const char *name, int64_t linear);
// Likewise of x or dy, and unless the linear's plan takes the dtype.
void check_taken(const Entry &e, View t, int64_t cols, const char *name, int64_t linear);
// Throws unless t is contiguous on the run's device.
void check_dense(const Entry &e, View t, const char *name);
// Throws unless t is dense float32 with at least this many elements.
void check_floats(const Entry &e, View t, int64_t at_least, const char *name);

// t itself, or a contiguous copy of it, or of its transpose, that lives as long as this.
class Dense {
 public:
  explicit Dense(View t, bool transposed = false);
  View view() const { return copy_ ? copy_ : given_; }

 private:
  View given_;
  Owned copy_;
};

// A native weight in its place of the list, as [N, K] row-major: torch's own memory where it has
// this order, else a copy. Throws when the list takes one and there is none, for another size or
// device, and for another dtype, unless the weight was gathered: FSDP's mixed precision gathers
// float32 shards in 16 bits, which a copy widens.
class WeightMatrix {
 public:
  WeightMatrix(const Entry &e, uint32_t parameter, const List &list, View weight, bool is_gathered,
               Pointers *pointers);

 private:
  Owned converted_;
  std::optional<Dense> dense_;
};

// The bias of a product in `dtype`, as [1, N]. Float32 is rounded to 16 bits, as torch.autocast,
// Transformer Engine and MS-AMP do, so that kernels can add it within the product.
class Bias {
 public:
  Bias(const Entry &e, View bias, int64_t cols, uint32_t dtype, int64_t linear);
  const octavo_tensor *get() const { return row_.cols > 0 ? &row_ : nullptr; }  // null: no bias

 private:
  Owned rounded_;
  octavo_tensor row_ = {};
};

// Uninitialized, on the run's device. dtype: OCTAVO_...
Owned empty(const Entry &e, std::initializer_list<int64_t> sizes, uint32_t dtype);
Owned empty_bytes(const Entry &e, uint64_t bytes);
// Sizes of t with the last one replaced, t's dtype.
Owned empty_with_last(const Entry &e, View t, int64_t last);

// Memory of one call that nothing outlives: on the stack where an allocation would cost more than
// the product, which takes 10 KiB however small it is; beyond that, and on other devices, from
// torch's allocator.
class Workspace {
 public:
  Workspace(const Entry &e, uint64_t bytes);
  void *data() { return data_; }  // null for no bytes

 private:
  static constexpr uint64_t kOnStack = 16384;

  void *data_ = nullptr;
  Owned allocated_;
  alignas(64) std::byte on_stack_[kOnStack];  // indeterminate, as empty() is
};

}  // namespace octavo::core
