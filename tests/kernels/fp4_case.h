/* tests/kernels/fp4_case.h: casts to codes of four bits, and what the definition says of them.
 *
 * The oracle is written from the formulas of arXiv 2509.25149, in double precision with a rounding
 * to fp32 where the definition has one, and finds codes by a search for the nearest value.
 */
#ifndef OCTAVO_TESTS_KERNELS_FP4_CASE_H
#define OCTAVO_TESTS_KERNELS_FP4_CASE_H

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "octavo/draft/fp4.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/support/draft_calls.h"

namespace octavo::test {

inline int64_t up_to_16(int64_t n) {
  return (n + 15) / 16 * 16;
}

/* Codes of a matrix with their scales, all with guard bytes behind them. */
struct Fp4Codes {
  Fp4Codes(int64_t height, int64_t width, bool is_square)
      : rows(height),
        cols(up_to_16(width)),
        square(is_square),
        codes(static_cast<size_t>(rows * cols / 2) + 1, 0xA5),
        scales(static_cast<size_t>((square ? (rows + 15) / 16 : rows) * (cols / 16)) + 1, 0xA5) {
    tensor = {codes.data(), rows, cols, cols, OCTAVO_E2M1, 0};
    scale = OCTAVO_SCALE(scales.data(), cols / 16, OCTAVO_E4M3FN,
                         square ? OCTAVO_BLOCK_16X16 : OCTAVO_BLOCK_1X16);
    scale.second = &second;
  }
  Fp4Codes(const Fp4Codes &) = delete;
  Fp4Codes &operator=(const Fp4Codes &) = delete;

  int code(int64_t row, int64_t col) const {
    return codes[static_cast<size_t>(row * cols + col) / 2] >> (col % 2 * 4) & 15;
  }
  int scale_code(int64_t row, int64_t col) const {
    return scales[static_cast<size_t>((square ? row / 16 : row) * (cols / 16) + col / 16)];
  }
  bool guards_are_whole() const { return codes.back() == 0xA5 && scales.back() == 0xA5; }

  int64_t rows, cols;
  bool square;
  std::vector<uint8_t> codes, scales;
  float second = -1;
  octavo_tensor tensor{};
  octavo_scale scale{};
};

struct Fp4Cast {
  octavo_tensor in{};
  Fp4Codes *out = nullptr, *out_t = nullptr;
  uint32_t flags = 0;
  uint64_t key = 0;
  float count = 0;
  float *amax = nullptr, *nonfinite = nullptr;

  octavo_status run(Kernels *kernels) const {
    auto q = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
    q.in = &in;
    q.rule = OCTAVO_RULE_NVFP4;
    q.amax = amax, q.nonfinite = nonfinite;
    if (out != nullptr) q.out = &out->tensor, q.out_scale_inv = &out->scale;
    if (out_t != nullptr) q.out_t = &out_t->tensor, q.out_t_scale_inv = &out_t->scale;
    if (flags == 0) return kernels->quantize(q);
    auto c = make_call<octavo_quantize_fp4>(OCTAVO_KIND_QUANTIZE_FP4);
    c.quantize = &q;
    c.flags = flags, c.key = key, c.count = &count;
    return draft_call(kernels->table, kernels->ctx(), &c);
  }
};

/* ---- The definition. ---- */

constexpr double kE2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

/* The nearest value's index, ties to the even one; what is above 6 gives 7. */
inline int nearest_e2m1(double magnitude) {
  if (magnitude >= 6) return 7;
  int best = 0;
  for (int code = 1; code < 8; ++code) {
    const double here = std::fabs(kE2m1[code] - magnitude),
                 there = std::fabs(kE2m1[best] - magnitude);
    if (here < there || (here <= there && code % 2 == 0)) best = code;
  }
  return best;
}

/* fl32 of an exact or double-rounded quotient or product: 53 bits are more than 2 * 24 + 2, so that
 * one rounding to double before it changes nothing. */
inline float fl32(double value) {
  const double limit = std::numeric_limits<float>::max();
  return value > limit ? std::numeric_limits<float>::infinity() : static_cast<float>(value);
}
inline double at_most_float(double value) {
  return std::min(value, static_cast<double>(std::numeric_limits<float>::max()));
}

struct Fp4Oracle {
  std::vector<int> codes, scales; /* scales for each element */
  double amax = 0;
};

/* The same for a dense matrix of fp32 numbers without NaN, with rows of whole blocks. */
inline Fp4Oracle fp4_oracle(const std::vector<float> &values, int64_t rows, int64_t cols,
                            bool square) {
  Fp4Oracle o;
  o.codes.resize(values.size());
  o.scales.resize(values.size());
  for (const float v : values) o.amax = std::max(o.amax, std::fabs(static_cast<double>(v)));
  float encode = o.amax > 0 ? fl32(2688.0 / o.amax) : std::numeric_limits<float>::infinity();
  encode = std::isinf(o.amax) ? 1.0f : static_cast<float>(at_most_float(encode));
  const double sixth = fl32(1.0 / 6.0), decode = fl32(1.0 / encode);
  const double factor = fl32(static_cast<double>(encode) * sixth);
  const auto block_of = [&](int64_t row, int64_t col) {
    return static_cast<size_t>((square ? row / 16 : row) * (cols / 16) + col / 16);
  };
  std::vector<double> amax(static_cast<size_t>(rows * (cols / 16)));
  for (int64_t i = 0; i < rows * cols; ++i) {
    double &most = amax[block_of(i / cols, i % cols)];
    most = std::max(most, std::fabs(static_cast<double>(values[static_cast<size_t>(i)])));
  }
  for (int64_t i = 0; i < rows * cols; ++i) {
    const double most = amax[block_of(i / cols, i % cols)];
    const auto at = static_cast<size_t>(i);
    o.scales[at] = encode_e4m3(fl32(at_most_float(fl32(most * factor))));
    const double scale = decode_e4m3(static_cast<uint8_t>(o.scales[at]));
    const float product = fl32(scale * decode);
    const double inverse = product > 0 ? at_most_float(fl32(1.0 / static_cast<double>(product)))
                                       : std::numeric_limits<float>::max();
    const double scaled = fl32(std::fabs(static_cast<double>(values[at])) * inverse);
    o.codes[at] = nearest_e2m1(scaled) | (values[at] < 0 && scaled > 0 ? 8 : 0);
  }
  return o;
}

}  // namespace octavo::test

#endif
