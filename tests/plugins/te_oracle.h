// What te's recipes make of a tensor, written from the rules, and products of it in float64.
//
// Rules: Transformer Engine, common/recipe/recipe_common.cuh (quotient, powers of two, block) and
// common/util/ptx.cuh (MX, rounded up); OCP Microscaling Formats 1.0 (MX, rounded down); torchao,
// float8/float8_utils.py (rows: powers of two, an amax of at least 1e-12).
#pragma once

#include <cfloat>
#include <map>
#include <string>

#include "tests/plugins/expected.h"

namespace octavo::test {

enum class ScaleRule { kOne, kQuotient, kPow2, kMxUp, kMxFloor };

// How one operand is cast: `block_rows` x `block_cols` elements share a scale, 0: all of them.
struct CastRule {
  ScaleRule rule = ScaleRule::kQuotient;
  int64_t block_rows = 0;
  int64_t block_cols = 0;
  float eps = 0;
};

inline double power(int exponent) {
  return std::ldexp(1.0, exponent);
}

// The multiplier before the cast of a block with this amax.
inline double scale_by(const CastRule &c, const Format &f, float amax) {
  if (c.rule == ScaleRule::kOne) return 1;
  int exponent = 0;
  if (c.rule == ScaleRule::kMxUp) {
    const float ratio = amax * (1.0f / f.max);
    if (ratio == 0) return power(127);
    const double fraction = std::frexp(static_cast<double>(ratio), &exponent);
    return power(std::min(127, -std::max(-127, fraction == 0.5 ? exponent - 1 : exponent)));
  }
  if (c.rule == ScaleRule::kMxFloor) {
    if (amax == 0) return power(127);
    return power(-std::max(-127, std::ilogb(amax) - std::ilogb(f.max)));
  }
  if (amax < c.eps) amax = c.eps;
  if (!(amax > 0) || !std::isfinite(amax)) return 1;
  const float quotient = std::min(f.max / amax, FLT_MAX);
  return c.rule == ScaleRule::kPow2 ? power(std::ilogb(quotient)) : static_cast<double>(quotient);
}

// A cast tensor: what the codes stand for, and the codes' own values.
struct CastTensor {
  Matrix values;  // fl32(code * scale_inv)
  Matrix codes;
  Matrix scale_inv;  // of each element
};

inline CastTensor cast_tensor(const CastRule &c, const Format &f, const Matrix &m) {
  CastTensor t{m, m, m};
  const int64_t height = c.block_rows == 0 ? std::max<int64_t>(m.rows, 1) : c.block_rows;
  const int64_t width = c.block_cols == 0 ? std::max<int64_t>(m.cols, 1) : c.block_cols;
  for (int64_t top = 0; top < m.rows; top += height) {
    for (int64_t left = 0; left < m.cols; left += width) {
      const int64_t bottom = std::min(m.rows, top + height);
      const int64_t right = std::min(m.cols, left + width);
      float amax = 0;
      for (int64_t r = top; r < bottom; ++r)
        for (int64_t k = left; k < right; ++k) amax = std::fmax(amax, std::fabs(m.at(r, k)));
      const double scale = scale_by(c, f, amax);
      for (int64_t r = top; r < bottom; ++r) {
        for (int64_t k = left; k < right; ++k) {
          t.codes.at(r, k) = cast(f, m.at(r, k), static_cast<float>(scale));
          t.scale_inv.at(r, k) = 1.0f / static_cast<float>(scale);
          t.values.at(r, k) = t.codes.at(r, k) * t.scale_inv.at(r, k);
        }
      }
    }
  }
  return t;
}

// One recipe with its options, and the casts that it makes.
struct TeRecipe {
  const char *name;
  std::map<std::string, std::string> options;
  CastRule operand;  // x and dy, along the summed dimension
  CastRule weight;
  bool hybrid = false;

  const Format &gradient() const { return hybrid ? kE5m2 : kE4m3; }
  CastTensor rows(const Matrix &m, const Format &f = kE4m3) const {
    return cast_tensor(operand, f, m);
  }
  // The transpose of m: its blocks run along the rows of m.
  CastTensor columns(const Matrix &m, const Format &f = kE4m3) const {
    return cast_tensor(operand, f, transposed(m));
  }
  CastTensor weight_rows(const Matrix &w) const { return cast_tensor(weight, kE4m3, w); }
  CastTensor weight_columns(const Matrix &w) const {
    return cast_tensor(weight, kE4m3, transposed(w));
  }
};
inline void PrintTo(const TeRecipe &r, std::ostream *out) {
  *out << r.name;
}

inline const std::vector<TeRecipe> &te_recipes() {
  using enum ScaleRule;
  static const std::vector<TeRecipe> all = {
      // The first step of delayed scaling: of the tensor itself; in TE's profile every scale is 1.
      {"delayed", {{"recipe", "\"delayed\""}}, {}, {}, true},
      {"delayed_te",
       {{"recipe", "\"delayed\""}, {"profile", "\"te2-delayed-fused\""}},
       {kOne},
       {kOne},
       true},
      {"current", {{"recipe", "\"current\""}}, {}, {}, true},
      {"current_e4m3", {{"recipe", "\"current\""}, {"fp8_format", "\"E4M3\""}}, {}, {}},
      {"current_pow2",
       {{"recipe", "\"current\""}, {"current_scaling_power_2_scales", "true"}},
       {kPow2},
       {kPow2},
       true},
      {"current_epsilon",
       {{"recipe", "\"current\""}, {"amax_epsilon", "1000.0"}},
       {kQuotient, 0, 0, 1000},
       {kQuotient, 0, 0, 1000},
       true},
      {"block", {{"recipe", "\"block\""}}, {kPow2, 1, 128}, {kPow2, 128, 128}},
      {"block_fp32",
       {{"recipe", "\"block\""}, {"block_scaling_fp32_scales", "true"}},
       {kQuotient, 1, 128},
       {kQuotient, 128, 128}},
      {"block_hybrid_epsilon",
       {{"recipe", "\"block\""}, {"fp8_format", "\"HYBRID\""}, {"amax_epsilon", "1000.0"}},
       {kPow2, 1, 128, 1000},
       {kPow2, 128, 128, 1000},
       true},
      {"mx", {{"recipe", "\"mx\""}}, {kMxUp, 1, 32}, {kMxUp, 1, 32}},
      {"mx_by_switch_2d",
       {{"use_mxfp8_block_scaling", "true"}, {"mxfp8_2d_quantization", "true"}},
       {kMxUp, 1, 32},
       {kMxUp, 32, 32}},
      {"mx_hybrid",
       {{"recipe", "\"mx\""}, {"fp8_format", "\"HYBRID\""}},
       {kMxUp, 1, 32},
       {kMxUp, 1, 32},
       true},
      {"ocp_mx",
       {{"recipe", "\"mx\""}, {"profile", "\"ocp-mx\""}},
       {kMxFloor, 1, 32},
       {kMxFloor, 1, 32}},
      {"rowwise", {{"recipe", "\"rowwise\""}}, {kPow2, 1, 0, 1e-12f}, {kPow2, 1, 0, 1e-12f}},
      {"rowwise_hybrid",
       {{"recipe", "\"rowwise\""}, {"fp8_format", "\"HYBRID\""}},
       {kPow2, 1, 0, 1e-12f},
       {kPow2, 1, 0, 1e-12f},
       true},
  };
  return all;
}
// The recipes with their defaults.
inline std::vector<TeRecipe> plain_te_recipes() {
  std::vector<TeRecipe> out;
  for (const TeRecipe &r : te_recipes())
    for (const char *name : {"delayed", "current", "block", "mx", "rowwise"})
      if (std::string(r.name) == name) out.push_back(r);
  return out;
}

// Magnitudes that differ from block to block, and within one.
inline Matrix uneven_matrix(int64_t rows, int64_t cols, uint32_t seed, float largest) {
  Matrix m = some_matrix(rows, cols, seed, largest);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      m.at(r, c) = std::ldexp(m.at(r, c), static_cast<int>((r * 13 + c / 20 * 5 + seed) % 9) - 4);
  return m;
}

// a[M, K] b[N, K]^T with fp32 sums over ascending k: a product of plain tensors, bit for bit.
inline Matrix plain_product(const Matrix &a, const Matrix &b) {
  return multiplied(Quantized{a, 1.0f}, Quantized{b, 1.0f});
}

}  // namespace octavo::test
