// Checks here cost a few nanoseconds a tensor; without them a wrong list would be a crash.
#include "arguments.h"

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <array>

#include "error.h"

namespace octavo::ops {
namespace {

// torch's number of a dtype; codes cross the border as their bits.
int32_t code_of(uint32_t dtype) {
  switch (dtype) {
    case OCTAVO_F32: return aoti_torch_dtype_float32();
    case OCTAVO_BF16: return aoti_torch_dtype_bfloat16();
    case OCTAVO_F16: return aoti_torch_dtype_float16();
    case OCTAVO_I32: return aoti_torch_dtype_int32();
    default: return aoti_torch_dtype_uint8();
  }
}

// What a tensor that holds this dtype has.
uint32_t held_as(uint32_t dtype) {
  const bool is_plain =
      dtype == OCTAVO_F32 || dtype == OCTAVO_BF16 || dtype == OCTAVO_F16 || dtype == OCTAVO_I32;
  return is_plain ? dtype : OCTAVO_U8;
}

constexpr size_t kMaxDims = 16;

Owned empty_of(const int64_t *sizes, size_t dims, uint32_t dtype) {
  std::array<int64_t, kMaxDims> strides;
  int64_t stride = 1;
  for (size_t i = dims; i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i] > 1 ? sizes[i] : 1;
  }
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<int64_t>(dims), sizes, strides.data(),
                                                  code_of(dtype), aoti_torch_device_type_cpu(), 0,
                                                  &handle));
  return Owned(handle);
}

}  // namespace

View ListBuilder::take(const Views &from, size_t *next, const char *name, const char *what,
                       int64_t id) {
  if (*next >= from.size())
    raise(OCTAVO_INVALID, std::string(what) + " " + std::to_string(id) + ": expected more than " +
                              std::to_string(from.size()) + " tensors in '" + name +
                              "'; the lists belong to another run. The call");
  return from[(*next)++];
}

void ListBuilder::append(const std::vector<Position> &positions, const char *what, int64_t id,
                         std::vector<void *> *out) {
  const bool records = !slots_.accumulate.empty();
  for (const Position &p : positions) {
    View t;
    switch (p.access) {
      case OCTAVO_ACCESS_NONE: break;
      case OCTAVO_ACCESS_READ: t = take(slots_.read, &read_, "read", what, id); break;
      case OCTAVO_ACCESS_ACCUMULATE:
        if (records) t = take(slots_.accumulate, &accumulate_, "accumulate", what, id);
        break;
      default: t = take(slots_.update, &update_, "update", what, id); break;
    }
    if (!t) {
      out->push_back(nullptr);
      continue;
    }
    if (t.dtype() != held_as(p.dtype) || t.numel() != p.elements || !t.is_cpu() ||
        (p.elements > 1 && !t.is_contiguous()))
      raise(OCTAVO_INVALID,
            std::string(what) + " " + std::to_string(id) + ": position " +
                std::to_string(out->size()) + ": expected a contiguous CPU tensor of " +
                std::to_string(p.elements) + " elements of " +
                std::to_string(OCTAVO_DTYPE_BITS(p.dtype)) + " bits for slot " +
                std::to_string(p.slot) + ", found " + std::to_string(t.numel()) + " of " +
                std::to_string(t.element_bits()) +
                " bits, or another dtype or device; was the model moved or cast after "
                "octavo.prepare? The call");
    out->push_back(p.access == OCTAVO_ACCESS_READ ? const_cast<void *>(t.data())
                                                  : t.mutable_data());
  }
}

void ListBuilder::finish(const char *what, int64_t id) const {
  if (read_ != slots_.read.size() || accumulate_ != slots_.accumulate.size() ||
      update_ != slots_.update.size())
    raise(OCTAVO_INVALID, std::string(what) + " " + std::to_string(id) +
                              ": more tensors than the object has slots. The call");
}

std::vector<void *> list_of(const Entry &e, uint32_t verb, uint32_t owner_kind, int64_t owner,
                            const Slots &slots, const char *what) {
  const std::vector<Position> &p = positions(e, verb, owner_kind, owner);
  std::vector<void *> out;
  out.reserve(p.size() + 1);  // never null
  ListBuilder builder(slots);
  builder.append(p, what, owner, &out);
  builder.finish(what, owner);
  return out;
}

octavo_tensor matrix(View t, int64_t cols) {
  octavo_tensor m = {};
  m.data = const_cast<void *>(t.data());
  m.cols = cols;
  m.rows = cols > 0 ? t.numel() / cols : 0;
  m.stride = cols;
  m.dtype = t.dtype();
  return m;
}

octavo_tensor row(View t) {
  return matrix(t, t.numel());
}

void check_operand(View t, int64_t cols, const char *name, const char *what, int64_t id) {
  const uint32_t dtype = t.dtype();
  const bool is_float = dtype == OCTAVO_F32 || dtype == OCTAVO_BF16 || dtype == OCTAVO_F16;
  if (is_float && t.is_cpu() && t.dim() > 0 && t.last() == cols) return;
  raise(OCTAVO_INVALID, std::string(what) + " " + std::to_string(id) + ": " + name +
                            ": expected float32, bfloat16 or float16 on a CPU with a last "
                            "dimension of " +
                            std::to_string(cols) + ", found " + std::to_string(t.element_bits()) +
                            " bits and a last dimension of " + std::to_string(t.last()) +
                            ". The call");
}

void check_dense(View t, const char *name) {
  if (t.is_cpu() && t.is_contiguous()) return;
  raise(OCTAVO_INVALID, std::string(name) +
                            ": expected a contiguous tensor on a CPU, found another layout or "
                            "device; call contiguous() or cpu() on it. The call");
}

void check_floats(View t, int64_t at_least, const char *name) {
  check_dense(t, name);
  if (t.dtype() == OCTAVO_F32 && t.numel() >= at_least) return;
  raise(OCTAVO_INVALID, std::string(name) + ": expected at least " + std::to_string(at_least) +
                            " elements of float32, found " + std::to_string(t.numel()) + " of " +
                            std::to_string(t.element_bits()) + " bits or another dtype. The call");
}

Dense::Dense(View t) : given_(t) {
  if (t.is_contiguous()) return;
  AtenTensorHandle shared = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(t.handle(), &shared));
  copy_ = torch::stable::contiguous(Tensor(shared));
}

Owned empty(std::initializer_list<int64_t> sizes, uint32_t dtype) {
  return empty_of(sizes.begin(), sizes.size(), dtype);
}

Owned empty_bytes(uint64_t bytes) {
  return empty({static_cast<int64_t>(bytes)}, OCTAVO_U8);
}

Owned empty_with_last(View t, int64_t last) {
  const auto dims = static_cast<size_t>(t.dim());
  if (dims > kMaxDims)
    raise(OCTAVO_INVALID, "a tensor: expected at most " + std::to_string(kMaxDims) +
                              " dimensions, found " + std::to_string(dims) + ". The call");
  std::array<int64_t, kMaxDims> sizes;
  std::copy_n(t.sizes(), dims, sizes.begin());
  sizes[dims - 1] = last;
  return empty_of(sizes.data(), dims, t.dtype());
}

Workspace::Workspace(uint64_t bytes) {
  if (bytes == 0) return;
  if (bytes <= kOnStack) {
    data_ = on_stack_;
    return;
  }
  allocated_ = empty_bytes(bytes);
  data_ = allocated_.mutable_data();
}

}  // namespace octavo::ops
