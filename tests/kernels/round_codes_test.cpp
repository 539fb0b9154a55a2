/* round_codes: each code by the definition, for every granularity, direction, level and number of
 * threads; and that what it draws is right on average and new for every batch.
 *
 * Keys are fixed, as in rounding_test.cpp.
 */
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/format/rounding.h"
#include "octavo/draft/rounding.h"
#include "tests/kernels/block_matrices.h"
#include "tests/kernels/fake_host.h"
#include "tests/support/draft_calls.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kGranularities[] = {OCTAVO_PER_TENSOR,    OCTAVO_PER_ROW,    OCTAVO_BLOCK_1X128,
                                       OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32};

struct Case {
  Matrix in;
  Matrix codes;
  Scales blocks;
  float tensor = 0.37f;
  octavo_scale per_tensor_scale = per_tensor(&tensor);
  float count = 5;
  octavo_round_codes c = make_call<octavo_round_codes>(OCTAVO_KIND_ROUND_CODES);

  Case(uint32_t in_dtype, uint32_t code_dtype, uint32_t granularity, int64_t rows, int64_t cols,
       bool turns, int64_t pad = 0)
      : in(in_dtype, rows, cols, 3),
        codes(code_dtype, (turns ? cols : rows) + pad, (turns ? rows : cols) + pad, 5),
        blocks(granularity == OCTAVO_PER_TENSOR ? uint32_t{OCTAVO_PER_ROW} : granularity,
               codes.rows(), codes.cols(), 2) {
    in.fill(7, 60.0f);
    blocks.fill(3);
    c.in = in.tensor();
    c.codes = codes.tensor();
    c.scale_inv = granularity == OCTAVO_PER_TENSOR ? &per_tensor_scale : blocks.get();
    c.count = &count;
    c.key = 0x1234567890;
    c.is_transposed = turns ? 1 : 0;
  }
  Case(const Case &) = delete;

  float scale_inv(int64_t row, int64_t col) const {
    return c.scale_inv == &per_tensor_scale ? tensor : blocks.of(row, col);
  }
  /* Of a code within the values. */
  uint8_t expected(int64_t row, int64_t col) const {
    const bool turns = c.is_transposed != 0;
    const RandomKey key = random_key(c.key, static_cast<int32_t>(count), turns ? 1 : 0);
    const int64_t width = turns ? in.rows() : in.cols(); /* padding does not count */
    return round_code(codes.dtype() == OCTAVO_E4M3FN, turns ? in.get(col, row) : in.get(row, col),
                      scale_inv(row, col), key, static_cast<uint64_t>(row * width + col));
  }
  octavo_status run(const Kernels &kernels) const {
    return draft_call(kernels.table, kernels.ctx(), &c);
  }
};

void expect_codes(const Case &t) {
  const bool turns = t.c.is_transposed != 0;
  const int64_t rows = turns ? t.in.cols() : t.in.rows(), cols = turns ? t.in.rows() : t.in.cols();
  Matrix expected(t.codes.dtype(), t.codes.rows(), t.codes.cols(), 5);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t col = 0; col < cols; ++col) *expected.at(row, col) = t.expected(row, col);
  ASSERT_EQ(t.codes.data(), expected.data())
      << "granularity " << t.c.scale_inv->granularity << " codes " << t.codes.dtype() << " ["
      << t.in.rows() << ", " << t.in.cols() << "] turned " << turns;
}

/* What is between rows and beyond the values stays. */
TEST(RoundCodes, every_code_by_the_definition_and_nothing_else) {
  for (const std::string &level : supported_levels()) {
    for (const int threads : {1, 3}) {
      const Kernels kernels(threads, level);
      for (const uint32_t granularity : kGranularities) {
        for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
          for (const uint32_t in : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
            for (const bool turns : {false, true}) {
              for (const auto &[rows, cols] :
                   {std::pair<int64_t, int64_t>{1, 1}, {70, 523}, {33, 40}}) {
                Case t(in, dtype, granularity, rows, cols, turns, rows % 4);
                ASSERT_EQ(t.run(kernels), OCTAVO_OK) << kernels.host().last_text();
                expect_codes(t);
              }
            }
          }
        }
      }
    }
  }
}

TEST(RoundCodes, what_is_no_number_and_what_saturates) {
  const Kernels kernels;
  Case t(OCTAVO_F32, OCTAVO_E4M3FN, OCTAVO_PER_TENSOR, 1, 8, false);
  const float values[] = {kInfinity, -kInfinity, std::nanf(""), -std::nanf(""),
                          1e30f,     -1e30f,     0.0f,          -0.0f};
  const uint8_t expected[] = {0x7E, 0xFE, 0x7F, 0x7F, 0x7E, 0xFE, 0x00, 0x80};
  for (int i = 0; i < 8; ++i) t.in.set(0, i, values[i]);
  ASSERT_EQ(t.run(kernels), OCTAVO_OK);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(+t.codes.code(0, i), +expected[i]) << values[i];
}

TEST(RoundCodes, follow_key_step_and_direction_and_an_odd_count_is_step_0) {
  const Kernels kernels;
  const auto codes_of = [&](uint64_t key, const float *count, bool turns) {
    Case t(OCTAVO_BF16, OCTAVO_E5M2, OCTAVO_PER_TENSOR, 64, 64, false);
    for (int64_t i = 0; i < 64; ++i)
      for (int64_t k = 0; k < i; ++k) t.in.set(i, k, t.in.get(k, i)); /* its own transpose */
    t.c.key = key;
    t.c.count = count;
    t.c.is_transposed = turns ? 1 : 0;
    EXPECT_EQ(t.run(kernels), OCTAVO_OK);
    return t.codes.data();
  };
  const float zero = 0, one = 1, nan = std::nanf(""), negative = -1, large = 0x1p24f;
  const auto first = codes_of(1, &zero, false);
  EXPECT_EQ(codes_of(1, &zero, false), first);
  EXPECT_NE(codes_of(2, &zero, false), first);
  EXPECT_NE(codes_of(1, &one, false), first);
  EXPECT_NE(codes_of(1, &zero, true), first);
  for (const float *odd : {static_cast<const float *>(nullptr), &nan, &negative, &large})
    EXPECT_EQ(codes_of(1, odd, false), first);
}

/* The share of upper codes is binomial: a limit of 5 standard deviations is exceeded with 6e-7. */
void expect_share(double upper, double draws, double p, const char *what) {
  EXPECT_NEAR(upper, draws * p, 5 * std::sqrt(draws * p * (1 - p))) << what << " " << p;
}

TEST(RoundCodes, draw_a_number_for_every_place) {
  const Kernels kernels;
  for (const float p : {0.125f, 0.5f, 0.9375f}) {
    Case t(OCTAVO_F32, OCTAVO_E4M3FN, OCTAVO_PER_TENSOR, 128, 512, false);
    t.tensor = 1.0f;
    for (int64_t r = 0; r < 128; ++r)
      for (int64_t c = 0; c < 512; ++c) t.in.set(r, c, 1.0f + p / 8);
    ASSERT_EQ(t.run(kernels), OCTAVO_OK);
    int upper = 0, both = 0;
    for (int64_t r = 0; r < 128; ++r) {
      for (int64_t c = 0; c < 512; c += 2) {
        const int left = t.codes.code(r, c) - 0x38, right = t.codes.code(r, c + 1) - 0x38;
        upper += left + right;
        both += left & right;
      }
    }
    expect_share(upper, 128 * 512, static_cast<double>(p), "places");
    expect_share(both, 128 * 256, static_cast<double>(p * p), "neighbours");
  }
}

/* Two batches of one step have other values in the same place: here their last bits in fp32, or
 * their exponents, differ. The former change the value by up to 2^-11, 2^-8 of the step. */
TEST(RoundCodes, draw_a_number_for_every_value) {
  const RandomKey key = random_key(9, 0, 0);
  for (const float p : {0.125f, 0.5f, 0.9375f}) {
    const float value = 1.0f + p / 8;
    for (const int count : {8192, 8}) {
      const auto code_of = [&](uint64_t place, int i) {
        const float v =
            count == 8 ? std::ldexp(value, i) : bits_float(float_bits(value) + i - count / 2);
        return round_code(true, v, 1.0f, key, place) - 0x38 - (count == 8 ? 8 * i : 0);
      };
      int upper = 0, both = 0;
      for (uint64_t place = 0; place < static_cast<uint64_t>(65536 / count); ++place) {
        for (int i = 0; i < count; i += 2) {
          const int left = code_of(place, i), right = code_of(place, i + 1);
          upper += left + right;
          both += left & right;
        }
      }
      expect_share(upper, 65536, static_cast<double>(p), "values");
      expect_share(both, 32768, static_cast<double>(p * p), "neighbouring values");
    }
  }
}

/* After a quantize, of many steps the mean of what codes stand for is the value; to nearest it is
 * not. The largest element of a scale may saturate by a rounding of the scale. */
TEST(RoundCodes, after_a_cast_codes_are_right_on_average) {
  const Kernels kernels;
  for (const uint32_t granularity : {OCTAVO_PER_TENSOR, OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_1X128}) {
    Case t(OCTAVO_F32, OCTAVO_E4M3FN, granularity, 32, 128, false);
    auto q = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
    q.in = t.in.tensor();
    q.out = t.codes.tensor();
    q.out_scale_inv = t.c.scale_inv;
    q.format_max = kMaxE4m3;
    q.rule = granularity == OCTAVO_BLOCK_1X32 ? OCTAVO_RULE_MX_UP : OCTAVO_RULE_QUOTIENT;
    ASSERT_EQ(kernels.table->quantize(kernels.ctx(), &q), OCTAVO_OK) << kernels.host().last_text();
    const auto distance = [&](const std::vector<double> &sums, double steps) {
      double error = 0, norm = 0;
      for (int64_t i = 0; i < 32 * 128; ++i) {
        const double wanted = static_cast<double>(t.in.get(i / 128, i % 128));
        error += std::pow(sums[static_cast<size_t>(i)] / steps - wanted, 2);
        norm += wanted * wanted;
      }
      return std::sqrt(error / norm);
    };
    const auto add = [&](std::vector<double> *sums) {
      for (int64_t i = 0; i < 32 * 128; ++i)
        (*sums)[static_cast<size_t>(i)] += static_cast<double>(t.codes.get(i / 128, i % 128)) *
                                           static_cast<double>(t.scale_inv(i / 128, i % 128));
    };
    std::vector<double> nearest(32 * 128), mean(32 * 128);
    add(&nearest);
    constexpr int kSteps = 1024;
    for (int step = 0; step < kSteps; ++step) {
      t.count = static_cast<float>(step);
      ASSERT_EQ(t.run(kernels), OCTAVO_OK);
      add(&mean);
    }
    /* Errors to nearest are uniform in a step h, of variance h^2 / 12; random ones have a mean
     * variance of h^2 / 6, and 1,024 independent ones the 1,024th of it. */
    EXPECT_NEAR(distance(mean, kSteps) / distance(nearest, 1), std::sqrt(2.0) / 32, 0.01)
        << granularity;
  }
}

TEST(RoundCodes, refusals) {
  const Kernels kernels;
  const auto expect_refused = [&](auto &&change, const char *text) {
    Case t(OCTAVO_F32, OCTAVO_E4M3FN, OCTAVO_BLOCK_1X32, 32, 64, true);
    const std::vector<uint8_t> before = t.codes.data();
    change(t);
    EXPECT_NE(t.run(kernels), OCTAVO_OK) << text;
    EXPECT_THAT(kernels.host().last_text(), HasSubstr(text));
    EXPECT_EQ(t.codes.data(), before) << text;
  };
  expect_refused([](Case &t) { t.c.size = 8; }, "round_codes: the call struct has 8 bytes");
  expect_refused([](Case &t) { t.c.in = nullptr; }, "in is null");
  expect_refused([](Case &t) { t.c.in = t.codes.tensor(); }, "in.dtype");
  expect_refused([](Case &t) { t.c.codes = t.in.tensor(); }, "codes.dtype");
  expect_refused([](Case &t) { t.c.is_transposed = 0; },
                 "codes has shape [64, 32]; expected at least [32, 64]");
  expect_refused([](Case &t) { t.c.is_transposed = 2; },
                 "is_transposed = 0x2; expected bits of 0x1");
  expect_refused([](Case &t) { t.c.scale_inv = nullptr; }, "scale_inv is null");
  expect_refused([](Case &t) { t.blocks.get()->granularity = OCTAVO_FLAT_256; }, "granularity");
  expect_refused([](Case &t) { t.blocks.get()->stride = 0; }, "scale_inv.stride");
  expect_refused(
      [](Case &t) { t.c.count = reinterpret_cast<const float *>(t.codes.data().data() + 1); },
      "count");
}

}  // namespace
}  // namespace octavo::test
