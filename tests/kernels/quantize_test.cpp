/* quantize: codes, transposes, padding, scales, amax and nonfinite.
 *
 * Expected codes come from kernels/format element by element; whether those are right is the matter
 * of float8_test and of the golden vectors.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "kernels/format/scale_rules.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/* A quantize call with everything it points to. */
struct Cast {
  Matrix in;
  Matrix out;
  Matrix out_t;
  float scale = 1.0f;
  float scale_inv = -1.0f;
  float amax = 0.0f;
  float nonfinite = 0.0f;
  octavo_scale out_scale_inv = per_tensor(&scale_inv);
  octavo_quantize c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);

  Cast(uint32_t in_dtype, uint32_t out_dtype, int64_t rows, int64_t cols, int64_t pad = 0)
      : in(in_dtype, rows, cols, 3),
        out(out_dtype, rows + pad, cols + pad, 1),
        out_t(out_dtype, cols + pad, rows + pad, 2) {
    c.in = in.tensor();
    c.out = out.tensor();
    c.out_t = out_t.tensor();
    c.out_scale_inv = &out_scale_inv;
    c.scale = &scale;
    c.amax = &amax;
    c.nonfinite = &nonfinite;
    c.format_max = out_dtype == OCTAVO_E4M3FN ? kMaxE4m3
                   : out_dtype == OCTAVO_E5M2 ? kMaxE5m2
                                              : kMaxF16;
  }
};

uint32_t expected_code(uint32_t dtype, float value) {
  if (dtype == OCTAVO_E4M3FN) return encode_e4m3(value);
  return dtype == OCTAVO_E5M2 ? encode_e5m2(value) : encode_f16_saturating(value);
}

uint32_t code_at(const Matrix &m, int64_t row, int64_t col) {
  uint32_t code = 0;
  std::memcpy(&code, m.at(row, col), OCTAVO_DTYPE_BITS(m.dtype()) / 8);
  return code;
}

/* Every element of out and out_t, the padding and what lies between cols and stride. */
void expect_cast(const Cast &t, float in_scale_inv, float scale) {
  for (int64_t row = 0; row < t.out.rows(); ++row) {
    for (int64_t col = 0; col < t.out.cols(); ++col) {
      const bool inside = row < t.in.rows() && col < t.in.cols();
      const float value = inside ? t.in.get(row, col) * in_scale_inv : 0.0f;
      const uint32_t expected = inside ? expected_code(t.out.dtype(), value * scale) : 0;
      ASSERT_EQ(code_at(t.out, row, col), expected) << row << ", " << col;
      ASSERT_EQ(code_at(t.out_t, col, row), expected) << row << ", " << col;
    }
    if (t.out.cols() > 0) {
      ASSERT_EQ(*(t.out.at(row, t.out.cols() - 1) + OCTAVO_DTYPE_BITS(t.out.dtype()) / 8),
                Matrix::kFiller);
    }
  }
}

TEST(Quantize, every_pair_of_dtypes) {
  Kernels kernels;
  for (const uint32_t in : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2}) {
    for (const uint32_t out : {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16}) {
      Cast t(in, out, 37, 301);
      t.in.fill(in + out, 5.0f);
      t.scale = 13.7f;
      const float in_scale_inv = 0.37f;
      t.c.in_scale_inv = &in_scale_inv;
      ASSERT_EQ(kernels.quantize(t.c), OCTAVO_OK) << kernels.host().last_text();
      ASSERT_NO_FATAL_FAILURE(expect_cast(t, in_scale_inv, t.scale));
      EXPECT_EQ(t.scale_inv, 1.0f / t.scale);
      EXPECT_EQ(t.amax, amax_of(t.in, in_scale_inv));
      EXPECT_EQ(t.nonfinite, 0.0f);
    }
  }
}

TEST(Quantize, awkward_shapes_with_padding) {
  Kernels kernels;
  for (const int64_t rows : {0, 1, 31, 33}) {
    for (const int64_t cols : {1, 17, 256, 257, 513}) {
      Cast t(OCTAVO_F32, OCTAVO_E4M3FN, rows, cols, 15);
      t.in.fill(static_cast<unsigned>(rows * 1000 + cols));
      t.scale = 100.0f;
      ASSERT_EQ(kernels.quantize(t.c), OCTAVO_OK) << kernels.host().last_text();
      ASSERT_NO_FATAL_FAILURE(expect_cast(t, 1.0f, t.scale)) << rows << " x " << cols;
    }
  }
}

TEST(Quantize, current_rules_use_the_amax_of_the_input) {
  Kernels kernels;
  int differing = 0; /* inputs where a quotient and a reciprocal round apart */
  for (unsigned seed = 1; seed <= 10; ++seed) {
    for (const uint32_t rule : {OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2, OCTAVO_RULE_RECIPROCAL}) {
      Cast t(OCTAVO_F32, OCTAVO_E5M2, 40, 300);
      t.in.fill(seed, 3.3f);
      t.in.set(11, 280, kNan); /* takes no part in amax */
      t.c.rule = rule;
      t.c.scale = nullptr;
      ASSERT_EQ(kernels.quantize(t.c), OCTAVO_OK) << kernels.host().last_text();
      ASSERT_GT(t.amax, 3.3f);
      const float quotient = kMaxE5m2 / t.amax;
      const float reciprocal = 1.0f / t.amax * kMaxE5m2;
      const float power = std::exp2(std::floor(std::log2(quotient)));
      const float expected = rule == OCTAVO_RULE_QUOTIENT ? quotient
                             : rule == OCTAVO_RULE_POW2   ? power
                                                          : reciprocal;
      differing += rule == OCTAVO_RULE_RECIPROCAL && quotient != reciprocal ? 1 : 0;
      EXPECT_EQ(t.scale_inv, 1.0f / expected);
      ASSERT_NO_FATAL_FAILURE(expect_cast(t, 1.0f, expected));
    }
  }
  EXPECT_GT(differing, 0);
}

TEST(Quantize, current_rule_gives_1_without_a_usable_amax) {
  Kernels kernels;
  for (const float odd : {0.0f, kInf, -kInf, kNan}) {
    Cast t(OCTAVO_F32, OCTAVO_E4M3FN, 1, 5);
    t.in.set(0, 2, odd);
    for (const int64_t col : {0, 1, 3, 4}) t.in.set(0, col, 0.0f);
    t.c.rule = OCTAVO_RULE_QUOTIENT;
    ASSERT_EQ(kernels.quantize(t.c), OCTAVO_OK);
    EXPECT_EQ(t.scale_inv, 1.0f) << odd;
    EXPECT_EQ(t.nonfinite, odd == 0.0f ? 0.0f : 1.0f) << odd;
    ASSERT_NO_FATAL_FAILURE(expect_cast(t, 1.0f, 1.0f));
  }
}

TEST(Quantize, tiny_amax_gives_the_largest_scale_and_a_subnormal_inverse) {
  Kernels kernels;
  Cast t(OCTAVO_F32, OCTAVO_E4M3FN, 1, 1);
  t.in.set(0, 0, 1e-37f);
  t.c.rule = OCTAVO_RULE_QUOTIENT;
  ASSERT_EQ(kernels.quantize(t.c), OCTAVO_OK);
  EXPECT_EQ(float_bits(t.scale_inv), 0x00200000);

  Cast given(OCTAVO_F32, OCTAVO_E4M3FN, 1, 1);
  given.in.set(0, 0, 1e-37f);
  given.scale = kFloatMax;
  ASSERT_EQ(kernels.quantize(given.c), OCTAVO_OK);
  EXPECT_EQ(float_bits(given.scale_inv), 0x00200000);
  ASSERT_NO_FATAL_FAILURE(expect_cast(given, 1.0f, kFloatMax));
}

TEST(Quantize, warm_up_applies_the_rule_below_the_window) {
  Kernels kernels;
  for (const float counter : {0.0f, 3.0f, 4.0f, 9.0f, kNan}) {
    Cast t(OCTAVO_F32, OCTAVO_E4M3FN, 3, 4);
    t.in.fill(3);
    t.scale = 2.0f;
    t.c.rule = OCTAVO_RULE_POW2;
    t.c.counter = &counter;
    t.c.window = 4.0f;
    ASSERT_EQ(kernels.quantize(t.c), OCTAVO_OK);
    const float expected = counter >= 4.0f ? 2.0f : floor_to_power_of_two(kMaxE4m3 / t.amax);
    ASSERT_NE(floor_to_power_of_two(kMaxE4m3 / t.amax), 2.0f);
    EXPECT_EQ(t.scale_inv, 1.0f / expected) << counter;
  }
}

TEST(Quantize, accumulators_keep_what_is_larger) {
  Kernels kernels;
  Cast t(OCTAVO_F32, OCTAVO_E4M3FN, 1, 2);
  t.in.set(0, 0, -3.0f);
  t.in.set(0, 1, kNan);
  t.amax = 5.0f;
  ASSERT_EQ(kernels.quantize(t.c), OCTAVO_OK);
  EXPECT_EQ(t.amax, 5.0f);
  EXPECT_EQ(t.nonfinite, 1.0f);
  t.amax = 2.0f;
  t.in.set(0, 1, 0.0f);
  ASSERT_EQ(kernels.quantize(t.c), OCTAVO_OK);
  EXPECT_EQ(t.amax, 3.0f);
  EXPECT_EQ(t.nonfinite, 1.0f) << "a finite input must not clear the flag";
}

TEST(Quantize, threads_and_levels_give_equal_bits) {
  for (const uint32_t rule : {OCTAVO_RULE_GIVEN, OCTAVO_RULE_QUOTIENT}) {
    Kernels reference(0, "baseline");
    Cast expected(OCTAVO_BF16, OCTAVO_E4M3FN, 217, 1025);
    expected.in.fill(11, 0.01f);
    expected.in.set(100, 100, kInf);
    if (rule == OCTAVO_RULE_QUOTIENT) expected.in.set(100, 100, 4.0f);
    expected.c.rule = rule;
    ASSERT_EQ(reference.quantize(expected.c), OCTAVO_OK);
    for (const std::string &level : supported_levels()) {
      for (const int threads : {1, 2, 5}) {
        Kernels kernels(threads, level);
        Cast t(OCTAVO_BF16, OCTAVO_E4M3FN, 217, 1025);
        t.in.fill(11, 0.01f);
        std::memcpy(t.in.at(100, 100), expected.in.at(100, 100), 2);
        t.c.rule = rule;
        ASSERT_EQ(kernels.quantize(t.c), OCTAVO_OK);
        EXPECT_EQ(t.out.data(), expected.out.data()) << level << " " << threads;
        EXPECT_EQ(t.out_t.data(), expected.out_t.data()) << level << " " << threads;
        EXPECT_EQ(t.amax, expected.amax);
        EXPECT_EQ(t.nonfinite, expected.nonfinite);
        EXPECT_EQ(t.scale_inv, expected.scale_inv);
      }
    }
  }
}

TEST(Quantize, calls_in_flight_share_their_accumulators) {
  Kernels kernels(0);
  float amax = 0.0f;
  float nonfinite = 0.0f;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&kernels, &amax, &nonfinite, i] {
      Cast t(OCTAVO_F32, OCTAVO_E5M2, 8, 64);
      t.in.fill(i);
      t.in.set(3, 5, 100.0f + static_cast<float>(i));
      if (i == 2) t.in.set(0, 0, kNan);
      t.c.amax = &amax;
      t.c.nonfinite = &nonfinite;
      for (int repeat = 0; repeat < 20; ++repeat) {
        EXPECT_EQ(kernels.quantize(t.c), OCTAVO_OK);
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(amax, 103.0f);
  EXPECT_EQ(nonfinite, 1.0f);
}

}  // namespace
}  // namespace octavo::test
