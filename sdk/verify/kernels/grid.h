// Matrices of the cases in host memory: bytes of any dtype, read and written as numbers.
//
// kernels/format decodes and encodes, so a number here is the one that the contract means.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/draft/fp4.h"
#include "octavo/draft/msamp.h"

namespace octavo::conformance::kernels {

// What rows are separated by, and what surrounds operands. Neither is 0 in any format: a read of it
// shows, as NaN or as a large finite number.
inline constexpr uint8_t kLargeFiller = 0x7B, kNanFiller = 0xFF;

struct Grid {
  uint32_t dtype = OCTAVO_F32;
  int64_t rows = 0, cols = 0, stride = 0;
  std::vector<uint8_t> bytes = {};  // of all rows; the last one has no gap behind it

  // Of `rows` rows with `gap` elements between them. It holds kLargeFiller.
  static Grid of(uint32_t dtype, int64_t rows, int64_t cols, int64_t gap = 0);
  static Grid of_values(const std::vector<float> &values);

  uint64_t bits() const { return OCTAVO_DTYPE_BITS(dtype); }
  // The bytes of one element; of one that has less, 1.
  uint64_t element() const { return OCTAVO_DTYPE_BYTES(dtype, 1); }
  uint64_t row_bytes() const { return OCTAVO_DTYPE_BYTES(dtype, cols); }
  // Of the byte where the element begins, or which it shares.
  uint64_t offset(int64_t row, int64_t col) const {
    return static_cast<uint64_t>(row * stride + col) * bits() / 8;
  }
  // The bits of an element.
  uint32_t code(int64_t row, int64_t col) const;
  void put_code(int64_t row, int64_t col, uint32_t code);
  float at(int64_t row, int64_t col) const;
  void put(int64_t row, int64_t col, float value);  // nearest even; codes saturate
  bool is_nan(int64_t row, int64_t col) const;
  void fill(float value);
  // Other contents of the same kind: the elements in the opposite order, a few floats halved.
  void vary();
};

// Deterministic numbers; equal seeds give equal ones.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint64_t next();
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(next() % static_cast<uint64_t>(limit));
  }
  // A sign, a fraction of 23 bits and an exponent in [low, high].
  float spread(int low, int high);

 private:
  uint64_t state_;
};

// Every element by Numbers::spread; one of 16 is 0.
void spread(Grid &grid, uint64_t seed, int low, int high);
// Whole numbers in [-limit, limit]: their products and sums are exact in any order.
void whole(Grid &grid, uint64_t seed, int64_t limit);
// What rounds differently in a wrong cast to `codes`, each multiplied by `unit`: all finite
// numbers of the format, the midpoints between them and their neighbours, beyond the range, zeros.
std::vector<float> edges_of(uint32_t codes, float unit);

// The scales of a tensor [rows, cols] with this granularity: their shape and dtype.
Grid scales_of(uint32_t granularity, int64_t rows, int64_t cols, int64_t gap = 0);
// The scale of the element, where `scales` is what scales_of gives.
float scale_at(const Grid &scales, uint32_t granularity, const Grid &codes, int64_t row,
               int64_t col);
bool is_block(uint32_t granularity);
bool is_fp4(uint32_t granularity);    // blocks of 16, with a second level
bool is_state(uint32_t granularity);  // groups of a dense matrix, across rows
int64_t block_cols(uint32_t granularity);

float largest_of(uint32_t dtype);
const char *name_of(uint32_t dtype);                 // "float8_e4m3fn"
const char *granularity_name(uint32_t granularity);  // "blocks of 1x128"
std::string shape_text(const Grid &grid);            // "[17, 65], stride 70"

}  // namespace octavo::conformance::kernels
