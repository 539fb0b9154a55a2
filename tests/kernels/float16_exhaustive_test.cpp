/* All 2^32 fp32 patterns to f16 by store and cast of every level that the machine has but the
 * baseline, and all codes of 8 and 16 bits by load, against kernels/format: store keeps the bits of
 * a NaN, cast its sign.
 */
#include <gtest/gtest.h>

#include <vector>

#include "kernels/format/bits.h"
#include "kernels/format/float16.h"
#include "kernels/format/float8.h"
#include "tests/kernels/levels.h"

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
  std::vector<uint16_t> stored(kChunk), cast(kChunk);
  for_other_levels([&](const Level &level) {
    for (uint32_t high = 0; high < kChunk; ++high) {
      for (uint32_t i = 0; i < kChunk; ++i)
        values[i] = bits_float(static_cast<int32_t>(high << 16 | i));
      level.store(OCTAVO_F16, values.data(), kChunk, stored.data());
      level.cast(OCTAVO_F16, values.data(), kChunk, 1.0f, cast.data());
      uint32_t wrong = 0;
      for (uint32_t i = 0; i < kChunk; ++i) {
        wrong += stored[i] != encode_f16(values[i]) ? 1 : 0;
        wrong += cast[i] != encode_f16_saturating(scaled_by(values[i], 1.0f)) ? 1 : 0;
      }
      ASSERT_EQ(wrong, 0u) << level.name << ", patterns from " << high << " << 16";
    }
  });
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
