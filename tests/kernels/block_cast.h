/* tests/kernels/block_cast.h: a quantize call with block granularities, and what it must give.
 *
 * A plain loop over the blocks. It takes the scale of a block from kernels/format; block_rules_test
 * and the golden vectors say whether that is right.
 */
#ifndef OCTAVO_TESTS_KERNELS_BLOCK_CAST_H
#define OCTAVO_TESTS_KERNELS_BLOCK_CAST_H

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/block_matrices.h"
#include "tests/kernels/fake_host.h"

namespace octavo::test {

struct Format {
  uint32_t dtype;
  float max;
  uint8_t (*encode)(float);
};

constexpr Format kE4m3 = {OCTAVO_E4M3FN, kMaxE4m3, &encode_e4m3};
constexpr Format kE5m2 = {OCTAVO_E5M2, kMaxE5m2, &encode_e5m2};

struct BlockCast {
  Format format;
  Matrix in;
  Matrix out;
  Matrix out_t;
  Scales scales;
  Scales scales_t;
  float in_scale_inv = 1.0f;
  float amax = 0.0f;
  float nonfinite = 0.0f;
  octavo_quantize c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);

  BlockCast(uint32_t in_dtype, const Format &f, uint32_t granularity, uint32_t granularity_t,
            uint32_t rule, int64_t rows, int64_t cols, int64_t pad = 0)
      : format(f),
        in(in_dtype, rows, cols, 3),
        out(f.dtype, rows + pad, cols + pad, 1),
        out_t(f.dtype, cols + pad, rows + pad, 2),
        scales(granularity, rows + pad, cols + pad, 1),
        scales_t(granularity_t, cols + pad, rows + pad, 2) {
    c.in = in.tensor();
    c.out = out.tensor();
    c.out_t = out_t.tensor();
    c.out_scale_inv = scales.get();
    c.out_t_scale_inv = scales_t.get();
    c.rule = rule;
    c.format_max = f.max;
    c.amax = &amax;
    c.nonfinite = &nonfinite;
  }
  BlockCast(const BlockCast &) = delete;
  BlockCast &operator=(const BlockCast &) = delete;
};

inline float largest_of(uint32_t dtype) {
  if (dtype == OCTAVO_BF16) return kMaxBf16;
  if (dtype == OCTAVO_F16) return kMaxF16;
  return kFloatMax; /* also of codes, whose values are fp32 */
}

/* One output: every code and scale, the padding, and what lies between cols and stride. */
inline void expect_output(const BlockCast &t, bool is_transposed) {
  const Matrix &out = is_transposed ? t.out_t : t.out;
  const Scales &scales = is_transposed ? t.scales_t : t.scales;
  const int64_t height = height_of(scales.get()->granularity);
  const int64_t length = length_of(scales.get()->granularity);
  const auto value = [&](int64_t row, int64_t col, float *v) {
    if (is_transposed) std::swap(row, col);
    if (row >= t.in.rows() || col >= t.in.cols()) return false;
    *v = scaled_by(t.in.get(row, col), t.in_scale_inv);
    return true;
  };
  for (int64_t i = 0; i < scales.rows(); ++i) {
    for (int64_t j = 0; j < scales.cols(); ++j) {
      const int64_t bottom = std::min((i + 1) * height, out.rows());
      const int64_t right = std::min((j + 1) * length, out.cols());
      float amax = 0.0f;
      float v = 0.0f;
      for (int64_t row = i * height; row < bottom; ++row) {
        for (int64_t col = j * length; col < right; ++col) {
          if (value(row, col, &v)) amax = std::fmax(amax, std::fabs(v));
        }
      }
      const BlockScale s =
          block_scale(t.c.rule, amax, t.c.format_max, t.c.eps, largest_of(t.in.dtype()));
      ASSERT_TRUE(same_value(scales.block(i, j), s.scale_inv))
          << "block " << i << ", " << j << ": " << scales.block(i, j) << ", expected "
          << s.scale_inv;
      for (int64_t row = i * height; row < bottom; ++row) {
        for (int64_t col = j * length; col < right; ++col) {
          const bool is_inside = value(row, col, &v);
          const int expected = is_inside ? t.format.encode(scaled_by(v, s.scale)) : 0;
          ASSERT_EQ(out.code(row, col), expected) << row << ", " << col;
        }
      }
    }
  }
  for (int64_t row = 0; row < out.rows() && out.cols() > 0; ++row) {
    ASSERT_EQ(*(out.at(row, out.cols() - 1) + 1), Matrix::kFiller);
  }
  const size_t bytes = is_mx(scales.get()->granularity) ? 1 : 4;
  const auto stride = static_cast<size_t>(scales.get()->stride) * bytes;
  for (size_t row = 0; row < static_cast<size_t>(scales.rows()); ++row) {
    for (size_t i = static_cast<size_t>(scales.cols()) * bytes; i < stride; ++i) {
      ASSERT_EQ(scales.data()[row * stride + i], Matrix::kFiller);
    }
  }
}

inline void expect_cast(Kernels *kernels, BlockCast *t) {
  ASSERT_EQ(kernels->quantize(t->c), OCTAVO_OK) << kernels->host().last_text();
  ASSERT_NO_FATAL_FAILURE(expect_output(*t, false)) << "out";
  ASSERT_NO_FATAL_FAILURE(expect_output(*t, true)) << "out_t";
}

}  // namespace octavo::test

#endif
