// octavo/hpp/plugin/operands.hpp: what casts write and products read.
#ifndef OCTAVO_HPP_PLUGIN_OPERANDS_HPP
#define OCTAVO_HPP_PLUGIN_OPERANDS_HPP

#include "octavo/hpp/plugin/scales.hpp"
#include "octavo/kernels.h"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

enum Directions { kRows = 1, kColumns = 2, kBothDirections = 3 };

// How an operand of a product is stored.
enum class Layout : uint32_t {
  kStraight,    // [rows, k]
  kTransposed,  // [k, rows]; plain operands, and codes that the kernels read so
  kPacked       // [rows, k] in the kernels' panel order; codes of a weight
};

// One side of a product: codes and their scale_inv, or a plain matrix.
struct Operand {
  octavo_tensor codes{};
  octavo_scale scale_inv{};  // dtype 0: plain
  Layout layout = Layout::kStraight;

  bool is_plain() const { return scale_inv.dtype == 0; }
  // The dimension that the product sums over, and the other one.
  int64_t &summed() { return layout == Layout::kTransposed ? codes.rows : codes.cols; }
  int64_t &kept() { return layout == Layout::kTransposed ? codes.cols : codes.rows; }
};
inline Operand plain(const octavo_tensor &matrix) {
  return {matrix, {}, Layout::kStraight};
}
inline Operand transposed(const octavo_tensor &matrix) {
  return {matrix, {}, Layout::kTransposed};
}

// A matrix [R, C] in codes: `rows` in its own order, `columns` transposed [C, R], for products that
// sum over C and over R. One of them may be absent (dtype 0). Per tensor both share scale_inv;
// blocks run along the rows of each, so then `columns` has scales of its own.
struct Codes {
  octavo_tensor rows{};
  octavo_tensor columns{};
  octavo_scale scale_inv{};
  octavo_scale columns_scale_inv{};   // dtype 0: scale_inv serves both
  Layout layout = Layout::kStraight;  // of rows

  bool has_rows() const { return rows.dtype != 0; }
  bool has_columns() const { return columns.dtype != 0; }
  Operand by_rows() const { return {rows, scale_inv, layout}; }
  Operand by_columns() const {
    return {columns, columns_scale_inv.dtype != 0 ? columns_scale_inv : scale_inv,
            Layout::kStraight};
  }
};

// How a cast finds its scale: with the default from the matrix itself (current scaling).
struct Cast {
  float *nonfinite = nullptr;  // null: the session's flag, of a plain matrix
  float *amax = nullptr;
  const float *scale = nullptr;  // OCTAVO_RULE_GIVEN
  uint32_t rule = OCTAVO_RULE_QUOTIENT;
  float eps = 0;
  const float *counter = nullptr;  // below `window` the rule is applied, then `scale` is read
  float window = 0;
  int64_t margin = 0;                   // the rule's scale is divided by 2^margin
  const float *in_scale_inv = nullptr;  // of codes that are cast again
  uint32_t flags = 0;                   // OCTAVO_QUANTIZE_...
  uint32_t fp4_flags = 0;               // of codes in OCTAVO_E2M1: OCTAVO_FP4_...
  bool is_stochastic = false;           // codes of 8 bits are rounded by octavo_round_codes
  // Of stochastic rounding; octavo_quantize_fp4 and octavo_round_codes say what each is.
  uint64_t key = 0;
  const float *count = nullptr;
};

// Where to add how well codes represent a matrix: the sums of octavo_quantize_stats.
enum Statistic { kSaturated, kUnderflow, kSignal, kNoise, kStatisticCount };
struct Statistics {
  float *sums[kStatisticCount] = {};
  bool wanted = false;  // whether the host asks for one of them in this call
};

// What is recorded about the casts of one operand, and the scale that follows from it.
struct Observation {
  float *amax = nullptr;
  float *scale = nullptr;
  float *counter = nullptr;
  Statistics statistics;
};

// How a product is computed and rounded.
enum ProductFlags : uint32_t {
  kAccumulate = 1,        // added to d; rounded after the addition
  kFastAccumulation = 2,  // permits less than fp32 accumulation
  kBiasAfter = 4,         // rounded to d's dtype before the bias is added, and again
  kWithPadding = 8        // d has the padding of the operands, too
};

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
