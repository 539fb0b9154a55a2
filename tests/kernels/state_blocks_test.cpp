/* quantize and dequantize of states in blocks: FLAT_256 and EXPANDED_128.
 *
 * The expectations are the formulas of octavo/tensor.h and kernels.h in long double; a code may
 * fall either way only where its exact value lies within a millionth of a rounding tie.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/kernels/state_matrix.h"

namespace octavo::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(StateBlocks, awkward_shapes_follow_the_formulas_and_read_back) {
  for (const uint32_t g : kStateGroups) {
    for (const int64_t rows : {1, 3, 64}) {
      for (const int64_t cols : {1, 127, 129, 256, 700}) {
        State s(g, rows, cols);
        fill_spread(&s.in, static_cast<unsigned>(rows * 1000 + cols), 20.0f);
        ASSERT_NO_FATAL_FAILURE(expect_written_and_read(&s)) << g << ": " << rows << " x " << cols;
      }
    }
  }
}

TEST(StateBlocks, every_spread_of_values_follows_the_formulas) {
  for (const uint32_t g : kStateGroups) {
    for (const float spread : {0.0f, 1e-6f, 0.3f, 1.0f, 2.0f, 8.0f, 16.0f, 17.0f, 40.0f, 120.0f}) {
      State s(g, 4, 300);
      fill_spread(&s.in, 7, spread);
      ASSERT_NO_FATAL_FAILURE(expect_written_and_read(&s)) << g << ": 2^" << spread;
    }
  }
}

TEST(StateBlocks, the_exponent_is_limited_at_both_ends) {
  State wide(OCTAVO_EXPANDED_128, 1, 128);
  fill_spread(&wide.in, 9, 100.0f);
  wide.in.set(0, 5, 0x1p-149f);
  wide.in.set(0, 6, 0x1p125f);
  ASSERT_NO_FATAL_FAILURE(expect_written_and_read(&wide));
  EXPECT_EQ(wide.scales[1], 0.0625f);
  State equal(OCTAVO_EXPANDED_128, 1, 128);
  for (int64_t i = 0; i < 128; ++i) equal.in.set(0, i, i % 2 == 0 ? 0.3f : -0.3f);
  ASSERT_NO_FATAL_FAILURE(expect_written_and_read(&equal));
  EXPECT_EQ(equal.scales[1], 16.0f);
  EXPECT_EQ(equal.back.get(0, 1), -0.3f);
}

/* Values beside the ties between codes, where a product with the reciprocal rounds apart. */
TEST(StateBlocks, flat_divides_by_its_scale) {
  int differing = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    State s(OCTAVO_FLAT_256, 1, 253);
    const float largest = 0.5f + 0.009f * static_cast<float>(seed);
    const float scale_inv = largest / 448.0f;
    s.in.set(0, 252, largest);
    for (int code = 0; code < 126; ++code) {
      const float tie =
          (decode_e4m3(static_cast<uint8_t>(code)) + decode_e4m3(static_cast<uint8_t>(code + 1))) /
          2;
      for (int i = 0; i < 2; ++i) {
        const float value = i == 0 ? tie * scale_inv : std::nextafter(tie * scale_inv, 1.0f);
        s.in.set(0, 2 * code + i, value);
        const uint8_t product = encode_e4m3(value * (1.0f / scale_inv));
        differing += product != encode_e4m3(value / scale_inv) ? 1 : 0;
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_written_and_read(&s)) << seed;
  }
  EXPECT_GT(differing, 0);
}

TEST(StateBlocks, other_dtypes_and_a_factor_before_the_cast) {
  Kernels kernels;
  for (const uint32_t g : kStateGroups) {
    for (const uint32_t plain : {OCTAVO_BF16, OCTAVO_F16}) {
      State s(g, 5, 111, plain);
      s.in.fill(3);
      const float factor = 0.37f;
      octavo_quantize c = s.write_call();
      c.in_scale_inv = &factor;
      ASSERT_EQ(kernels.quantize(c), OCTAVO_OK) << kernels.host().last_text();
      std::vector<float> values = s.values();
      float amax = 0.0f;
      for (float &value : values) amax = std::fmax(amax, std::fabs(value *= factor));
      ASSERT_NO_FATAL_FAILURE(expect_blocks(g, values, s.codes.data(), s.scales));
      EXPECT_EQ(s.amax, amax);
      EXPECT_EQ(s.nonfinite, 0.0f);
    }
  }
}

TEST(StateBlocks, a_block_of_zeros_has_the_documented_scale_and_no_block_is_nothing) {
  Kernels kernels;
  State flat(OCTAVO_FLAT_256, 2, 300);
  State expanded(OCTAVO_EXPANDED_128, 2, 300);
  for (State *s : {&flat, &expanded}) {
    for (int64_t i = 0; i < 600; ++i) s->in.set(i / 300, i % 300, 0.0f);
    ASSERT_EQ(kernels.quantize(s->write_call()), OCTAVO_OK) << kernels.host().last_text();
    EXPECT_EQ(s->codes.data(), std::vector<uint8_t>(600, 0));
  }
  EXPECT_EQ(flat.scales, std::vector<float>(3, 1e-12f / 448.0f));
  EXPECT_EQ(expanded.scales, std::vector<float>(15, 1.0f));
  for (const uint32_t g : kStateGroups) {
    State none(g, 0, 8);
    EXPECT_EQ(kernels.quantize(none.write_call()), OCTAVO_OK) << kernels.host().last_text();
    EXPECT_EQ(kernels.dequantize(none.read_call()), OCTAVO_OK) << kernels.host().last_text();
    EXPECT_EQ(none.amax, 0.0f);
  }
}

TEST(StateBlocks, states_that_begin_as_zero_bytes_read_as_0) {
  Kernels kernels;
  for (const uint32_t g : kStateGroups) {
    State s(g, 3, 100);
    std::memset(s.codes.at(0, 0), 0, 300);
    std::fill(s.scales.begin(), s.scales.end(), 0.0f);
    ASSERT_EQ(kernels.dequantize(s.read_call()), OCTAVO_OK);
    for (int64_t i = 0; i < 300; ++i) ASSERT_EQ(s.back.get(i / 100, i % 100), 0.0f);
  }
}

TEST(StateBlocks, infinity_and_nan_take_no_part_in_the_scale) {
  Kernels kernels;
  for (const uint32_t g : kStateGroups) {
    State clean(g, 1, 100);
    clean.in.fill(5);
    clean.in.set(0, 10, 0.0f);
    clean.in.set(0, 11, 0.0f);
    State s(g, 1, 100);
    s.in.fill(5);
    s.in.set(0, 10, -kInf);
    s.in.set(0, 11, kNan);
    ASSERT_EQ(kernels.quantize(clean.write_call()), OCTAVO_OK);
    ASSERT_EQ(kernels.quantize(s.write_call()), OCTAVO_OK);
    EXPECT_EQ(s.scales, clean.scales);
    EXPECT_EQ(s.codes.code(0, 10), 0xFE);
    EXPECT_EQ(s.codes.code(0, 11) & 0x7F, 0x7F);
    EXPECT_EQ(s.codes.code(0, 12), clean.codes.code(0, 12));
    EXPECT_EQ(s.nonfinite, 1.0f);
    EXPECT_EQ(s.amax, kInf);
    EXPECT_EQ(clean.nonfinite, 0.0f);
    ASSERT_EQ(kernels.dequantize(s.read_call()), OCTAVO_OK);
    EXPECT_TRUE(std::isnan(s.back.get(0, 11)));
    EXPECT_TRUE(std::isfinite(s.back.get(0, 10)));
  }
}

/* For pairs up to the whole range of fp32: no value above 0 gets code 0, and none reads back as 0
 * or infinity. */
TEST(StateBlocks, expanded_never_turns_a_positive_value_into_0) {
  Kernels kernels;
  int pairs = 0;
  for (int low = -149; low <= 127; low += 3) {
    for (int high = low; high <= 127; high += 5, ++pairs) {
      State s(OCTAVO_EXPANDED_128, 1, 128);
      for (int64_t i = 0; i < 128; ++i) {
        const int power = low + (high - low) * static_cast<int>(i) / 127;
        s.in.set(0, i, std::ldexp(1.0f, power));
      }
      s.in.set(0, 64, 0.0f);
      if (high == 127) s.in.set(0, 127, kFloatMax);
      ASSERT_EQ(kernels.quantize(s.write_call()), OCTAVO_OK);
      ASSERT_EQ(kernels.dequantize(s.read_call()), OCTAVO_OK);
      for (int64_t i = 0; i < 128; ++i) {
        if (i == 64) continue;
        ASSERT_GT(s.codes.code(0, i), 0) << low << " to " << high << ", element " << i;
        ASSERT_LT(s.codes.code(0, i), 0x7F) << low << " to " << high << ", element " << i;
        ASSERT_GT(s.back.get(0, i), 0.0f) << low << " to " << high << ", element " << i;
        ASSERT_TRUE(std::isfinite(s.back.get(0, i))) << low << " to " << high;
      }
      ASSERT_EQ(s.codes.code(0, 64), 0);
    }
  }
  EXPECT_GT(pairs, 2000);
}

TEST(StateBlocks, reading_can_add) {
  Kernels kernels;
  for (const uint32_t g : kStateGroups) {
    State s(g, 3, 257);
    s.in.fill(8);
    ASSERT_EQ(kernels.quantize(s.write_call()), OCTAVO_OK);
    ASSERT_EQ(kernels.dequantize(s.read_call()), OCTAVO_OK);
    const Matrix once = s.back;
    octavo_dequantize c = s.read_call();
    c.accumulate = 1;
    ASSERT_EQ(kernels.dequantize(c), OCTAVO_OK);
    for (int64_t i = 0; i < 3 * 257; ++i) {
      ASSERT_EQ(s.back.get(i / 257, i % 257), 2.0f * once.get(i / 257, i % 257));
    }
  }
}

TEST(StateBlocks, threads_and_levels_give_equal_bits) {
  for (const uint32_t g : kStateGroups) {
    Kernels reference(0, "baseline");
    State expected(g, 33, 511);
    fill_spread(&expected.in, 4, 30.0f);
    ASSERT_EQ(reference.quantize(expected.write_call()), OCTAVO_OK);
    ASSERT_EQ(reference.dequantize(expected.read_call()), OCTAVO_OK);
    for (const std::string &level : supported_levels()) {
      for (const int threads : {1, 2, 5}) {
        Kernels kernels(threads, level);
        State s(g, 33, 511);
        fill_spread(&s.in, 4, 30.0f);
        ASSERT_EQ(kernels.quantize(s.write_call()), OCTAVO_OK);
        ASSERT_EQ(kernels.dequantize(s.read_call()), OCTAVO_OK);
        EXPECT_EQ(s.codes.data(), expected.codes.data()) << level << " " << threads;
        EXPECT_EQ(s.scales, expected.scales) << level << " " << threads;
        EXPECT_EQ(s.back.data(), expected.back.data()) << level << " " << threads;
        EXPECT_EQ(s.amax, expected.amax);
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test
