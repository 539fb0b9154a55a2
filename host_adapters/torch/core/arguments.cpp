// Checks here cost a few nanoseconds a tensor; without them a wrong tensor would be a crash.
#include "arguments.h"

#include <torch/csrc/stable/ops.h>

#include <algorithm>

namespace octavo::core {
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

const char *dtype_name(uint32_t dtype) {
  switch (dtype) {
    case OCTAVO_F32: return "float32";
    case OCTAVO_BF16: return "bfloat16";
    case OCTAVO_F16: return "float16";
    case OCTAVO_I32: return "int32";
    case OCTAVO_U8: return "uint8";
    default: return "another dtype";
  }
}

// Also of dtypes that no operand has.
const char *dtype_name(View t) {
  int32_t code = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(t.handle(), &code));
  if (code == aoti_torch_dtype_float64()) return "float64";
  if (code == aoti_torch_dtype_int64()) return "int64";
  if (code == aoti_torch_dtype_bool()) return "bool";
  return dtype_name(t.dtype());
}

bool is_here(const Entry &e, View t) {
  return t.device_type() == e.device.type && t.device_index() == e.device.index;
}

std::string place_of(const Entry &e) {
  return e.device.type == aoti_torch_device_type_cpu()
             ? "the CPU"
             : "the model's device (index " + std::to_string(e.device.index) + ")";
}

constexpr size_t kMaxDims = 16;

Owned empty_of(const Entry &e, const int64_t *sizes, size_t dims, uint32_t dtype) {
  std::array<int64_t, kMaxDims> strides;
  int64_t stride = 1;
  for (size_t i = dims; i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i] > 1 ? sizes[i] : 1;
  }
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<int64_t>(dims), sizes, strides.data(),
                                                  code_of(dtype), e.device.type, e.device.index,
                                                  &handle));
  return Owned(handle);
}

// The values in a dtype of OCTAVO_..., rounded to nearest even.
Owned converted(View t, uint32_t dtype) {
  const torch::stable::Tensor source(shared(t).release());
  using torch::headeronly::ScalarType;
  const ScalarType type = dtype == OCTAVO_F32    ? ScalarType::Float
                          : dtype == OCTAVO_BF16 ? ScalarType::BFloat16
                                                 : ScalarType::Half;
  const torch::stable::Tensor copy = torch::stable::to(source, type);
  return shared(View(copy.get()));
}

// Whether memory is that of a contiguous transposed matrix.
bool is_transposed(View t) {
  return t.dim() == 2 && t.strides()[0] == 1 && t.strides()[1] == t.sizes()[0];
}

}  // namespace

Pointers::Pointers(const Entry &e, const List &list, bool records) {
  data_ = few_.data();
  if (list.slots.size() > few_.size()) {
    many_.resize(list.slots.size());
    data_ = many_.data();
  }
  for (size_t i = 0; i < list.slots.size(); ++i) data_[i] = e.address(list.slots[i]);
  if (!records)
    for (const uint32_t at : list.accumulators) data_[at] = nullptr;
  else if (!list.statistics.empty() && !e.coupling.samples())
    for (const uint32_t at : list.statistics) data_[at] = nullptr;
}

WeightMatrix::WeightMatrix(const Entry &e, uint32_t parameter, const List &list, View weight,
                           bool is_gathered, Pointers *pointers) {
  const Native *native = list.native(OCTAVO_ROLE_WEIGHT);
  if (native == nullptr) return;
  const auto name = [&] { return e.name(OCTAVO_OWNER_PARAMETER, parameter); };
  if (!weight) raise(OCTAVO_INVALID, name() + ": expected its tensor, found none");
  const bool fits = weight.dtype() == native->dtype || (is_gathered && weight.dtype() != 0);
  if (!fits || weight.numel() != native->elements || !is_here(e, weight))
    raise(OCTAVO_INVALID,
          name() + ": expected " + std::to_string(native->elements) + " elements of " +
              dtype_name(native->dtype) + " on " + place_of(e) + ", as at octavo.prepare, found " +
              std::to_string(weight.numel()) + " of " + dtype_name(weight) +
              (is_here(e, weight) ? "" : " on another device") +
              "; was the model moved or cast after octavo.prepare? Call octavo.prepare again, "
              "which takes the model as it is now");
  const bool transposed = e.transposed[parameter] != 0;
  const bool has_order = transposed ? is_transposed(weight) : weight.is_contiguous();
  const int64_t bytes = weight.dtype() == native->dtype ? OCTAVO_DTYPE_BITS(native->dtype) / 8
                                                        : weight.element_size();
  if (!weight.has((has_order ? native->elements : weight.span()) * bytes))
    raise(OCTAVO_WRONG_STATE,
          name() +
              ": expected its values, found memory that was released, as by "
              "untyped_storage().resize_ and by FSDP between its passes; give it memory again, or "
              "run the module that fully_shard wrapped and leave set_unshard_in_backward on");
  if (weight.dtype() != native->dtype) {
    converted_ = converted(weight, native->dtype);
    weight = converted_;
  }
  if (!has_order) {
    dense_.emplace(weight, transposed);
    weight = dense_->view();
  }
  pointers->set(native->at, const_cast<void *>(weight.data()));
}

Bias::Bias(const Entry &e, View bias, int64_t cols, uint32_t dtype, int64_t linear) {
  if (!bias) return;
  check_operand(e, bias, cols, "bias", linear);
  check_dense(e, bias, "bias");
  if (bias.dtype() == OCTAVO_F32 && dtype != OCTAVO_F32) {
    rounded_ = converted(bias, dtype);
    bias = rounded_;
  }
  row_ = row(bias);
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

void check_operand(const Entry &e, View t, int64_t cols, const char *name, int64_t linear) {
  const uint32_t dtype = t.dtype();
  const bool is_float = dtype == OCTAVO_F32 || dtype == OCTAVO_BF16 || dtype == OCTAVO_F16;
  if (is_float && is_here(e, t) && t.dim() > 0 && t.last() == cols) return;
  raise(OCTAVO_INVALID,
        e.name(OCTAVO_OWNER_LINEAR, linear) + ": " + name +
            ": expected float32, bfloat16 or float16 on " + place_of(e) +
            ", where the model was prepared, with a last dimension of " + std::to_string(cols) +
            ", found " + dtype_name(t) + (is_here(e, t) ? "" : " on another device") +
            (t.dim() > 0 ? " with a last dimension of " + std::to_string(t.last())
                         : " without dimensions") +
            (is_float ? "" : "; convert it, or leave this layer out with layers.skip"));
}

void check_taken(const Entry &e, View t, int64_t cols, const char *name, int64_t linear) {
  check_operand(e, t, cols, name, linear);
  const uint32_t flags = e.plans[static_cast<size_t>(linear)].flags;
  if ((flags & (OCTAVO_LINEAR_DECLINES_F32 | OCTAVO_LINEAR_DECLINES_BF16 |
                OCTAVO_LINEAR_DECLINES_F16)) == 0)
    return;
  std::string taken;
  bool is_taken = false;
  for (const auto &[dtype, declined] : {std::pair{OCTAVO_F32, OCTAVO_LINEAR_DECLINES_F32},
                                        std::pair{OCTAVO_BF16, OCTAVO_LINEAR_DECLINES_BF16},
                                        std::pair{OCTAVO_F16, OCTAVO_LINEAR_DECLINES_F16}}) {
    if ((flags & declined) != 0) continue;
    if (dtype == t.dtype()) is_taken = true;
    taken += std::string(taken.empty() ? "" : " or ") + dtype_name(dtype);
  }
  if (is_taken) return;
  raise(OCTAVO_UNSUPPORTED, e.name(OCTAVO_OWNER_LINEAR, linear) + ": " + name + ": expected " +
                                taken + ", which the backend takes, found " + dtype_name(t) +
                                "; run the model in that dtype or under torch.autocast, or leave "
                                "this layer out with layers.skip");
}

void check_dense(const Entry &e, View t, const char *name) {
  if (is_here(e, t) && t.is_contiguous()) {
    if (t.has(t.numel() * t.element_size())) return;
    raise(OCTAVO_WRONG_STATE, std::string(name) +
                                  ": expected its values, found memory that was released, as by "
                                  "untyped_storage().resize_; give it memory again");
  }
  raise(OCTAVO_INVALID, std::string(name) + ": expected a contiguous tensor on " + place_of(e) +
                            ", found another layout or device; call contiguous() on it");
}

void check_floats(const Entry &e, View t, int64_t at_least, const char *name) {
  check_dense(e, t, name);
  if (t.dtype() == OCTAVO_F32 && t.numel() >= at_least) return;
  raise(OCTAVO_INVALID, std::string(name) + ": expected at least " + std::to_string(at_least) +
                            " elements of float32, found " + std::to_string(t.numel()) + " of " +
                            dtype_name(t));
}

Dense::Dense(View t, bool transposed) : given_(t) {
  if (!transposed && t.is_contiguous()) return;
  const torch::stable::Tensor same(shared(t).release());
  const torch::stable::Tensor copy =
      torch::stable::contiguous(transposed ? torch::stable::transpose(same, 0, 1) : same);
  copy_ = shared(View(copy.get()));
}

Owned empty(const Entry &e, std::initializer_list<int64_t> sizes, uint32_t dtype) {
  return empty_of(e, sizes.begin(), sizes.size(), dtype);
}

Owned empty_bytes(const Entry &e, uint64_t bytes) {
  return empty(e, {static_cast<int64_t>(bytes)}, OCTAVO_U8);
}

Owned empty_with_last(const Entry &e, View t, int64_t last) {
  const auto dims = static_cast<size_t>(t.dim());
  if (dims > kMaxDims)
    raise(OCTAVO_INVALID, "a tensor: expected at most " + std::to_string(kMaxDims) +
                              " dimensions, found " + std::to_string(dims));
  std::array<int64_t, kMaxDims> sizes;
  std::copy_n(t.sizes(), dims, sizes.begin());
  sizes[dims - 1] = last;
  return empty_of(e, sizes.data(), dims, t.dtype());
}

Workspace::Workspace(const Entry &e, uint64_t bytes) {
  if (bytes == 0) return;
  if (bytes <= kOnStack && e.device.type == aoti_torch_device_type_cpu()) {
    data_ = on_stack_;
    return;
  }
  allocated_ = empty_bytes(e, bytes);
  data_ = allocated_.mutable_data();
}

}  // namespace octavo::core
