// Slots come from torch's allocator, which aligns them as the contract wants.
#include "slot_memory.h"

#include <ATen/ops/empty.h>

#include "octavo/torch/error.h"

namespace octavo::torch {

uint32_t dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return OCTAVO_F32;
    case at::kBFloat16: return OCTAVO_BF16;
    case at::kHalf: return OCTAVO_F16;
    default: return 0;
  }
}

at::ScalarType scalar_type_of(uint32_t dtype) {
  switch (dtype) {
    case OCTAVO_F32: return at::kFloat;
    case OCTAVO_BF16: return at::kBFloat16;
    case OCTAVO_F16: return at::kHalf;
    case OCTAVO_I32: return at::kInt;
    case OCTAVO_U8: return at::kByte;
    case OCTAVO_E4M3FN: return at::kFloat8_e4m3fn;
    case OCTAVO_E5M2: return at::kFloat8_e5m2;
    case OCTAVO_E8M0FNU: return at::kFloat8_e8m0fnu;
    default:
      throw Error(OCTAVO_UNSUPPORTED, "a slot: expected a dtype that torch has, found dtype " +
                                          std::to_string(dtype) +
                                          "; choose another backend, or a later octavo::torch");
  }
}

void SlotMemory::extend(const octavo_run *run) {
  for (uint32_t id = static_cast<uint32_t>(tensors_.size()); id < octavo_run_slot_count(run);
       ++id) {
    const octavo_slot &slot = *octavo_run_slot(run, id);
    if (is_native(slot)) {
      tensors_.emplace_back();
      continue;
    }
    const at::ScalarType type = scalar_type_of(slot.dtype);
    const uint64_t bytes =
        static_cast<uint64_t>(slot.rows * slot.cols) * (OCTAVO_DTYPE_BITS(slot.dtype) / 8);
    tensors_.push_back(at::empty({slot.rows, slot.cols}, at::TensorOptions(type).device(device_)));
    bytes_ += bytes;
    reset(slot);
  }
}

void SlotMemory::reset(const octavo_slot &slot) {
  at::Tensor &tensor = tensors_.at(slot.id);
  if (!tensor.defined()) return;
  if (OCTAVO_DTYPE_BITS(slot.dtype) == 32) {
    tensor.fill_(slot.initial);
  } else {
    tensor.view(at::kByte).zero_();
  }
}

}  // namespace octavo::torch
