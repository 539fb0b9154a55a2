// The numbers of FP8 linear layers, computed in the plainest way from their definitions.
//
// Nothing here comes from kernels/: a code is found by trying all 256, a product by three loops.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

namespace octavo::test {

struct Format {
  int exponent_bits;
  int mantissa_bits;
  float max;
};
constexpr Format kE4m3 = {4, 3, 448.0f};
constexpr Format kE5m2 = {5, 2, 57344.0f};

// The value of a code without its sign; codes above the largest finite one are not asked for.
inline float value_of(const Format &f, int code) {
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int exponent = code >> f.mantissa_bits;
  const float mantissa = static_cast<float>(code & ((1 << f.mantissa_bits) - 1)) /
                         static_cast<float>(1 << f.mantissa_bits);
  return exponent == 0 ? std::ldexp(mantissa, 1 - bias) : std::ldexp(1 + mantissa, exponent - bias);
}

// The values of all codes without their signs.
inline const std::array<float, 128> &values_of(const Format &f) {
  const auto all = [](const Format &format) {
    std::array<float, 128> values{};
    for (int code = 0; code < 128; ++code)
      values[static_cast<size_t>(code)] = value_of(format, code);
    return values;
  };
  static const std::array<float, 128> e4m3 = all(kE4m3), e5m2 = all(kE5m2);
  return f.exponent_bits == kE4m3.exponent_bits ? e4m3 : e5m2;
}

// The finite value nearest to fl32(v * scale), ties to the even code, out of range to the largest.
inline float cast(const Format &f, float v, float scale) {
  const float scaled = v * scale;
  if (std::isnan(scaled)) return scaled;
  const double magnitude = std::fabs(static_cast<double>(scaled));
  const std::array<float, 128> &values = values_of(f);
  float best = 0;
  double best_distance = magnitude;
  for (size_t code = 1; code < values.size() && values[code] <= f.max; ++code) {
    const double distance = std::fabs(magnitude - static_cast<double>(values[code]));
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) {
      best = values[code];
      best_distance = distance;
    }
  }
  return std::copysign(best, scaled);
}

struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> v;

  Matrix() = default;
  Matrix(int64_t r, int64_t c, float fill = 0)
      : rows(r), cols(c), v(static_cast<size_t>(r * c), fill) {}
  float &at(int64_t r, int64_t c) { return v[static_cast<size_t>(r * cols + c)]; }
  float at(int64_t r, int64_t c) const { return v[static_cast<size_t>(r * cols + c)]; }
};

inline Matrix transposed(const Matrix &m) {
  Matrix t(m.cols, m.rows);
  for (int64_t r = 0; r < m.rows; ++r)
    for (int64_t c = 0; c < m.cols; ++c) t.at(c, r) = m.at(r, c);
  return t;
}

inline float amax_of(const Matrix &m) {
  float amax = 0;
  for (float v : m.v) amax = std::fmax(amax, std::fabs(v));  // fmax ignores NaN
  return amax;
}

// Values of codes, and what dequantizes them.
struct Quantized {
  Matrix codes;
  float scale_inv = 1;
};

inline Quantized quantized(const Format &f, const Matrix &m, float scale) {
  Quantized q{m, 1.0f / scale};
  for (float &v : q.codes.v) v = cast(f, v, scale);
  return q;
}

// Current scaling: the scale of this very tensor.
inline float current_scale(const Format &f, const Matrix &m) {
  const float amax = amax_of(m);
  return amax > 0 && std::isfinite(amax) ? f.max / amax : 1.0f;
}

// a[M, K] b[N, K]^T: fp32 sums over ascending k, then one factor.
inline Matrix multiplied(const Quantized &a, const Quantized &b) {
  Matrix d(a.codes.rows, b.codes.rows);
  const float factor = a.scale_inv * b.scale_inv;
  for (int64_t m = 0; m < d.rows; ++m) {
    for (int64_t n = 0; n < d.cols; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < a.codes.cols; ++k) sum += a.codes.at(m, k) * b.codes.at(n, k);
      d.at(m, n) = sum * factor;
    }
  }
  return d;
}

inline Quantized transposed(const Quantized &q) {
  return {transposed(q.codes), q.scale_inv};
}

// One operand of delayed scaling over the steps, written after its definition:
//   history[0] takes amax; amax' = maximum of all rows, or the live one; scale from amax'; the rows
//   roll so that 1 .. length-1 run from oldest to newest; row 0 and amax become 0.
struct DelayedOperand {
  float format_max;
  bool use_max;
  bool fused;
  int margin;
  float scale = 1;
  std::vector<float> history;

  void end_step(float amax) {
    if (fused && amax == 0) return;  // the fused kernel leaves everything as it is
    history[0] = amax;
    float chosen = amax;
    if (use_max)
      for (float h : history) chosen = std::fmax(chosen, h);
    if (chosen > 0 && std::isfinite(chosen)) {
      const float quotient = fused ? format_max / chosen : 1.0f / chosen * format_max;
      scale = std::ldexp(quotient, -margin);
    }
    history.erase(history.begin());
    history.push_back(amax);
    history[0] = 0;  // row 1 was the oldest and drops out; row 0 waits for the next amax
  }
};

// Values on a grid of 1/64, the same every time, so that sums of them are exact in any order.
inline Matrix some_matrix(int64_t rows, int64_t cols, uint32_t seed, float largest) {
  Matrix m(rows, cols);
  uint32_t state = seed * 2654435761u + 12345u;
  for (float &v : m.v) {
    state = state * 1664525u + 1013904223u;
    const float unit = static_cast<float>(state >> 8) / 16777216.0f * 2.0f - 1.0f;
    v = std::round(unit * largest * 64.0f) / 64.0f;
  }
  return m;
}

}  // namespace octavo::test
