/* kernels/format: every code round trips, and rounding is exact at every midpoint.
 *
 * The expected codes come from exact_encoder.h, which works in integers.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/format/e8m0.h"
#include "kernels/format/float16.h"
#include "kernels/format/float8.h"
#include "tests/kernels/exact_encoder.h"

namespace octavo::test {
namespace {

struct Codec {
  const char *name;
  SmallFormat format;
  uint8_t (*encode)(float);
  float (*decode)(uint8_t);
  float largest;
};

class Float8 : public testing::TestWithParam<Codec> {};

bool is_nan_code(const Codec &codec, uint32_t code) {
  return std::isnan(codec.decode(code));
}

TEST_P(Float8, every_code_round_trips) {
  const Codec &codec = GetParam();
  int nans = 0;
  for (uint32_t code = 0; code < 256; ++code) {
    const float value = codec.decode(static_cast<uint8_t>(code));
    if (std::isnan(value)) {
      ++nans;
      EXPECT_EQ(codec.encode(value), (code & 0x80) | 0x7F) << "code " << code;
      EXPECT_EQ(std::signbit(value), code >= 0x80) << "code " << code;
    } else if (std::isinf(value)) {
      EXPECT_EQ(codec.encode(value), (code & 0x80) | codec.format.largest);
    } else {
      EXPECT_EQ(codec.encode(value), code);
    }
  }
  EXPECT_EQ(nans, codec.format.mantissa_bits == 3 ? 2 : 6);
}

TEST_P(Float8, midpoints_and_their_neighbours_round_to_nearest_even) {
  const Codec &codec = GetParam();
  for (uint32_t code = 0; code < codec.format.largest; ++code) {
    const float low = codec.decode(static_cast<uint8_t>(code));
    const float high = codec.decode(static_cast<uint8_t>(code + 1));
    const float middle = (low + high) / 2; /* exact: one more bit than the format has */
    const uint32_t even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(codec.encode(middle), even) << middle;
    EXPECT_EQ(codec.encode(std::nextafterf(middle, 0)), code) << middle;
    EXPECT_EQ(codec.encode(std::nextafterf(middle, 1e9f)), code + 1) << middle;
    EXPECT_EQ(codec.encode(-middle), even | 0x80) << middle;
  }
}

TEST_P(Float8, special_values_follow_the_contract) {
  const Codec &codec = GetParam();
  const float infinity = std::numeric_limits<float>::infinity();
  const uint32_t largest = codec.format.largest;
  EXPECT_EQ(codec.encode(0.0f), 0x00);
  EXPECT_EQ(codec.encode(-0.0f), 0x80);
  EXPECT_EQ(codec.encode(codec.largest), largest);
  EXPECT_EQ(codec.encode(codec.largest * 1.04f), largest);
  EXPECT_EQ(codec.encode(kFloatMax), largest);
  EXPECT_EQ(codec.encode(infinity), largest);
  EXPECT_EQ(codec.encode(-infinity), largest | 0x80);
  EXPECT_EQ(codec.encode(std::numeric_limits<float>::denorm_min()), 0x00);
  EXPECT_EQ(codec.encode(bits_float(0x7F800001)), 0x7F) << "signaling NaN with the least payload";
  EXPECT_EQ(codec.encode(bits_float(static_cast<int32_t>(0xFFC00000u))), 0xFF);
  EXPECT_EQ(codec.decode(static_cast<uint8_t>(largest)), codec.largest);
  EXPECT_TRUE(is_nan_code(codec, 0x7F));
}

TEST_P(Float8, sampled_bit_patterns_equal_exact_integers) {
  const Codec &codec = GetParam();
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4093) {
    const float value = bits_float(static_cast<int32_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(codec.encode(value), exact_encode(codec.format, static_cast<uint32_t>(bits)))
        << std::hex << bits;
  }
}

INSTANTIATE_TEST_SUITE_P(
    formats, Float8,
    testing::Values(Codec{"e4m3", kE4m3, &encode_e4m3, &decode_e4m3, kMaxE4m3},
                    Codec{"e5m2", kE5m2, &encode_e5m2, &decode_e5m2, kMaxE5m2}),
    [](const testing::TestParamInfo<Codec> &param) { return param.param.name; });

TEST(Float16, every_pattern_round_trips) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t pattern = static_cast<uint16_t>(bits);
    const bool f16_nan = (bits & 0x7FFF) > 0x7C00;
    ASSERT_EQ(encode_f16(decode_f16(pattern)), f16_nan ? (bits | 0x200) : bits);
    const bool bf16_nan = (bits & 0x7FFF) > 0x7F80;
    ASSERT_EQ(encode_bf16(decode_bf16(pattern)), bf16_nan ? (bits | 0x40) : bits);
  }
}

TEST(Float16, sampled_bit_patterns_equal_exact_integers) {
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4093) {
    const float value = bits_float(static_cast<int32_t>(bits));
    if (std::isnan(value)) continue;
    const uint32_t pattern = static_cast<uint32_t>(bits);
    ASSERT_EQ(encode_f16(value), exact_encode(kF16, pattern)) << std::hex << bits;
    ASSERT_EQ(encode_f16_saturating(value), exact_encode(kF16Saturating, pattern))
        << std::hex << bits;
    const uint32_t low = pattern & 0xFFFF;
    const uint32_t up = low > 0x8000 || (low == 0x8000 && ((pattern >> 16) & 1) == 1) ? 1 : 0;
    ASSERT_EQ(encode_bf16(value), (pattern >> 16) + up) << std::hex << bits;
  }
}

TEST(Float16, overflow_is_infinite_for_plain_and_finite_for_scaled) {
  EXPECT_EQ(encode_f16(65519.996f), 0x7BFF);
  EXPECT_EQ(encode_f16(65520.0f), 0x7C00);
  EXPECT_EQ(encode_f16_saturating(65520.0f), 0x7BFF);
  EXPECT_EQ(encode_f16_saturating(-std::numeric_limits<float>::infinity()), 0xFBFF);
  EXPECT_EQ(encode_bf16(kFloatMax), 0x7F80);
}

TEST(E8m0, rounding_and_limits) {
  EXPECT_EQ(encode_e8m0_up(0.0f), 0x00);
  EXPECT_EQ(encode_e8m0_up(1.0f), 127);
  EXPECT_EQ(encode_e8m0_up(1.0000001f), 128);
  EXPECT_EQ(encode_e8m0_up(power_of_two(-127)), 0x00);
  EXPECT_EQ(encode_e8m0_up(kFloatMax), 0xFE);
  EXPECT_EQ(encode_e8m0_up(bits_float(kInfinityBits)), 0xFE);
  EXPECT_EQ(encode_e8m0_up(bits_float(kQuietNanBits)), 0xFF);
  EXPECT_EQ(encode_e8m0_down(1.9999999f), 127);
  EXPECT_EQ(encode_e8m0_down(bits_float(kInfinityBits)), 0xFF);
  for (int code = 0; code < 255; ++code) {
    const uint8_t byte = static_cast<uint8_t>(code);
    EXPECT_EQ(decode_e8m0(byte), std::ldexp(1.0f, code - 127));
    EXPECT_EQ(e8m0_multiplier(byte) * decode_e8m0(byte), 1.0f);
  }
  EXPECT_TRUE(std::isnan(decode_e8m0(0xFF)));
}

TEST(Bits, powers_of_two_and_floors_are_exact) {
  EXPECT_EQ(power_of_two(128), std::numeric_limits<float>::infinity());
  EXPECT_EQ(power_of_two(-150), 0.0f);
  for (int exponent = -149; exponent <= 127; ++exponent) {
    const float power = std::ldexp(1.0f, exponent);
    EXPECT_EQ(power_of_two(exponent), power);
    EXPECT_EQ(floor_to_power_of_two(power), power);
    EXPECT_EQ(floor_log2(power), exponent);
    if (exponent > -149) {
      const float below = std::nextafterf(power, 0.0f);
      EXPECT_EQ(floor_to_power_of_two(below), power / 2);
      EXPECT_EQ(floor_log2(below), exponent - 1);
    }
  }
}

}  // namespace
}  // namespace octavo::test
