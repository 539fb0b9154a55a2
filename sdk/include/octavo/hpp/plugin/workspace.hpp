// octavo/hpp/plugin/workspace.hpp: pieces of one buffer, and sizes as formulas of M.
#ifndef OCTAVO_HPP_PLUGIN_WORKSPACE_HPP
#define OCTAVO_HPP_PLUGIN_WORKSPACE_HPP

#include <algorithm>

#include "octavo/tensor.h"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

// A dense matrix.
inline int64_t bytes_of(int64_t rows, int64_t cols, uint32_t dtype) {
  return rows * static_cast<int64_t>(OCTAVO_DTYPE_BYTES(dtype, cols));
}

// Hands out pieces of one buffer in order, each at a multiple of 256 bytes. Without a base it only
// measures, so one function serves the plan and the verb, and the two cannot disagree.
class Carver {
 public:
  explicit Carver(void *base = nullptr) : base_(static_cast<char *>(base)) {}

  void *take(int64_t bytes) {
    used_ = (used_ + 255) & ~uint64_t{255};
    char *at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += static_cast<uint64_t>(bytes);
    return at;
  }
  octavo_tensor tensor(int64_t rows, int64_t cols, uint32_t dtype) {
    return {take(bytes_of(rows, cols, dtype)), rows, cols, cols, dtype, 0};
  }
  octavo_scale scale_inv() {
    return OCTAVO_SCALE(take(sizeof(float)), 0, OCTAVO_F32, OCTAVO_PER_TENSOR);
  }
  uint64_t used() const { return used_; }

 private:
  char *base_;
  uint64_t used_ = 0;
};

// Kernels promise that what they ask for is affine over multiples of 256 rows. So are pieces that
// grow by multiples of 256 bytes over them; the rounding of Carver hides the growth of others.
constexpr int64_t kMeasuredRows = 256;

// `used` gives the bytes for a number of rows. `row_multiple` divides kMeasuredRows: how finely
// the sizes are affine. For sizes that are not, the formula is the least one that suffices.
template <typename Used>
octavo_extent extent_of(Used used, int64_t row_multiple = kMeasuredRows) {
  constexpr int64_t kRows = kMeasuredRows;
  constexpr int64_t kPeriod =
      256;  // so many times 256 rows, every piece grows by 256 bytes or more
  const auto at = [&](int64_t multiple) { return static_cast<int64_t>(used(multiple * kRows)); };
  const int64_t one = at(1), grows = at(2) - one;
  const int64_t far = at(kPeriod), farther = at(2 * kPeriod);
  int64_t slope = grows / kRows, fixed = one - slope * kRows;
  if (grows % kRows != 0 || far - one != (kPeriod - 1) * grows ||
      farther - far != kPeriod * grows) {
    row_multiple = kRows;
    slope = (farther - far + kPeriod * kRows - 1) / (kPeriod * kRows);
    fixed = 0;
    for (int64_t m = 0; m <= kPeriod; ++m) fixed = std::max(fixed, at(m) - slope * m * kRows);
  }
  return {static_cast<uint64_t>(row_multiple), static_cast<uint64_t>(slope),
          static_cast<uint64_t>(fixed)};
}

inline uint64_t bytes_of(const octavo_extent &e, int64_t rows) {
  const uint64_t steps = (static_cast<uint64_t>(rows) + e.row_multiple - 1) / e.row_multiple;
  return steps * e.row_multiple * e.bytes_per_row + e.fixed_bytes;
}

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
