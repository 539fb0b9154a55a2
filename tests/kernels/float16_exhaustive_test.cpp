/* fp32 patterns to f16 by store and cast of every level that the machine has but the baseline, all
 * 2^32 in tests/soak.py, 2^30 otherwise, and all codes of 8 and 16 bits by load, against
 * kernels/format: store keeps the bits of a NaN, cast its sign.
 */
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/format/bits.h"
#include "kernels/format/float16.h"
#include "kernels/format/float8.h"
#include "tests/kernels/levels.h"
#include "tests/support/seed.h"

namespace octavo::test {
namespace {

constexpr uint32_t kChunk = 1 << 16;

bool has_other_levels() {
  bool has = false;
  for_other_levels([&](const Level &) { has = true; });
  return has;
}

TEST(Float16Exhaustive, store_and_cast_of_every_level_are_those_of_the_format) {
  if (!has_other_levels()) GTEST_SKIP() << "this CPU has the baseline alone";
  std::vector<float> values(kChunk);
  std::vector<uint16_t> expected(kChunk), saturated(kChunk), found(kChunk);
  const auto stride = static_cast<uint32_t>(stride_or(8));
  for (uint32_t high = 0; high < kChunk; ++high) {
    if ((high + 1) % stride > 1) continue;
    for (uint32_t i = 0; i < kChunk; ++i) {
      values[i] = bits_float(static_cast<int32_t>(high << 16 | i));
      expected[i] = encode_f16(values[i]);
      saturated[i] = encode_f16_saturating(scaled_by(values[i], 1.0f));
    }
    for_other_levels([&](const Level &level) {
      std::fill(found.begin(), found.end(), uint16_t{0xA5A5});
      level.store(OCTAVO_F16, values.data(), kChunk, found.data());
      ASSERT_TRUE(found == expected)
          << level.name << ", store of patterns from " << high << " << 16";
      std::fill(found.begin(), found.end(), uint16_t{0xA5A5});
      level.cast(OCTAVO_F16, values.data(), kChunk, 1.0f, found.data());
      ASSERT_TRUE(found == saturated)
          << level.name << ", cast of patterns from " << high << " << 16";
    });
    if (HasFatalFailure()) return;
  }
}

TEST(Float16Exhaustive, load_of_every_level_is_that_of_the_format) {
  if (!has_other_levels()) GTEST_SKIP() << "this CPU has the baseline alone";
  std::vector<uint16_t> halves(kChunk);
  std::vector<uint8_t> codes(1024);
  for (uint32_t i = 0; i < kChunk; ++i) halves[i] = static_cast<uint16_t>(i);
  for (uint32_t i = 0; i < 1024; ++i) codes[i] = static_cast<uint8_t>(i * 37 + i / 256);
  std::vector<float> found(kChunk);
  for_other_levels([&](const Level &level) {
    level.load(OCTAVO_F16, halves.data(), kChunk, found.data());
    for (uint32_t i = 0; i < kChunk; ++i)
      ASSERT_EQ(float_bits(found[i]), float_bits(decode_f16(halves[i]))) << level.name << " " << i;
    /* Every code at every place of a step, next to others, and in what a step leaves over. */
    for (size_t first = 0; first < 64; ++first) {
      for (const int64_t n : {1, 15, 16, 17, 33, 900}) {
        for (const bool is_e4m3 : {true, false}) {
          level.load(is_e4m3 ? OCTAVO_E4M3FN : OCTAVO_E5M2, &codes[first], n, found.data());
          for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
            const uint8_t code = codes[first + i];
            ASSERT_EQ(float_bits(found[i]),
                      float_bits(is_e4m3 ? decode_e4m3(code) : decode_e5m2(code)))
                << level.name << ", code " << int{code};
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace octavo::test
