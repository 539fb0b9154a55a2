// From tensors to what the contract takes: matrices, and the pointer list of one object.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "registry.h"
#include "view.h"

namespace octavo::ops {

using torch::stable::Tensor;

// The tensors of one call, in the order of the object's uses, sorted by access. An op declares them
// apart, so that a compiler knows what it changes: READ; ACCUMULATE, which may be left out as a
// whole: "do not record"; WRITE and UPDATE.
struct Slots {
  Views read;
  Views accumulate;
  Views update;
};

// Takes tensors from the front of the three lists, one object after the other.
class ListBuilder {
 public:
  explicit ListBuilder(const Slots &slots) : slots_(slots) {}

  // Appends the pointers of one object; throws when a tensor's dtype, size or layout is not the
  // slot's, so that no wrong memory reaches a backend. `what` names the object in messages.
  void append(const std::vector<Position> &positions, const char *what, int64_t id,
              std::vector<void *> *out);

  // Throws when tensors are left over.
  void finish(const char *what, int64_t id) const;

 private:
  View take(const Views &from, size_t *next, const char *name, const char *what, int64_t id);

  const Slots &slots_;
  size_t read_ = 0;
  size_t accumulate_ = 0;
  size_t update_ = 0;
};

// The pointer list of one object.
std::vector<void *> list_of(const Entry &e, uint32_t verb, uint32_t owner_kind, int64_t owner,
                            const Slots &slots, const char *what);

// A dense matrix view of t with its leading dimensions flattened; t is [..., cols] and contiguous.
octavo_tensor matrix(View t, int64_t cols);
// One row [1, n].
octavo_tensor row(View t);

// Throws unless t is float32, bfloat16 or float16, on a CPU, with a last dimension of `cols`.
void check_operand(View t, int64_t cols, const char *name, const char *what, int64_t id);

// Throws unless t is contiguous on a CPU.
void check_dense(View t, const char *name);
// Throws unless t is dense float32 with at least this many elements.
void check_floats(View t, int64_t at_least, const char *name);

// t itself, or a contiguous copy of it that lives as long as this.
class Dense {
 public:
  explicit Dense(View t);
  View view() const { return copy_ ? View(*copy_) : given_; }

 private:
  View given_;
  std::optional<Tensor> copy_;
};

// Uninitialized, on the CPU. dtype: OCTAVO_...
Owned empty(std::initializer_list<int64_t> sizes, uint32_t dtype);
Owned empty_bytes(uint64_t bytes);
// Sizes of t with the last one replaced, t's dtype.
Owned empty_with_last(View t, int64_t last);

// Memory of one call that nothing outlives: on the stack where an allocation would cost more than
// the product, which takes 10 KiB however small it is; beyond that from torch's allocator.
class Workspace {
 public:
  explicit Workspace(uint64_t bytes);
  void *data() { return data_; }  // null for no bytes

 private:
  static constexpr uint64_t kOnStack = 16384;

  void *data_ = nullptr;
  Owned allocated_;
  alignas(64) std::byte on_stack_[kOnStack];  // indeterminate, as empty() is
};

}  // namespace octavo::ops
