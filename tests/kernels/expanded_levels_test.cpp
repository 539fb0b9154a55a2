/* Codes and values of EXPANDED_128 on every level: the bits of kernels/format/block_state.h.
 *
 * Levels estimate, and compute the definition where an estimate leaves two answers. So the values
 * here lie next to those answers: around the ties between codes, for each exponent.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/level.h"

namespace octavo::test {
namespace {

/* A group whose largest and smallest values are 2^spread apart, around `center`. */
BlockRange range_of(double center, double spread) {
  return {static_cast<float>(center * std::exp2(spread / 2)),
          static_cast<float>(center * std::exp2(-spread / 2))};
}

/* The spread that gives the exponent sixteenths / 16. */
double spread_of(int sixteenths) {
  return 16.614709844115208 * 16.0 / (sixteenths + 0.5);
}

template <typename Body>
void for_levels(Body &&body) {
  int count = 0;
  for (int i = 0; i < kLevelCount; ++i) {
    if (kLevels[i].level == nullptr || !kLevels[i].is_supported()) continue;
    body(*kLevels[i].level);
    ++count;
  }
  ASSERT_GT(count, 0);
}

/* Values of the group: its ends, random ones, the neighbours of each tie between two codes, 0, what
 * takes no part, and values far outside of its range. */
std::vector<float> values_of(const ExpandedGroup &g, BlockRange range, unsigned seed) {
  std::vector<float> values = {range.largest, range.smallest, 0.0f, -0.0f,
                               INFINITY,      -INFINITY,      NAN};
  for (int power = -149; power < 128; power += 9)
    values.push_back(std::ldexp(power % 2 == 0 ? 1.3f : -1.3f, power));
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> log2s(std::log2(range.smallest), std::log2(range.largest));
  for (int i = 0; i < 200; ++i) values.push_back(static_cast<float>(std::exp2(log2s(random))));
  for (int code = 1; code < 126; ++code) {
    const double tie = (static_cast<double>(decode_e4m3(static_cast<uint8_t>(code))) +
                        static_cast<double>(decode_e4m3(static_cast<uint8_t>(code + 1)))) /
                       2;
    const double value =
        std::pow(tie * static_cast<double>(g.scale_inv), 1.0 / static_cast<double>(g.exponent)) *
        static_cast<double>(g.center);
    auto near = static_cast<float>(value);
    for (int i = 0; i < 4; ++i) near = std::nextafter(near, 0.0f);
    for (int i = 0; i < 9; ++i, near = std::nextafter(near, INFINITY))
      if (near >= range.smallest && near <= range.largest)
        values.push_back(i % 2 == 0 ? near : -near);
  }
  return values;
}

void expect_defined(const Level &level, const ExpandedGroup &g, const std::vector<float> &values,
                    const std::string &what) {
  const auto n = static_cast<int64_t>(values.size());
  std::vector<uint8_t> codes(values.size());
  level.updates.states.encode_expanded(g, values.data(), n, codes.data());
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(codes[i], encode_expanded(g, values[i]))
        << level.name << ", " << what << ", value " << values[i];
  std::vector<uint8_t> all(256);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint8_t>(i);
  for (const int64_t count : {256, 131, 1}) {
    std::vector<float> decoded(256, 7.0f);
    level.updates.states.decode_expanded(g, all.data(), count, decoded.data());
    for (size_t i = 0; i < static_cast<size_t>(count); ++i)
      ASSERT_EQ(float_bits(decoded[i]), float_bits(decode_expanded(g, all[i])))
          << level.name << ", " << what << ", code " << i;
    if (count < 256) {
      ASSERT_EQ(decoded[static_cast<size_t>(count)], 7.0f);
    }
  }
}

TEST(ExpandedLevels, every_exponent) {
  for_levels([](const Level &level) {
    for (int sixteenths = 1; sixteenths <= 256; ++sixteenths) {
      for (const double center : {1.0, 3.7e-9, 1.1e-19, 5.3e5}) {
        const BlockRange range = range_of(center, spread_of(sixteenths));
        if (!(range.smallest > 0.0f) || !std::isfinite(range.largest)) continue;
        const ExpandedGroup g = expanded_group(range);
        ASSERT_NEAR(g.exponent * 16, sixteenths, 1.0);
        ASSERT_NO_FATAL_FAILURE(expect_defined(
            level, g, values_of(g, range, static_cast<unsigned>(sixteenths)),
            "exponent " + std::to_string(g.exponent) + ", center " + std::to_string(center)));
      }
    }
  });
}

TEST(ExpandedLevels, groups_at_the_ends_of_the_range) {
  for_levels([](const Level &level) {
    const BlockRange ranges[] = {
        {0.3f, 0.3f},           {0x1p-126f, 0x1p-126f}, {0x1p-149f, 0x1p-149f},
        {kFloatMax, kFloatMax}, {kFloatMax, 0x1p100f},  {0x1p-120f, 0x1p-149f},
        {kFloatMax, 0x1p-149f}, {0x1p-100f, 0x1p-101f}, {0x1p-78f, 0x1p-82f},
        {0x1p82f, 0x1p78f},     {1.0f, 0x1p-64f},       {1.0f, 0x1p-70f}};
    for (const BlockRange &range : ranges) {
      const ExpandedGroup g = expanded_group(range);
      ASSERT_NO_FATAL_FAILURE(expect_defined(level, g, values_of(g, range, 5),
                                             std::to_string(std::log2(range.largest))));
    }
  });
}

TEST(ExpandedLevels, groups_that_nobody_writes) {
  for_levels([](const Level &level) {
    const ExpandedGroup groups[] = {
        {0.0f, 1.0f, 1.0f},           {NAN, 1.0f, 1.0f},          {INFINITY, 1.0f, 1.0f},
        {0.01f, 0.0f, 1.0f},          {0.01f, -2.0f, 1.0f},       {0.01f, 17.0f, 1.0f},
        {0.01f, 0.3f, 1.0f},          {0.01f, NAN, 1.0f},         {0.01f, 2.0f, 0.0f},
        {0.01f, 2.0f, INFINITY},      {0x1p-126f, 0.0625f, 1.0f}, {0x1p100f, 0.0625f, 1.0f},
        {0x1p-126f, 1.0f, 0x1p-126f}, {0x1p100f, 1.0f, 0x1p100f}};
    std::vector<uint8_t> all(256);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint8_t>(i);
    for (const ExpandedGroup &g : groups) {
      std::vector<float> decoded(256);
      level.updates.states.decode_expanded(g, all.data(), 256, decoded.data());
      for (size_t i = 0; i < 256; ++i)
        ASSERT_EQ(float_bits(decoded[i]), float_bits(decode_expanded(g, all[i])))
            << level.name << ": " << g.scale_inv << ", " << g.exponent << ", " << g.center
            << ", code " << i;
    }
  });
}

}  // namespace
}  // namespace octavo::test
