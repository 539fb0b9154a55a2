// The memory of a run's slots as torch tensors. Native slots are the module's own tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <octavo/octavo.h>

#include <vector>

namespace octavo::torch {

// The octavo dtype of a tensor; 0: none of those that parameters and operands may have.
uint32_t dtype_of(at::ScalarType type);
at::ScalarType scalar_type_of(uint32_t dtype);
// Whether the slot's memory is the host's own tensor.
inline bool is_native(const octavo_slot &s) {
  return (s.flags & OCTAVO_SLOT_NATIVE) != 0;
}

class SlotMemory {
 public:
  explicit SlotMemory(const at::Device &device) : device_(device) {}
  const at::Device &device() const { return device_; }
  // Allocates what the run's slots have that is not allocated yet, filled with initial values.
  void extend(const octavo_run *run);
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
