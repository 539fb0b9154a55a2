// Allocates slots from torch's allocator and builds the pointer lists.
#include "slot_memory.h"

#include <ATen/ops/empty.h>

#include "octavo/torch/error.h"
#include "text.h"

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

at::Tensor aligned_bytes(uint64_t count, const at::Device &device) {
  at::Tensor base = at::empty({static_cast<int64_t>(count + kAlignment)},
                              at::TensorOptions(at::kByte).device(device));
  auto *data = static_cast<char *>(base.mutable_data_ptr());
  const int64_t offset = static_cast<char *>(aligned(data)) - data;
  return base.narrow(0, offset, static_cast<int64_t>(count));
}

void SlotMemory::extend(const octavo_run *run) {
  for (uint32_t id = static_cast<uint32_t>(tensors_.size()); id < octavo_slot_count(run); ++id) {
    const octavo_slot &slot = *octavo_get_slot(run, id);
    if (is_native(slot)) {
      tensors_.emplace_back();
      continue;
    }
    const at::ScalarType type = scalar_type_of(slot.dtype);
    const uint64_t bytes =
        static_cast<uint64_t>(slot.rows * slot.cols) * (OCTAVO_DTYPE_BITS(slot.dtype) / 8);
    tensors_.push_back(aligned_bytes(bytes, device_).view(type).view({slot.rows, slot.cols}));
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

SlotList SlotMemory::list(const octavo_run *run, uint32_t verb, uint32_t owner_kind, uint32_t owner,
                          Record record) const {
  SlotList list;
  const uint32_t count = octavo_use_count(run, owner_kind, owner);
  for (uint32_t i = 0; i < count; ++i) {
    const octavo_slot_use &use = *octavo_get_use(run, owner_kind, owner, i);
    const octavo_slot &slot = *octavo_get_slot(run, use.slot);
    const uint8_t access = slot.access[verb];
    void *address = nullptr;
    if (access == OCTAVO_ACCESS_NONE ||
        (access == OCTAVO_ACCESS_ACCUMULATE && record == Record::kNo)) {
      // A null address: not looked at, or not recorded.
    } else if (is_native(slot)) {
      if (slot.owner_kind != OCTAVO_OWNER_PARAMETER ||
          (slot.role != OCTAVO_ROLE_WEIGHT && slot.role != OCTAVO_ROLE_GRADIENT))
        throw Error(OCTAVO_UNSUPPORTED,
                    "slot \"" + text(slot.name) +
                        "\": expected weights and gradients among the host's own tensors, found "
                        "role " +
                        std::to_string(slot.role) + "; choose another backend");
      list.natives.push_back({i, slot.owner, slot.role});
    } else {
      const uint64_t first = static_cast<uint64_t>(use.first) * (OCTAVO_DTYPE_BITS(slot.dtype) / 8);
      address = static_cast<char *>(tensors_.at(use.slot).mutable_data_ptr()) + first;
    }
    list.fixed.push_back(address);
  }
  list.fixed.push_back(nullptr);  // so that a list without uses has an address, too
  return list;
}

}  // namespace octavo::torch
