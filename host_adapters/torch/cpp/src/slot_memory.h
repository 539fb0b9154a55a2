// The memory of a run's slots as torch tensors, and the pointer lists of every object and verb.
//
// A list is built once: the addresses of slots that this library allocates never change. Native
// slots are the module's own tensors, which a load or an optimizer may replace, so their addresses
// are filled in at each call.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <octavo/octavo.h>

#include <string>
#include <vector>

namespace octavo::torch {

constexpr uint64_t kAlignment = 256;  // of slots, `saved`, workspaces and weights

// The octavo dtype of a tensor; 0: none of those that parameters and operands may have.
uint32_t dtype_of(at::ScalarType type);
at::ScalarType scalar_type_of(uint32_t dtype);
// `address` moved up to the next multiple of kAlignment.
inline void *aligned(void *address) {
  const auto bits = reinterpret_cast<uintptr_t>(address);
  return reinterpret_cast<void *>((bits + kAlignment - 1) / kAlignment * kAlignment);
}
// Uninitialized bytes [count] on the device whose address is a multiple of kAlignment.
at::Tensor aligned_bytes(uint64_t count, const at::Device &device);
// Whether the slot's memory is the host's own tensor.
inline bool is_native(const octavo_slot &s) {
  return (s.flags & OCTAVO_SLOT_NATIVE) != 0;
}

// The list of one object for one verb. `fixed` has null where a native address belongs.
struct SlotList {
  struct Native {
    size_t position;
    uint32_t parameter;
    uint32_t role;  // OCTAVO_ROLE_WEIGHT or OCTAVO_ROLE_GRADIENT
  };
  std::vector<void *> fixed;
  std::vector<Native> natives;
};
using Addresses = c10::SmallVector<void *, 24>;

class SlotMemory {
 public:
  explicit SlotMemory(const at::Device &device) : device_(device) {}
  const at::Device &device() const { return device_; }
  // Allocates what the run's slots have that is not allocated yet, filled with initial values.
  void extend(const octavo_run *run);
  // Whether calls of a list record: a null accumulator means "do not record".
  enum class Record { kYes, kNo };
  SlotList list(const octavo_run *run, uint32_t verb, uint32_t owner_kind, uint32_t owner,
                Record record = Record::kYes) const;
  // The slot as a tensor [rows, cols]; undefined for a native one.
  const at::Tensor &tensor(uint32_t slot) const { return tensors_.at(slot); }
  size_t size() const { return tensors_.size(); }
  uint64_t bytes() const { return bytes_; }
  // Puts the slot's initial value into it.
  void reset(const octavo_slot &slot);

 private:
  at::Device device_;
  std::vector<at::Tensor> tensors_;
  uint64_t bytes_ = 0;
};

}  // namespace octavo::torch
