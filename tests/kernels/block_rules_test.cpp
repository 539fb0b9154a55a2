/* Scale rules over ten million amax: what holds for every one of them.
 *
 * Half of the amax are random bit patterns, so that NaN, infinity and subnormals are among them,
 * half are ordinary numbers; the special ones are tried with every rule besides.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/format/float16.h"
#include "kernels/format/float8.h"
#include "kernels/format/scale_rules.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {
namespace {

constexpr float kMaxima[] = {kMaxE4m3, kMaxE5m2};
constexpr float kLargest[] = {kFloatMax, kMaxBf16, kMaxF16};
constexpr float kEps[] = {0.0f, 1e-12f, 1e-4f};
constexpr int kCases = 1'000'000; /* of each of ten rules */

struct Case {
  float amax;
  float m;
  float eps;
  float largest;
};

bool is_power_of_two(float value) {
  return is_finite(value) && value > 0.0f && floor_to_power_of_two(value) == value;
}

bool is_scale(float value) {
  return is_finite(value) && value > 0.0f;
}

/* Calls body(case) kCases times and for every special amax; stops at the first failure. */
template <typename Body>
void for_cases(unsigned seed, Body &&body) {
  for (const int32_t bits : {0, 1, 2, 0x00400000, 0x007FFFFF, 0x00800000, 0x3F800000, 0x43E00000,
                             0x7F000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000}) {
    for (const float m : kMaxima) {
      for (const float eps : kEps) {
        for (const float largest : kLargest) {
          ASSERT_NO_FATAL_FAILURE(body(Case{bits_float(bits), m, eps, largest}));
        }
      }
    }
  }
  std::mt19937_64 generator(seed);
  for (int i = 0; i < kCases; ++i) {
    const uint64_t random = generator();
    const auto pattern = static_cast<int32_t>(random & kMagnitudeMask);
    /* Between 2^-32 and 2^32 with a random mantissa. */
    const int32_t ordinary = (pattern & kMantissaMask) | ((95 + (pattern >> 23) % 64) << 23);
    const Case c = {bits_float(i % 2 == 0 ? pattern : ordinary), kMaxima[random >> 32 & 1],
                    kEps[(random >> 33 & 7) % 3], kLargest[(random >> 36 & 7) % 3]};
    ASSERT_NO_FATAL_FAILURE(body(c)) << "amax bits " << float_bits(c.amax) << " m " << c.m
                                     << " eps " << c.eps << " largest " << c.largest;
  }
}

/* The amax that a rule sees. */
float raised(const Case &c) {
  return c.amax < c.eps ? c.eps : c.amax;
}

TEST(BlockRules, quotient_and_pow2_give_scales_for_every_amax) {
  for (const uint32_t rule : {OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2}) {
    for_cases(rule, [rule](const Case &c) {
      const BlockScale s = block_scale(rule, c.amax, c.m, c.eps, c.largest);
      ASSERT_TRUE(is_scale(s.scale) && is_scale(s.scale_inv)) << s.scale << " " << s.scale_inv;
      ASSERT_EQ(s.scale_inv, 1.0f / s.scale);
      ASSERT_EQ(s.code, 0);
      const float amax = raised(c);
      if (!is_usable_amax(amax)) {
        ASSERT_EQ(s.scale, 1.0f);
        return;
      }
      const float quotient = c.m / amax;
      const float limited = is_infinite(quotient) ? c.largest : quotient;
      if (rule == OCTAVO_RULE_QUOTIENT) {
        ASSERT_EQ(s.scale, limited);
      } else {
        ASSERT_TRUE(is_power_of_two(s.scale) && s.scale <= limited && limited / 2 < s.scale);
      }
      /* Two roundings, so that at most the last bit lies above the maximum: no code saturates. */
      ASSERT_LE(amax * s.scale, c.m * (1.0f + 0x1p-22f));
    });
  }
}

TEST(BlockRules, mx_up_is_the_smallest_power_of_two_that_holds_the_block) {
  for_cases(6, [](const Case &c) {
    const BlockScale s = block_scale(OCTAVO_RULE_MX_UP, c.amax, c.m, c.eps, c.largest);
    const float amax = raised(c);
    ASSERT_EQ(s.code == 0xFF, is_nan(amax));
    if (is_nan(amax)) return;
    ASSERT_TRUE(is_scale(s.scale) && is_scale(s.scale_inv));
    ASSERT_EQ(s.scale * s.scale_inv, 1.0f);
    ASSERT_EQ(decode_e8m0(s.code), s.scale_inv);
    const float needed = amax * (1.0f / c.m);
    if (is_infinite(amax)) {
      ASSERT_EQ(s.code, 0xFE);
    } else {
      ASSERT_GE(s.scale_inv, needed);
      ASSERT_TRUE(s.code == 0 || s.scale_inv / 2 < needed);
    }
  });
}

TEST(BlockRules, mx_floor_is_the_exponent_of_the_amax) {
  for_cases(7, [](const Case &c) {
    const BlockScale s = block_scale(OCTAVO_RULE_MX_FLOOR, c.amax, c.m, c.eps, c.largest);
    const float amax = raised(c);
    ASSERT_EQ(s.code == 0xFF, !is_finite(amax));
    if (!is_finite(amax)) return;
    ASSERT_TRUE(is_scale(s.scale) && is_scale(s.scale_inv));
    ASSERT_EQ(s.scale * s.scale_inv, 1.0f);
    int exponent = 0;
    std::frexp(static_cast<double>(amax), &exponent); /* amax in [2^(exponent-1), 2^exponent) */
    const int emax = c.m == kMaxE4m3 ? 8 : 15;
    const int expected = exponent - 1 - emax + 127;
    ASSERT_EQ(s.code, amax == 0.0f || expected < 0 ? 0 : expected);
  });
}

TEST(BlockRules, deepgemm_divides_by_448_and_passes_nan_and_infinity_on) {
  for_cases(8, [](const Case &c) {
    const BlockScale s = block_scale(OCTAVO_RULE_DEEPGEMM, c.amax, c.m, c.eps, c.largest);
    const float amax = raised(c);
    ASSERT_EQ(is_nan(s.scale), is_nan(amax));
    ASSERT_EQ(is_nan(s.scale_inv), is_nan(amax));
    if (is_nan(amax)) return;
    ASSERT_EQ(s.scale_inv, (amax < 1e-4f ? 1e-4f : amax) / 448.0f);
    ASSERT_EQ(s.scale, 1.0f / s.scale_inv);
    ASSERT_EQ(is_scale(s.scale) && is_scale(s.scale_inv), is_finite(amax));
  });
}

TEST(BlockRules, deepgemm_pow2_gives_a_power_of_two_for_every_amax) {
  for_cases(9, [](const Case &c) {
    const BlockScale s = block_scale(OCTAVO_RULE_DEEPGEMM_POW2, c.amax, c.m, c.eps, c.largest);
    const float amax = raised(c);
    ASSERT_TRUE(is_power_of_two(s.scale) && is_power_of_two(s.scale_inv));
    ASSERT_EQ(s.scale * s.scale_inv, 1.0f);
    if (!is_finite(amax)) {
      ASSERT_EQ(s.scale_inv, 0x1p127f);
      return;
    }
    const float plain = (amax < 1e-4f ? 1e-4f : amax) / 448.0f;
    ASSERT_TRUE(s.scale_inv >= plain && s.scale_inv / 2 < plain);
  });
}

TEST(TensorRules, give_scales_for_every_amax) {
  for (const uint32_t rule :
       {OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2, OCTAVO_RULE_RECIPROCAL, OCTAVO_RULE_MSAMP}) {
    for_cases(rule + 100, [rule](const Case &c) {
      const float kept = 0.37f;
      const float scale = scale_by_rule(rule, c.amax, kept, c.m, 0);
      ASSERT_TRUE(is_scale(scale) && is_scale(1.0f / scale)) << rule << " gave " << scale;
      if (!is_usable_amax(c.amax)) {
        ASSERT_EQ(scale, kept);
      } else if (rule == OCTAVO_RULE_POW2 || rule == OCTAVO_RULE_MSAMP) {
        ASSERT_TRUE(is_power_of_two(scale));
      }
    });
  }
}

TEST(E8m0, multiplier_and_value_are_inverse_for_every_code) {
  for (int code = 0; code < 0xFF; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    const float value = decode_e8m0(byte);
    EXPECT_EQ(static_cast<double>(value), std::ldexp(1.0, code - 127));
    EXPECT_EQ(value * e8m0_multiplier(byte), 1.0f) << code;
    EXPECT_EQ(encode_e8m0_up(value), code);
    if (code < 0xFE) {
      EXPECT_EQ(encode_e8m0_up(std::nextafter(value, INFINITY)), code + 1);
    }
    if (code > 0) { /* the code of 2^-127 is that of all below 2^-126 */
      EXPECT_EQ(encode_e8m0_down(value), code);
      EXPECT_EQ(encode_e8m0_down(std::nextafter(value, 0.0f)), code - 1);
    }
  }
  EXPECT_TRUE(is_nan(decode_e8m0(0xFF)) && is_nan(e8m0_multiplier(0xFF)));
}

}  // namespace
}  // namespace octavo::test
