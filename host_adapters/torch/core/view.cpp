// Each question about a tensor is one call of torch's C interface.
#include "view.h"

#include <torch/csrc/stable/c/shim.h>
#include <torch/headeronly/util/shim_utils.h>

#include "octavo/tensor.h"

namespace octavo::core {
namespace {

template <typename T, typename Handle>
T ask(AOTITorchError (*question)(Handle, T *), Handle handle) {
  T answer{};
  TORCH_ERROR_CODE_CHECK(question(handle, &answer));
  return answer;
}

// torch's numbers of the dtypes that slots and operands have.
struct Codes {
  int32_t f32 = aoti_torch_dtype_float32();
  int32_t bf16 = aoti_torch_dtype_bfloat16();
  int32_t f16 = aoti_torch_dtype_float16();
  int32_t i32 = aoti_torch_dtype_int32();
  int32_t u8 = aoti_torch_dtype_uint8();
};

const Codes codes;

}  // namespace

uint32_t View::dtype() const {
  const auto code = ask<int32_t>(aoti_torch_get_dtype, handle_);
  if (code == codes.f32) return OCTAVO_F32;
  if (code == codes.bf16) return OCTAVO_BF16;
  if (code == codes.f16) return OCTAVO_F16;
  if (code == codes.i32) return OCTAVO_I32;
  if (code == codes.u8) return OCTAVO_U8;
  return 0;
}

uint32_t View::element_size() const {
  return static_cast<uint32_t>(
      aoti_torch_dtype_element_size(ask<int32_t>(aoti_torch_get_dtype, handle_)));
}

int64_t View::numel() const {
  return ask<int64_t>(aoti_torch_get_numel, handle_);
}

int64_t View::dim() const {
  return ask<int64_t>(aoti_torch_get_dim, handle_);
}

const int64_t *View::sizes() const {
  return ask<int64_t *>(aoti_torch_get_sizes, handle_);
}

const int64_t *View::strides() const {
  return ask<int64_t *>(aoti_torch_get_strides, handle_);
}

int32_t View::device_type() const {
  return ask<int32_t>(aoti_torch_get_device_type, handle_);
}

int32_t View::device_index() const {
  const auto index = ask<int32_t>(aoti_torch_get_device_index, handle_);
  return index < 0 ? 0 : index;  // torch has -1 for "the CPU"
}

bool View::is_contiguous() const {
  return ask<bool>(aoti_torch_is_contiguous, handle_);
}

bool View::has(int64_t bytes) const {
  int64_t offset = ask<int64_t>(aoti_torch_get_storage_offset, handle_);
  if (offset != 0) offset *= element_size();
  return offset + bytes <= ask<int64_t>(aoti_torch_get_storage_size, handle_);
}

int64_t View::span() const {
  int64_t last = 0;
  for (int64_t i = 0; i < dim(); ++i) last += (sizes()[i] - 1) * strides()[i];
  return numel() == 0 ? 0 : last + 1;
}

const void *View::data() const {
  return ask<const void *>(torch_get_const_data_ptr, handle_);
}

void *View::mutable_data() const {
  return ask<void *>(torch_get_mutable_data_ptr, handle_);
}

Owned shared(View t) {
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(t.handle(), &handle));
  return Owned(handle);
}

}  // namespace octavo::core
