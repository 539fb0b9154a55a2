// Where the pieces of `saved` and of a workspace lie. One function a verb computes the offsets for
// any M; the plan asks it for sizes, the verb for addresses, so the two cannot disagree.
#pragma once

#include "device.h"

namespace octavo::plugin {

// Hands out aligned pieces of one buffer; with base null it only measures.
class Carver {
 public:
  explicit Carver(void *base) : base_(static_cast<char *>(base)) {}

  void *take(int64_t bytes) {
    used_ = (used_ + 255) / 256 * 256;
    char *at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += static_cast<uint64_t>(bytes);
    return at;
  }
  octavo_tensor tensor(int64_t rows, int64_t cols, uint32_t dtype) {
    const auto width = static_cast<int64_t>(OCTAVO_DTYPE_BITS(dtype) / 8);
    return {take(rows * cols * width), rows, cols, cols, dtype, 0};
  }
  octavo_scale scale_inv() { return {take(sizeof(float)), 0, OCTAVO_F32, OCTAVO_PER_TENSOR}; }
  uint64_t used() const { return used_; }

 private:
  char *base_;
  uint64_t used_ = 0;
};

// Rows of `saved` come in multiples of this, or of the kernels' alignment where that is larger. It
// keeps the scale_inv behind the codes aligned for every K.
constexpr int64_t kSavedRows = 16;

// Sizes of one linear y[M, N] = x[M, K] w[N, K]^T as the kernels see them.
struct Shape {
  int64_t m, n, k;     // of the call
  int64_t mp, np, kp;  // padded to the kernels' alignment
  int64_t saved_m;     // rows that `saved` holds
};
Shape shape_of(const Device &device, int64_t m, int64_t n, int64_t k);

// Whether a call's x or dy is there and has a number of rows that a shape can be computed from:
// 2^40 rows and every size that follows from them stay far below 2^63.
inline bool has_rows(const octavo_tensor *t) {
  return t != nullptr && t->rows >= 0 && t->rows <= int64_t{1} << 40;
}

// What backward needs of x.
struct Saved {
  octavo_tensor x_t;  // E4M3 codes [kp, saved_m]
  octavo_scale x_scale_inv;
};
Saved saved_of(const Shape &shape, void *saved);
octavo_extent saved_extent(const Device &device, int64_t k);

// Workspace that kernels of these shapes need.
uint64_t gemm_bytes(const Device &device, int64_t m, int64_t n, int64_t k);
uint64_t quantize_bytes(const Device &device, int64_t rows, int64_t cols);

// The contract of workspace_bytes: affine over multiples of 64; of 256 here, so that the alignment
// of pieces behind a piece that depends on M is affine, too. Kernels that share one piece must be
// stated as their sum: their maximum is not affine, since another one is the largest for other M.
template <typename Used>
octavo_extent extent_of(Used used) {
  constexpr int64_t step = 256;
  const uint64_t one = used(step);
  const uint64_t two = used(2 * step);
  const uint64_t slope = (two - one) / step;
  return {step, slope, one - slope * step};
}

}  // namespace octavo::plugin
