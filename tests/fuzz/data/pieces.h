// Memory of a kernels' call whose content a fuzzer chooses, for two sides that are compared.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>

#include "kernels/check/granularity.h"
#include "tests/fuzz/expect.h"

namespace octavo::fuzz {

// One side's memory: the same pieces in the same order on both.
class Pieces {
 public:
  explicit Pieces(std::basic_string_view<uint8_t> content) : content_(content) {}
  ~Pieces() {
    for (const Piece &p : pieces_) std::free(p.data);
  }
  Pieces(const Pieces &) = delete;
  Pieces &operator=(const Pieces &) = delete;

  void *take(uint32_t dtype, int64_t count) {
    const auto bytes = static_cast<size_t>(count * dtype_bytes(dtype));
    auto *data = static_cast<uint8_t *>(std::malloc(bytes));
    for (size_t i = 0; i < bytes; ++i)
      data[i] = content_.empty() ? 0 : content_[at_++ % content_.size()];
    pieces_.push_back({data, dtype, count});
    return data;
  }
  float *floats(int64_t count = 1) { return static_cast<float *>(take(OCTAVO_F32, count)); }
  // Multipliers: no scale is below 0, and the sign of 0 times one that is -0 is not stated.
  float *multipliers(int64_t count = 1) {
    float *all = floats(count);
    for (int64_t i = 0; i < count; ++i) all[i] = absolute(all[i]);
    return all;
  }
  octavo_tensor *tensor(uint32_t dtype, int64_t rows, int64_t cols) {
    tensors_.push_back({take(dtype, rows * cols), rows, cols, cols, dtype, 0});
    return &tensors_.back();
  }
  octavo_scale *scale(uint32_t granularity, int64_t rows, int64_t cols) {
    octavo_scale s{};
    s.granularity = granularity;
    s.dtype = is_mx_granularity(granularity) ? OCTAVO_E8M0FNU : OCTAVO_F32;
    s.stride = 1;
    int64_t count = granularity == OCTAVO_PER_ROW ? rows : 1;
    if (is_block_granularity(granularity)) {
      s.stride = divide_up(cols, block_cols(granularity));
      count = divide_up(rows, block_rows(granularity)) * s.stride;
    }
    s.data = s.dtype == OCTAVO_F32 ? multipliers(count) : take(s.dtype, count);
    scales_.push_back(s);
    return &scales_.back();
  }
  // Which NaN arithmetic gives is not stated.
  void expect_equal(const Pieces &other, const char *call) const {
    expect(pieces_.size() == other.pieces_.size(), "the same memory on both sides", call);
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Piece &a = pieces_[i], &b = other.pieces_[i];
      for (int64_t k = 0; k < a.count; ++k) {
        if (bits_of(a, k) == bits_of(b, k) || (is_nan_at(a, k) && is_nan_at(b, k))) continue;
        broken("equal bits on every level", std::string(call) + ", piece " + std::to_string(i) +
                                                ", element " + std::to_string(k) + ": " +
                                                bits_at(a, k) + " and " + bits_at(b, k));
      }
    }
  }

 private:
  struct Piece {
    uint8_t *data;
    uint32_t dtype;
    int64_t count;
  };
  static uint32_t bits_of(const Piece &p, int64_t k) {
    const int64_t width = dtype_bytes(p.dtype);
    uint32_t bits = 0;
    std::memcpy(&bits, p.data + k * width, static_cast<size_t>(width));
    return bits;
  }
  static std::string bits_at(const Piece &p, int64_t k) {
    char text[16];
    std::snprintf(text, sizeof(text), "0x%X", bits_of(p, k));
    return text;
  }
  static bool is_nan_at(const Piece &p, int64_t k) {
    const uint32_t bits = bits_of(p, k);
    switch (p.dtype) {
      case OCTAVO_F32: return (bits & 0x7FFFFFFF) > 0x7F800000;
      case OCTAVO_BF16: return (bits & 0x7FFF) > 0x7F80;
      case OCTAVO_F16: return (bits & 0x7FFF) > 0x7C00;
      case OCTAVO_E4M3FN: return (bits & 0x7F) == 0x7F;
      case OCTAVO_E5M2: return (bits & 0x7F) > 0x7C;
      default: return false;
    }
  }
  std::basic_string_view<uint8_t> content_;
  size_t at_ = 0;
  std::deque<Piece> pieces_;
  std::deque<octavo_tensor> tensors_;
  std::deque<octavo_scale> scales_;
};

}  // namespace octavo::fuzz
