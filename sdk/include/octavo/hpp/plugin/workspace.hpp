// octavo/hpp/plugin/workspace.hpp: pieces of one buffer, and sizes as formulas of M.
#ifndef OCTAVO_HPP_PLUGIN_WORKSPACE_HPP
#define OCTAVO_HPP_PLUGIN_WORKSPACE_HPP

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

// Kernels promise that what they ask for is affine over multiples of 256 rows, and so are pieces at
// multiples of 256 bytes: two questions give the formula.
constexpr int64_t kMeasuredRows = 256;

// `used` gives the bytes for a number of rows. `row_multiple` divides kMeasuredRows: how finely
// the sizes are affine.
template <typename Used>
octavo_extent extent_of(Used used, int64_t row_multiple = kMeasuredRows) {
  const uint64_t one = used(kMeasuredRows);
  const uint64_t two = used(2 * kMeasuredRows);
  const uint64_t slope = (two - one) / static_cast<uint64_t>(kMeasuredRows);
  return {static_cast<uint64_t>(row_multiple), slope,
          one - slope * static_cast<uint64_t>(kMeasuredRows)};
}

inline uint64_t bytes_of(const octavo_extent &e, int64_t rows) {
  const uint64_t steps = (static_cast<uint64_t>(rows) + e.row_multiple - 1) / e.row_multiple;
  return steps * e.row_multiple * e.bytes_per_row + e.fixed_bytes;
}

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
