/* quantize and dequantize of states in blocks: FLAT_256 and EXPANDED_128.
 *
 * The expectations are the formulas of octavo/tensor.h and kernels.h in long double; a code may fall
 * either way only where its exact value lies within a millionth of a rounding tie.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/state_oracle.h"

namespace octavo::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/* A matrix, its codes with their scales, and what is read back. */
struct State {
  Matrix in;
  Matrix codes;
  Matrix back;
  uint32_t granularity;
  std::vector<float> scales;
  float amax = 0.0f;
  float nonfinite = 0.0f;
  octavo_scale scale_inv;

  State(uint32_t g, int64_t rows, int64_t cols, uint32_t plain = OCTAVO_F32)
      : in(plain, rows, cols),
        codes(OCTAVO_E4M3FN, rows, cols),
        back(plain, rows, cols),
        granularity(g),
        scales(static_cast<size_t>(scale_count(g, rows * cols)), -1.0f),
        scale_inv{scales.data(), 0, OCTAVO_F32, g} {
    if (scales.empty()) scale_inv.data = &amax; /* an address that is never written */
  }

  octavo_quantize write_call() {
    auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
    c.in = in.tensor();
    c.out = codes.tensor();
    c.out_scale_inv = &scale_inv;
    c.amax = &amax;
    c.nonfinite = &nonfinite;
    c.rule = 99; /* not looked at */
    return c;
  }
  octavo_dequantize read_call() {
    auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
    c.in = codes.tensor();
    c.scale_inv = &scale_inv;
    c.out = back.tensor();
    return c;
  }
  std::vector<float> values() const {
    std::vector<float> all;
    for (int64_t i = 0; i < in.rows() * in.cols(); ++i) {
      all.push_back(in.get(i / in.cols(), i % in.cols()));
    }
    return all;
  }
};

/* Values that span `spread` powers of two, of both signs, with some zeros. */
void fill_spread(Matrix *m, unsigned seed, float spread) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> exponent(-spread, 0.0f);
  for (int64_t row = 0; row < m->rows(); ++row) {
    for (int64_t col = 0; col < m->cols(); ++col) {
      const float magnitude = std::exp2(exponent(generator));
      const unsigned kind = generator() % 16;
      m->set(row, col, kind == 0 ? 0.0f : kind % 2 == 0 ? magnitude : -magnitude);
    }
  }
}

void expect_written_and_read(State *s) {
  Kernels kernels(2);
  ASSERT_EQ(kernels.quantize(s->write_call()), OCTAVO_OK) << kernels.host().last_text();
  const std::vector<float> values = s->values();
  ASSERT_NO_FATAL_FAILURE(expect_blocks(s->granularity, values, s->codes.data(), s->scales));
  ASSERT_EQ(kernels.dequantize(s->read_call()), OCTAVO_OK) << kernels.host().last_text();
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = block_value(s->granularity, s->codes.data(), s->scales, i);
    const int64_t at = static_cast<int64_t>(i);
    const float found = s->back.get(at / s->back.cols(), at % s->back.cols());
    ASSERT_NEAR(found, expected, std::abs(expected) * 0x1p-23 + 0x1p-149) << i;
  }
}

TEST(StateBlocks, awkward_shapes_follow_the_formulas_and_read_back) {
  for (const uint32_t g : {OCTAVO_FLAT_256, OCTAVO_EXPANDED_128}) {
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
  for (const uint32_t g : {OCTAVO_FLAT_256, OCTAVO_EXPANDED_128}) {
    for (const float spread : {0.0f, 1e-6f, 0.3f, 1.0f, 2.0f, 8.0f, 16.0f, 17.0f, 40.0f, 120.0f}) {
      State s(g, 4, 300);
      fill_spread(&s.in, 7, spread);
      ASSERT_NO_FATAL_FAILURE(expect_written_and_read(&s)) << g << ": 2^" << spread;
    }
  }
}

TEST(StateBlocks, other_dtypes_and_a_factor_before_the_cast) {
  Kernels kernels;
  for (const uint32_t g : {OCTAVO_FLAT_256, OCTAVO_EXPANDED_128}) {
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
  for (const uint32_t g : {OCTAVO_FLAT_256, OCTAVO_EXPANDED_128}) {
    State none(g, 0, 8);
    EXPECT_EQ(kernels.quantize(none.write_call()), OCTAVO_OK) << kernels.host().last_text();
    EXPECT_EQ(kernels.dequantize(none.read_call()), OCTAVO_OK) << kernels.host().last_text();
    EXPECT_EQ(none.amax, 0.0f);
  }
}

TEST(StateBlocks, states_that_begin_as_zero_bytes_read_as_0) {
  Kernels kernels;
  for (const uint32_t g : {OCTAVO_FLAT_256, OCTAVO_EXPANDED_128}) {
    State s(g, 3, 100);
    std::memset(s.codes.at(0, 0), 0, 300);
    std::fill(s.scales.begin(), s.scales.end(), 0.0f);
    ASSERT_EQ(kernels.dequantize(s.read_call()), OCTAVO_OK);
    for (int64_t i = 0; i < 300; ++i) ASSERT_EQ(s.back.get(i / 100, i % 100), 0.0f);
  }
}

TEST(StateBlocks, infinity_and_nan_take_no_part_in_the_scale) {
  Kernels kernels;
  for (const uint32_t g : {OCTAVO_FLAT_256, OCTAVO_EXPANDED_128}) {
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
  for (const uint32_t g : {OCTAVO_FLAT_256, OCTAVO_EXPANDED_128}) {
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
  for (const uint32_t g : {OCTAVO_FLAT_256, OCTAVO_EXPANDED_128}) {
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
