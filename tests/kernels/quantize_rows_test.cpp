/* quantize and dequantize with one scale per row, against a plain loop over rows.
 *
 * A row of out_t is a column of the input and has the amax of that column.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/format/scale_rules.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kFiller = -77.0f;

/* Scales of `rows` rows, `stride` apart. */
struct RowScales {
  std::vector<float> data;
  octavo_scale scale;

  RowScales(int64_t rows, int64_t stride)
      : data(static_cast<size_t>(rows * stride), kFiller),
        scale
        OCTAVO_SCALE(data.empty() ? nullptr : data.data(), stride, OCTAVO_F32, OCTAVO_PER_ROW) {}
  RowScales(const RowScales &) = delete;
  RowScales &operator=(const RowScales &) = delete;
  float at(int64_t row) const { return data[static_cast<size_t>(row * scale.stride)]; }
};

struct RowCast {
  Matrix in;
  Matrix out;
  Matrix out_t;
  RowScales scales;
  RowScales scales_t;
  float amax = 0.0f;
  float nonfinite = 0.0f;
  octavo_quantize c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);

  RowCast(uint32_t in_dtype, uint32_t dtype, uint32_t rule, int64_t rows, int64_t cols,
          int64_t pad = 0)
      : in(in_dtype, rows, cols, 3),
        out(dtype, rows + pad, cols + pad, 1),
        out_t(dtype, cols + pad, rows + pad, 2),
        scales(rows + pad, 1),
        scales_t(cols + pad, 3) {
    c.in = in.tensor();
    c.out = out.tensor();
    c.out_t = out_t.tensor();
    c.out_scale_inv = &scales.scale;
    c.out_t_scale_inv = &scales_t.scale;
    c.rule = rule;
    c.format_max = dtype == OCTAVO_E4M3FN ? kMaxE4m3 : dtype == OCTAVO_E5M2 ? kMaxE5m2 : kMaxF16;
    c.amax = &amax;
    c.nonfinite = &nonfinite;
  }
};

uint32_t expected_code(uint32_t dtype, float value) {
  if (dtype == OCTAVO_E4M3FN) return encode_e4m3(value);
  return dtype == OCTAVO_E5M2 ? encode_e5m2(value) : encode_f16_saturating(value);
}

/* One output: value(row, col, &v) is false in padding. */
template <typename Value>
void expect_rows(const RowCast &t, const Matrix &out, const RowScales &scales, Value value) {
  for (int64_t row = 0; row < out.rows(); ++row) {
    float amax = 0.0f;
    float v = 0.0f;
    for (int64_t col = 0; col < out.cols(); ++col) {
      if (value(row, col, &v)) amax = std::fmax(amax, std::fabs(v));
    }
    const float floor = amax < t.c.eps ? t.c.eps : amax;
    const float scale = scale_by_rule(t.c.rule, floor, 1.0f, t.c.format_max, 0);
    ASSERT_EQ(scales.at(row), 1.0f / scale) << "row " << row;
    for (int64_t col = 0; col < out.cols(); ++col) {
      const uint32_t expected =
          value(row, col, &v) ? expected_code(out.dtype(), scaled_by(v, scale)) : 0;
      uint32_t found = 0;
      std::memcpy(&found, out.at(row, col), OCTAVO_DTYPE_BITS(out.dtype()) / 8);
      ASSERT_EQ(found, expected) << row << ", " << col;
    }
  }
  for (size_t i = 0; i < scales.data.size(); ++i) {
    if (static_cast<int64_t>(i) % scales.scale.stride != 0) {
      ASSERT_EQ(scales.data[i], kFiller);
    }
  }
}

void expect_cast(Kernels *kernels, RowCast *t, float in_scale_inv = 1.0f) {
  ASSERT_EQ(kernels->quantize(t->c), OCTAVO_OK) << kernels->host().last_text();
  const auto value = [&](int64_t row, int64_t col, float *v) {
    if (row >= t->in.rows() || col >= t->in.cols()) return false;
    *v = scaled_by(t->in.get(row, col), in_scale_inv);
    return true;
  };
  if (t->c.out != nullptr) {
    ASSERT_NO_FATAL_FAILURE(expect_rows(*t, t->out, t->scales, value)) << "out";
  }
  if (t->c.out_t != nullptr) {
    ASSERT_NO_FATAL_FAILURE(
        expect_rows(*t, t->out_t, t->scales_t,
                    [&](int64_t row, int64_t col, float *v) { return value(col, row, v); }))
        << "out_t";
  }
}

TEST(QuantizeRows, ragged_shapes_with_padding_on_every_level) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(2, level);
    unsigned seed = 0;
    for (const int64_t rows : {0, 1, 33, 129}) {
      for (const int64_t cols : {0, 1, 65, 513}) {
        for (const int64_t pad : {0, 15}) {
          for (const bool is_turned : {false, true}) {
            const uint32_t dtype = ++seed % 2 == 0 ? OCTAVO_E4M3FN : OCTAVO_E5M2;
            RowCast t(OCTAVO_F32, dtype, OCTAVO_RULE_QUOTIENT, rows, cols, pad);
            t.in.fill(seed, 5.0f);
            if (!is_turned) {
              t.c.out_t = nullptr;
              t.c.out_t_scale_inv = nullptr;
            }
            ASSERT_NO_FATAL_FAILURE(expect_cast(&kernels, &t))
                << level << " " << rows << " x " << cols << " + " << pad;
          }
        }
      }
    }
  }
}

TEST(QuantizeRows, every_pair_of_dtypes_and_every_rule) {
  Kernels kernels;
  for (const uint32_t in : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2}) {
    for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16}) {
      for (const uint32_t rule : std::initializer_list<uint32_t>{
               OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2, OCTAVO_RULE_RECIPROCAL, OCTAVO_RULE_MSAMP,
               OCTAVO_RULE_MSAMP04}) {
        RowCast t(in, dtype, rule, 40, 300);
        t.in.fill(in + dtype, 3.0f);
        const float in_scale_inv = 0.37f;
        t.c.in_scale_inv = &in_scale_inv;
        t.c.eps = 0.5f;
        ASSERT_NO_FATAL_FAILURE(expect_cast(&kernels, &t, in_scale_inv)) << in << " " << dtype;
        EXPECT_EQ(t.amax, amax_of(t.in, in_scale_inv));
        EXPECT_EQ(t.nonfinite, 0.0f);
      }
    }
  }
}

TEST(QuantizeRows, odd_rows_do_not_reach_their_neighbours) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(1, level);
    for (const float odd : {0.0f, kInf, -kInf, kNan, 1e-45f, 3.4e38f}) {
      RowCast t(OCTAVO_F32, OCTAVO_E4M3FN, OCTAVO_RULE_QUOTIENT, 20, 130);
      t.in.fill(4);
      t.in.set(7, 100, odd);
      for (int64_t col = 0; col < 130; ++col) t.in.set(9, col, col == 3 ? odd : 0.0f);
      ASSERT_NO_FATAL_FAILURE(expect_cast(&kernels, &t)) << level << " " << odd;
      EXPECT_EQ(t.nonfinite, std::isfinite(odd) ? 0.0f : 1.0f);
    }
  }
}

TEST(QuantizeRows, keep_positive_keeps_small_values_above_0) {
  Kernels kernels;
  RowCast t(OCTAVO_F32, OCTAVO_E4M3FN, OCTAVO_RULE_QUOTIENT, 2, 3);
  const float values[2][3] = {{1000.0f, 1e-9f, -1e-9f}, {1000.0f, 1000.0f, 1000.0f}};
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t col = 0; col < 3; ++col) t.in.set(row, col, values[row][col]);
  }
  t.c.flags = OCTAVO_QUANTIZE_KEEP_POSITIVE;
  ASSERT_EQ(kernels.quantize(t.c), OCTAVO_OK);
  EXPECT_EQ(t.out.code(0, 1), 1);
  EXPECT_EQ(t.out.code(0, 2), 0x80);
  EXPECT_EQ(t.out_t.code(1, 0), 1);
  EXPECT_EQ(t.out_t.code(2, 0), 0x80);
}

TEST(QuantizeRows, threads_and_levels_give_equal_bits_and_one_output_is_what_both_give) {
  RowCast expected(OCTAVO_BF16, OCTAVO_E4M3FN, OCTAVO_RULE_POW2, 300, 1025);
  expected.in.fill(11, 0.01f);
  Kernels reference(0, "baseline");
  ASSERT_EQ(reference.quantize(expected.c), OCTAVO_OK);
  for (const std::string &level : supported_levels()) {
    for (const int threads : {1, 2, 5}) {
      for (const int outputs : {1, 2, 3}) {
        Kernels kernels(threads, level);
        RowCast t(OCTAVO_BF16, OCTAVO_E4M3FN, OCTAVO_RULE_POW2, 300, 1025);
        t.in.fill(11, 0.01f);
        if ((outputs & 1) == 0) t.c.out = nullptr, t.c.out_scale_inv = nullptr;
        if ((outputs & 2) == 0) t.c.out_t = nullptr, t.c.out_t_scale_inv = nullptr;
        ASSERT_EQ(kernels.quantize(t.c), OCTAVO_OK) << kernels.host().last_text();
        if ((outputs & 1) != 0) {
          EXPECT_EQ(t.out.data(), expected.out.data()) << level << " " << threads;
          EXPECT_EQ(t.scales.data, expected.scales.data) << level << " " << threads;
        }
        if ((outputs & 2) != 0) {
          EXPECT_EQ(t.out_t.data(), expected.out_t.data()) << level << " " << threads;
          EXPECT_EQ(t.scales_t.data, expected.scales_t.data) << level << " " << threads;
        }
        EXPECT_EQ(t.amax, expected.amax);
      }
    }
  }
}

TEST(DequantizeRows, every_row_has_its_own_multiplier) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(2, level);
    for (const uint32_t in_dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16}) {
      for (const uint32_t out_dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
        for (const int64_t cols : {1, 700, 3001}) {
          for (const uint32_t accumulate : {0u, 1u}) {
            Matrix in(in_dtype, 5, cols, 1);
            in.fill(5, 2.0f);
            Matrix out(out_dtype, 5, cols, 2);
            out.fill(6);
            const Matrix before = out;
            RowScales scales(5, 2);
            for (size_t row = 0; row < 5; ++row) {
              scales.data[row * 2] = 0.1f + 1.7f * static_cast<float>(row);
            }
            scales.data[6] = kNan;
            auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
            c.in = in.tensor();
            c.scale_inv = &scales.scale;
            c.out = out.tensor();
            c.accumulate = accumulate;
            ASSERT_EQ(kernels.dequantize(c), OCTAVO_OK) << kernels.host().last_text();
            for (int64_t row = 0; row < 5; ++row) {
              for (int64_t col = 0; col < cols; ++col) {
                const float value = in.get(row, col) * scales.at(row);
                const float sum = accumulate == 1 ? before.get(row, col) + value : value;
                ASSERT_TRUE(same_value(out.get(row, col), rounded(out_dtype, sum)))
                    << level << " " << row << ", " << col;
              }
            }
          }
        }
      }
    }
  }
}

TEST(QuantizeRows, malformed_calls_are_refused_with_a_text_and_write_nothing) {
  struct Fault {
    void (*break_it)(RowCast *t);
    octavo_status status;
    const char *text;
  };
  static const float one = 1.0f;
  const Fault faults[] = {
      {[](RowCast *t) { t->scales.scale.dtype = OCTAVO_E8M0FNU; }, OCTAVO_UNSUPPORTED,
       "out_scale_inv.dtype = 0x80e; expected 0x2002 (f32)"},
      {[](RowCast *t) { t->scales_t.scale.stride = 0; }, OCTAVO_INVALID,
       "out_t_scale_inv.stride = 0; expected at least 1"},
      {[](RowCast *t) { t->scales.scale.data = nullptr; }, OCTAVO_INVALID, "out_scale_inv.data"},
      {[](RowCast *t) { t->c.out_t_scale_inv = nullptr; }, OCTAVO_INVALID,
       "out_t_scale_inv is null, but out_t is given"},
      {[](RowCast *t) { t->scales_t.scale.granularity = OCTAVO_PER_TENSOR; }, OCTAVO_INVALID,
       "out_t_scale_inv.granularity = 0; expected 1 (per row)"},
      {[](RowCast *t) { t->c.rule = OCTAVO_RULE_GIVEN; }, OCTAVO_UNSUPPORTED, "rule = 0"},
      {[](RowCast *t) { t->c.scale = &one; }, OCTAVO_INVALID, "scale is not null"},
      {[](RowCast *t) { t->c.counter = &one; }, OCTAVO_INVALID, "counter is not null"},
      {[](RowCast *t) { t->c.out = t->c.out_t = nullptr; }, OCTAVO_INVALID,
       "out and out_t are null"},
      {[](RowCast *t) { t->out.tensor()->rows = 2; }, OCTAVO_INVALID, "out has shape [2, 5]"},
      {[](RowCast *t) { t->c.format_max = 0.0f; }, OCTAVO_INVALID, "format_max = 0"},
  };
  for (const Fault &fault : faults) {
    Kernels kernels;
    RowCast t(OCTAVO_F32, OCTAVO_E4M3FN, OCTAVO_RULE_QUOTIENT, 3, 5);
    t.in.fill(1);
    const std::vector<uint8_t> before = t.out.data();
    fault.break_it(&t);
    EXPECT_EQ(kernels.quantize(t.c), fault.status) << fault.text;
    EXPECT_NE(kernels.host().last_text().find(fault.text), std::string::npos)
        << kernels.host().last_text() << "; expected " << fault.text;
    EXPECT_EQ(t.out.data(), before);
    EXPECT_EQ(t.scales.at(0), kFiller);
    EXPECT_EQ(t.scales_t.at(0), kFiller);
    EXPECT_EQ(t.amax, 0.0f);
  }
}

}  // namespace
}  // namespace octavo::test
