// Matrices in the arena: deterministic contents, and element access through double.
//
// Values are made of at most 8 significant bits, so that they are exact in f32, bf16 and f16 and
// the same numbers can be handed over in every dtype.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arena.h"
#include "octavo/tensor.h"

namespace octavo::conformance {

struct Matrix {
  octavo_tensor tensor{};

  double at(int64_t row, int64_t col) const;
  void set(int64_t row, int64_t col, double value);  // f32 as is; bf16 and f16 must hold it exactly
  uint8_t *element(int64_t row, int64_t col) const;
  int64_t rows() const { return tensor.rows; }
  int64_t cols() const { return tensor.cols; }
};

// Whether it is that of values: f32, bf16 or f16.
inline bool is_plain(uint32_t dtype) {
  return dtype == OCTAVO_F32 || dtype == OCTAVO_BF16 || dtype == OCTAVO_F16;
}
uint64_t element_bytes(uint32_t dtype);
std::string dtype_name(uint32_t dtype);
double decode(uint32_t dtype, const uint8_t *element);
void encode(uint32_t dtype, double value, uint8_t *element);

// rows = 0 gives a null `data`. `gap` elements lie between the end of a row and the next.
Matrix make_matrix(Arena &arena, const std::string &name, int64_t rows, int64_t cols,
                   uint32_t dtype, int64_t gap = 0, uint32_t role = 0);
// Fills with values of a magnitude below `bound`, a power of two.
void fill(Matrix &m, uint64_t seed, double bound);
// Row i divided by 2^(i % 4), so that rows have scales of their own: neighbours need not look
// alike.
void vary_rows(Matrix &m);
void fill_zero(Matrix &m);
// The elements without gaps, row by row.
std::vector<uint8_t> bytes_of(const Matrix &m);
std::vector<double> values_of(const Matrix &m);
bool has_nonfinite(const std::vector<double> &values);
// Fails at the first element whose bits differ.
void expect_equal_bits(const Matrix &found, const std::vector<uint8_t> &expected,
                       const std::string &what);

// A sequence of well mixed numbers: mix(seed, i) for i = 0, 1, ...
uint64_t mix(uint64_t seed, uint64_t i);

}  // namespace octavo::conformance
