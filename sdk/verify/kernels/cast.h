// A quantize as a case: what it takes, and the call that it makes.
#pragma once

#include "trial.h"

namespace octavo::conformance::kernels {

struct Cast {
  Grid in;
  std::optional<float> in_scale_inv = {};
  uint32_t codes = OCTAVO_E4M3FN;
  uint32_t granularity = OCTAVO_PER_TENSOR;
  uint32_t rule = OCTAVO_RULE_QUOTIENT;
  bool out = true, out_t = false;
  int64_t pad_rows = 0, pad_cols = 0, gap = 0;
  std::optional<float> scale = {}, counter = {};
  float window = 0, eps = 0;
  bool amax = true, nonfinite = true, scale_inv_t = false;
  uint32_t flags = 0;
  std::optional<uint32_t> granularity_t = {};  // of out_t, where it is another one
  std::optional<float> format_max = {};        // null: the largest value of `codes`
  float amax_before = 0x1p-20f, nonfinite_before = 0.5f;

  octavo_ability question() const;
  std::string name() const;
  // The struct with its operands, for a call that the caller makes.
  octavo_quantize *describe(Operands &m) const;
  Case to_case(const std::string &variant) const;
};

// Of [rows, cols], spread over the range in which codes have normal and subnormal numbers.
Grid cast_input(uint32_t dtype, int64_t rows, int64_t cols, uint64_t seed, int64_t gap = 0);
// The same with Inf and NaN of both signs.
void spoil(Grid &grid, bool with_infinity, bool with_nan);
const char *rule_name(uint32_t rule);  // "rule POW2"
// One row of these values in `dtype`; those that it does not hold are rounded to it.
Grid row_of(uint32_t dtype, const std::vector<float> &values);

}  // namespace octavo::conformance::kernels
