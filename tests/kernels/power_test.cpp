/* kernels/format/power.h against the C library's long double functions.
 *
 * The library is the reference for accuracy only; that every machine gives the same bits follows
 * from the use of IEEE operations alone, and four recorded results hold it to that.
 */
#include "kernels/format/power.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace octavo::test {
namespace {

constexpr long double kBound = 1e-15L; /* relative; the codes need 1e-12 */

TEST(Power, log2_is_accurate_over_the_whole_range) {
  std::mt19937_64 generator(1);
  std::uniform_real_distribution<double> exponent(-1021.0, 1023.0);
  for (int i = 0; i < 200000; ++i) {
    const double value = std::exp2(exponent(generator));
    const long double expected = std::log2(static_cast<long double>(value));
    ASSERT_LE(std::abs(log2_of(value) - expected), kBound * std::abs(expected)) << value;
  }
}

TEST(Power, log2_keeps_its_relative_accuracy_beside_1) {
  for (int power = 1; power <= 52; ++power) {
    for (const double value : {1.0 + std::ldexp(1.0, -power), 1.0 - std::ldexp(1.0, -power - 1)}) {
      const long double expected = std::log2(static_cast<long double>(value));
      ASSERT_LE(std::abs(log2_of(value) - expected), kBound * std::abs(expected)) << power;
    }
  }
}

TEST(Power, powers_of_two_are_exact_both_ways) {
  for (int power = -1022; power <= 1023; ++power) {
    ASSERT_EQ(log2_of(std::ldexp(1.0, power)), power);
    ASSERT_EQ(exp2_of(power), std::ldexp(1.0, power));
  }
}

TEST(Power, exp2_is_accurate_over_the_whole_range) {
  std::mt19937_64 generator(2);
  std::uniform_real_distribution<double> wide(-1022.0, 1024.0);
  std::uniform_real_distribution<double> narrow(-1.0, 1.0);
  for (int i = 0; i < 200000; ++i) {
    const double value = i % 2 == 0 ? wide(generator) : narrow(generator);
    const long double expected = std::exp2(static_cast<long double>(value));
    ASSERT_LE(std::abs(exp2_of(value) - expected), kBound * expected) << value;
  }
}

TEST(Power, exp2_has_limits_and_passes_nan_on) {
  EXPECT_EQ(exp2_of(1024.0), std::numeric_limits<double>::infinity());
  EXPECT_EQ(exp2_of(std::numeric_limits<double>::infinity()),
            std::numeric_limits<double>::infinity());
  EXPECT_EQ(exp2_of(-1022.5), 0.0);
  EXPECT_EQ(exp2_of(-std::numeric_limits<double>::infinity()), 0.0);
  EXPECT_TRUE(std::isnan(exp2_of(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_TRUE(std::isfinite(exp2_of(std::nextafter(1024.0, 0.0))));
  EXPECT_EQ(exp2_of(-0.0), 1.0);
}

TEST(Power, no_product_is_fused_with_the_addition_behind_it) {
  /* (1 + 2^-30)^2 - 1 needs 61 bits: rounding the product first loses the last term. */
  const volatile double near = 1.0 + 0x1p-30;
  EXPECT_EQ(product_sum(near, near, -1.0), 0x1p-29);
}

TEST(Power, recorded_bits) {
  EXPECT_EQ(double_bits(log2_of(3.0)), INT64_C(0x3FF95C01A39FBD68));
  EXPECT_EQ(double_bits(log2_of(0.1)), -INT64_C(0x3FF56CB0F6865C8F));
  EXPECT_EQ(double_bits(exp2_of(0.3)), INT64_C(0x3FF3B2C47BFF8329));
  EXPECT_EQ(double_bits(exp2_of(-137.77)), INT64_C(0x3752C3EE9468E843));
}

}  // namespace
}  // namespace octavo::test
