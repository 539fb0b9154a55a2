/* tests/kernels/block_matrices.h: scales of block granularities, and codes beside them.
 *
 * Where a scale lies is written down here again, from the words of octavo/tensor.h, so that it does
 * not rest on the code under test.
 */
#ifndef OCTAVO_TESTS_KERNELS_BLOCK_MATRICES_H
#define OCTAVO_TESTS_KERNELS_BLOCK_MATRICES_H

#include "kernels/format/scale_rules.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {

constexpr uint32_t kBlockGranularities[] = {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128,
                                            OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32};

inline bool is_mx(uint32_t granularity) {
  return granularity == OCTAVO_BLOCK_1X32 || granularity == OCTAVO_BLOCK_32X32;
}

inline int64_t length_of(uint32_t granularity) {
  if (granularity == OCTAVO_PER_ROW) return int64_t{1} << 40;
  return is_mx(granularity) ? 32 : 128;
}

inline int64_t height_of(uint32_t granularity) {
  const bool is_square = granularity == OCTAVO_BLOCK_128X128 || granularity == OCTAVO_BLOCK_32X32;
  return is_square ? length_of(granularity) : 1;
}

/* The scales of a matrix of rows x cols; elements between cols and stride hold a filler. */
class Scales {
 public:
  Scales(uint32_t granularity, int64_t rows, int64_t cols, int64_t padding = 0)
      : height_(height_of(granularity)),
        length_(length_of(granularity)),
        rows_((rows + height_ - 1) / height_),
        cols_((cols + length_ - 1) / length_),
        bytes_(is_mx(granularity) ? 1 : 4),
        data_(static_cast<size_t>(rows_ * (cols_ + padding)) * bytes_, Matrix::kFiller),
        scale_ OCTAVO_SCALE(data_.empty() ? nullptr : data_.data(), cols_ + padding,
                            is_mx(granularity) ? OCTAVO_E8M0FNU : OCTAVO_F32, granularity) {}
  Scales(const Scales &other)
      : height_(other.height_),
        length_(other.length_),
        rows_(other.rows_),
        cols_(other.cols_),
        bytes_(other.bytes_),
        data_(other.data_),
        scale_(other.scale_) {
    if (!data_.empty()) scale_.data = data_.data();
  }
  Scales &operator=(const Scales &) = delete;

  const octavo_scale *get() const { return &scale_; }
  octavo_scale *get() { return &scale_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  const std::vector<uint8_t> &data() const { return data_; }

  uint8_t *entry(int64_t row, int64_t col) {
    return data_.data() + static_cast<size_t>(row * scale_.stride + col) * bytes_;
  }
  /* The multiplier of the block with this index. */
  float block(int64_t row, int64_t col) const {
    const uint8_t *at = data_.data() + static_cast<size_t>(row * scale_.stride + col) * bytes_;
    if (bytes_ == 1) return decode_e8m0(*at);
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  /* The multiplier of the element (row, col) of the tensor. */
  float of(int64_t row, int64_t col) const { return block(row / height_, col / length_); }

  /* Multipliers between 2^-3 and 2^3, the same for the same seed. */
  Scales &fill(unsigned seed) {
    std::mt19937 generator(seed);
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t col = 0; col < cols_; ++col) {
        const float power = power_of_two(static_cast<int32_t>(generator() % 7) - 3);
        const float value = power * (1.0f + static_cast<float>(generator() % 1000) / 1000.0f);
        if (bytes_ == 1) {
          *entry(row, col) = encode_e8m0_up(power);
        } else {
          std::memcpy(entry(row, col), &value, sizeof(value));
        }
      }
    }
    return *this;
  }

 private:
  int64_t height_;
  int64_t length_;
  int64_t rows_;
  int64_t cols_;
  size_t bytes_;
  std::vector<uint8_t> data_;
  octavo_scale scale_;
};

}  // namespace octavo::test

#endif
