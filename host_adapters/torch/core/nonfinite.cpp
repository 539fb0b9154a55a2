// These loops run after a cast has met Inf or NaN, in no other call.
#include "nonfinite.h"

#include <algorithm>

#include "linear.h"

namespace octavo::core {
namespace {

// A number by its exponent: all ones for Inf and NaN.
struct Dtype {
  uint32_t bytes, exponent, nan;
};

Dtype dtype_of(uint32_t dtype) {
  if (dtype == OCTAVO_BF16) return {2, 0x7F80, 0x7FC0};
  if (dtype == OCTAVO_F16) return {2, 0x7C00, 0x7E00};
  return {4, 0x7F800000, 0x7FC00000};
}

bool is_finite(const void *data, int64_t i, const Dtype &d) {
  const uint32_t bits = d.bytes == 4 ? static_cast<const uint32_t *>(data)[i]
                                     : static_cast<const uint16_t *>(data)[i];
  return (bits & d.exponent) != d.exponent;
}

void put_nan(void *data, int64_t i, const Dtype &d) {
  if (d.bytes == 4)
    static_cast<uint32_t *>(data)[i] = d.nan;
  else
    static_cast<uint16_t *>(data)[i] = static_cast<uint16_t>(d.nan);
}

// Whether `count` elements from `first` on, `stride` apart, are finite.
bool are_finite(const void *data, int64_t first, int64_t count, int64_t stride, const Dtype &d) {
  for (int64_t i = 0; i < count; ++i)
    if (!is_finite(data, first + i * stride, d)) return false;
  return true;
}

// The number of the slot; null where the host does not read it.
float *met(const Entry &e) {
  return static_cast<float *>(e.address({e.nonfinite}));
}

bool has_met(const Entry &e) {
  const float *number = met(e);
  return number != nullptr && *number > kShown;
}

}  // namespace

void show_nonfinite(const Entry &e, const octavo_tensor &x, View weight, bool transposed,
                    octavo_tensor *y) {
  if (!has_met(e)) return;
  const Dtype from = dtype_of(x.dtype), to = dtype_of(y->dtype);
  bool found = false;
  for (int64_t r = 0; r < x.rows; ++r) {
    if (are_finite(x.data, r * x.stride, x.cols, 1, from)) continue;
    found = true;
    for (int64_t c = 0; c < y->cols; ++c) put_nan(y->data, r * y->stride + c, to);
  }
  if (weight && weight.dim() == 2) {
    const Dtype own = dtype_of(weight.dtype());
    const int64_t row = weight.strides()[transposed ? 1 : 0],
                  col = weight.strides()[transposed ? 0 : 1];
    for (int64_t n = 0; n < y->cols; ++n) {
      if (are_finite(weight.data(), n * row, x.cols, col, own)) continue;
      found = true;
      for (int64_t r = 0; r < y->rows; ++r) put_nan(y->data, r * y->stride + n, to);
    }
  }
  if (found && y->rows > 0) *met(e) = kShown;
}

void show_nonfinite(const Entry &e, const Gradients &gradients) {
  if (!has_met(e)) return;
  bool shown = false;
  for (const Owned *gradient : {&gradients.dx, &gradients.dw, &gradients.db}) {
    if (!*gradient || gradient->numel() == 0) continue;
    put_nan(gradient->mutable_data(), 0, dtype_of(gradient->dtype()));
    shown = true;
  }
  if (shown) *met(e) = kShown;
}

}  // namespace octavo::core
