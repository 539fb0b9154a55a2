/* tests/kernels/matrices.h: matrices in any dtype, with their plain values, for kernel tests.
 *
 * Values are read back through kernels/format, whose own tests rest on exact arithmetic.
 */
#ifndef OCTAVO_TESTS_KERNELS_MATRICES_H
#define OCTAVO_TESTS_KERNELS_MATRICES_H

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/format/float16.h"
#include "kernels/format/float8.h"
#include "octavo/draft/msamp.h"

namespace octavo::test {

template <typename Call>
Call make_call(uint32_t kind) {
  Call c = {};
  c.size = sizeof(c);
  c.kind = kind;
  return c;
}

inline octavo_scale per_tensor(const float *value) {
  return OCTAVO_SCALE(const_cast<float *>(value), 0, OCTAVO_F32, OCTAVO_PER_TENSOR);
}

inline float decode(uint32_t dtype, const void *data) {
  uint8_t byte = 0;
  uint16_t half = 0;
  float value = 0;
  if (dtype == OCTAVO_F32) {
    std::memcpy(&value, data, sizeof(value));
    return value;
  }
  if (OCTAVO_DTYPE_BITS(dtype) == 16) {
    std::memcpy(&half, data, sizeof(half));
    return dtype == OCTAVO_BF16 ? decode_bf16(half) : decode_f16(half);
  }
  std::memcpy(&byte, data, sizeof(byte));
  return dtype == OCTAVO_E4M3FN ? decode_e4m3(byte) : decode_e5m2(byte);
}

/* The plain conversion of a value: saturating for FP8, IEEE for the rest. */
inline void encode(uint32_t dtype, float value, void *data) {
  if (dtype == OCTAVO_F32) {
    std::memcpy(data, &value, sizeof(value));
  } else if (OCTAVO_DTYPE_BITS(dtype) == 16) {
    const uint16_t half = dtype == OCTAVO_BF16 ? encode_bf16(value) : encode_f16(value);
    std::memcpy(data, &half, sizeof(half));
  } else {
    const uint8_t byte = dtype == OCTAVO_E4M3FN ? encode_e4m3(value) : encode_e5m2(value);
    std::memcpy(data, &byte, sizeof(byte));
  }
}

/* A matrix that owns its memory; elements between cols and stride hold a filler. */
class Matrix {
 public:
  Matrix(uint32_t dtype, int64_t rows, int64_t cols, int64_t padding = 0)
      : bytes_(OCTAVO_DTYPE_BITS(dtype) / 8),
        data_(static_cast<size_t>(rows * (cols + padding)) * bytes_, kFiller),
        tensor_{data_.empty() ? nullptr : data_.data(), rows, cols, cols + padding, dtype, 0} {}
  Matrix(const Matrix &other) : bytes_(other.bytes_), data_(other.data_), tensor_(other.tensor_) {
    if (!data_.empty()) tensor_.data = data_.data();
  }
  Matrix &operator=(const Matrix &) = delete;

  octavo_tensor *tensor() { return &tensor_; }
  const octavo_tensor *tensor() const { return &tensor_; }
  int64_t rows() const { return tensor_.rows; }
  int64_t cols() const { return tensor_.cols; }
  uint32_t dtype() const { return tensor_.dtype; }
  const std::vector<uint8_t> &data() const { return data_; }

  uint8_t *at(int64_t row, int64_t col) {
    return data_.data() + static_cast<size_t>(row * tensor_.stride + col) * bytes_;
  }
  const uint8_t *at(int64_t row, int64_t col) const {
    return data_.data() + static_cast<size_t>(row * tensor_.stride + col) * bytes_;
  }
  float get(int64_t row, int64_t col) const { return decode(tensor_.dtype, at(row, col)); }
  void set(int64_t row, int64_t col, float value) { encode(tensor_.dtype, value, at(row, col)); }
  uint8_t code(int64_t row, int64_t col) const { return *at(row, col); }

  /* Normal values times `spread`, the same for the same seed. */
  Matrix &fill(unsigned seed, float spread = 1.0f) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (int64_t row = 0; row < rows(); ++row) {
      for (int64_t col = 0; col < cols(); ++col) set(row, col, normal(generator) * spread);
    }
    return *this;
  }

  static constexpr uint8_t kFiller = 0x5A;

 private:
  size_t bytes_;
  std::vector<uint8_t> data_;
  octavo_tensor tensor_;
};

/* Equal bits, or both NaN. */
inline bool same_value(float left, float right) {
  return float_bits(left) == float_bits(right) || (std::isnan(left) && std::isnan(right));
}

/* `value` as a plain dtype holds it. */
inline float rounded(uint32_t dtype, float value) {
  float storage = 0.0f;
  encode(dtype, value, &storage);
  return decode(dtype, &storage);
}

/* The largest magnitude of fl32(element * factor), NaN ignored. */
inline float amax_of(const Matrix &m, float factor) {
  float amax = 0;
  for (int64_t row = 0; row < m.rows(); ++row) {
    for (int64_t col = 0; col < m.cols(); ++col) {
      amax = std::fmax(amax, std::fabs(m.get(row, col) * factor));
    }
  }
  return amax;
}

inline void expect_equal(const Matrix &found, const Matrix &expected) {
  for (int64_t row = 0; row < found.rows(); ++row) {
    for (int64_t col = 0; col < found.cols(); ++col) {
      ASSERT_TRUE(same_value(found.get(row, col), expected.get(row, col)))
          << "[" << row << ", " << col << "] of " << found.rows() << " x " << found.cols() << ": "
          << found.get(row, col) << ", expected " << expected.get(row, col);
    }
  }
}

}  // namespace octavo::test

#endif
