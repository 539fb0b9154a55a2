/* gemm over f32, bf16 and f16 at the ends of their ranges: each product is rounded to fp32, then
 * added, bit for bit on every level.
 *
 * A unit that flushes subnormal operands or results, that adds two products before it rounds, or
 * that fuses a multiplication with the addition differs on these rows.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/kernels/adversarial.h"

namespace octavo::test {
namespace {

/* Any value of the dtype, all bit patterns alike. */
float any_value(uint32_t dtype, std::mt19937 *generator) {
  const uint32_t bits = static_cast<uint32_t>((*generator)());
  return decode(dtype, &bits);
}

std::vector<float> plain_pattern(uint32_t dtype, int pattern, int64_t k, unsigned seed) {
  std::mt19937 generator(seed * 100 + static_cast<unsigned>(pattern));
  std::uniform_real_distribution<float> fraction(1.0f, 2.0f);
  std::vector<float> values(static_cast<size_t>(k));
  for (float &value : values) {
    const float sign = generator() % 2 == 0 ? 1.0f : -1.0f;
    const float some = sign * fraction(generator);
    const auto step = static_cast<float>(generator() % 100 + 1);
    const float any = any_value(dtype, &generator);
    switch (pattern) {
      case 0: value = some; break;
      case 1: value = some * 0x1p126f; break;         /* the largest binade but one */
      case 2: value = some * 0x1p-126f; break;        /* the smallest normal one */
      case 3: value = sign * step * 0x1p-133f; break; /* subnormal in bf16 */
      case 4: value = some * 0x1p-72f; break;         /* squares are subnormal and inexact */
      case 5: value = some * 0x1p-8f; break;          /* subnormal products in f16's own range */
      case 6: value = some * 0x1p62f; break;          /* squares overflow after some additions */
      case 7: value = std::isfinite(any) ? any : -0.0f; break;
      default: value = any; break; /* NaN and infinities among them */
    }
  }
  return values;
}

constexpr uint32_t kPairs[][2] = {{OCTAVO_BF16, OCTAVO_BF16}, {OCTAVO_F32, OCTAVO_F32},
                                  {OCTAVO_BF16, OCTAVO_F32},  {OCTAVO_F16, OCTAVO_F16},
                                  {OCTAVO_F16, OCTAVO_BF16},  {OCTAVO_F32, OCTAVO_F16},
                                  {OCTAVO_E5M2, OCTAVO_BF16}, {OCTAVO_BF16, OCTAVO_E4M3FN}};

/* What kinds of results the patterns lead to, so that a test of nothing but NaN would be seen. */
struct Kinds {
  int normal = 0;
  int subnormal = 0;
  int infinite = 0;
  int nan = 0;

  void count(const Adversary &adversary) {
    for (const float sum : adversary.sums) {
      switch (std::fpclassify(sum)) {
        case FP_NORMAL: ++normal; break;
        case FP_SUBNORMAL: ++subnormal; break;
        case FP_INFINITE: ++infinite; break;
        case FP_NAN: ++nan; break;
        default: break;
      }
    }
  }
  void expect_all() const {
    EXPECT_GT(normal, 50);
    EXPECT_GT(subnormal, 50);
    EXPECT_GT(infinite, 10);
    EXPECT_GT(nan, 10);
  }
};

TEST(AdversarialPlain, extreme_exponents_equal_the_chain) {
  Kinds kinds;
  for (const auto &pair : kPairs) {
    for (const int64_t k : {1, 2, 3, 31, 32, 33, 65, 129, 1000}) {
      const Adversary adversary(plain_pattern, pair[0], pair[1], k);
      kinds.count(adversary);
      for (const int64_t m : {1, 2, 9, 40}) {
        ASSERT_NO_FATAL_FAILURE(expect_chains(adversary, m, 37));
      }
    }
  }
  kinds.expect_all();
}

TEST(AdversarialPlain, operands_that_lie_the_other_way_round_equal_the_chain) {
  Kinds kinds;
  for (const auto &pair : kPairs) {
    for (const uint32_t layout : {1u, 2u, 3u}) {
      const bool turns_codes = (pair[0] == OCTAVO_E5M2 && (layout & OCTAVO_GEMM_A_KM) != 0) ||
                               (pair[1] == OCTAVO_E4M3FN && (layout & OCTAVO_GEMM_B_KN) != 0);
      if (turns_codes) continue; /* codes have K contiguous only */
      for (const int64_t k : {1, 2, 33, 130}) {
        const Adversary adversary(plain_pattern, pair[0], pair[1], k);
        kinds.count(adversary);
        for (const int64_t m : {1, 9, 40}) {
          ASSERT_NO_FATAL_FAILURE(expect_chains(adversary, m, 37, layout));
        }
      }
    }
  }
  kinds.expect_all();
}

TEST(AdversarialPlain, long_sums_equal_the_chain) {
  for (const auto &pair : kPairs) {
    const Adversary adversary(plain_pattern, pair[0], pair[1], 65536);
    ASSERT_NO_FATAL_FAILURE(expect_chains(adversary, 9, 9));
  }
}

/* One extreme row in an operand that is tame otherwise: a kernel that looks at exponents to choose
 * its way must look at all of them, wherever the one value stands. */
TEST(AdversarialPlain, one_extreme_value_among_tame_ones) {
  constexpr int64_t kRows = 40;
  constexpr int64_t kCols = 70;
  constexpr int64_t kLength = 130;
  for (const float extreme : {0x1p-126f, 0x1p-133f, -0x1.8p127f, 0x1.02p-70f}) {
    for (const int64_t row : {int64_t{0}, int64_t{17}, kRows - 1}) {
      for (const int64_t at : {int64_t{0}, int64_t{31}, int64_t{64}, kLength - 1}) {
        Matrix a = Matrix(OCTAVO_BF16, kRows, kLength).fill(1);
        Matrix b = Matrix(OCTAVO_BF16, kCols, kLength).fill(2);
        for (int64_t k = 0; k < kLength; ++k) { /* only products with it are left in this row */
          if (k != at) a.set(row, k, 0.0f);
        }
        a.set(row, at, extreme);
        b.set(kCols - 1, at, extreme);
        for (const std::string &level : supported_levels()) {
          Kernels kernels(1, level);
          Matrix d(OCTAVO_F32, kRows, kCols);
          auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
          c.a = a.tensor();
          c.b = b.tensor();
          c.d = d.tensor();
          ASSERT_EQ(kernels.gemm(c), OCTAVO_OK) << kernels.host().last_text();
          for (int64_t i = 0; i < kRows; ++i) {
            for (int64_t j = 0; j < kCols; ++j) {
              const float expected = plain_chain(a, i, b, j);
              ASSERT_TRUE(same_value(d.get(i, j), expected))
                  << level << ", " << extreme << " at [" << row << ", " << at << "], d[" << i
                  << ", " << j << "]: " << d.get(i, j) << ", expected " << expected;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test
