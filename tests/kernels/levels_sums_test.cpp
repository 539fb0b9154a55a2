/* Tiles, sums, steps and roundings of every level: the bytes of the baseline, function by function
 * of its table, for numbers of many sizes.
 */
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "kernels/format/float8.h"
#include "kernels/format/rounding.h"
#include "octavo/kernels.h"
#include "tests/kernels/levels.h"

namespace octavo::test {
namespace {

constexpr int64_t kSizes[] = {1, 15, 17, 63, 65, 217, 1000};

/* Numbers whose sums depend on their order; a subnormal one here and there. */
std::vector<float> numbers(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float &value : values) {
    const auto bits = static_cast<int32_t>(random());
    value = std::ldexp(static_cast<float>(bits), -31 + bits % 13);
    if (bits % 101 == 0) value *= 0x1p-130f;
  }
  return values;
}

/* The same, as numbers of E4M3: their products are exact. */
std::vector<float> codes(size_t count, unsigned seed) {
  std::vector<float> values = numbers(count, seed);
  for (float &value : values) value = decode_e4m3(encode_e4m3(value));
  return values;
}

/* One chain over k from 0, each product rounded. */
float chain(const float *a, int64_t a_step, const float *b, int64_t b_step, int64_t k) {
  float sum = 0.0f;
  for (int64_t i = 0; i < k; ++i) sum += a[i * a_step] * b[i * b_step];
  return sum;
}

TEST(LevelTiles, every_height_is_a_chain) {
  for (int i = 0; i < kLevelCount; ++i) {
    if (kLevels[i].level == nullptr || !kLevels[i].is_supported()) continue;
    const Level &level = *kLevels[i].level;
    const int cols = level.tile_cols;
    for (int rows = 1; rows <= level.tile_rows; ++rows) {
      for (const int64_t k : {0, 1, 7, 100}) {
        for (const bool is_exact : {false, true}) {
          const auto make = is_exact ? &codes : &numbers;
          const int64_t steps = std::max<int64_t>(k, 1); /* an address, also where k is 0 */
          const std::vector<float> a = make(static_cast<size_t>(steps * rows), 1);
          const std::vector<float> b = make(static_cast<size_t>(steps * cols), 2);
          std::vector<float> out(static_cast<size_t>(rows * cols), 99.0f);
          (is_exact ? level.exact : level.ordered)[rows - 1](a.data(), b.data(), k, out.data());
          for (int64_t at = 0; at < rows * cols; ++at) {
            const float expected = chain(a.data() + at / cols, rows, b.data() + at % cols, cols, k);
            ASSERT_EQ(float_bits(out[static_cast<size_t>(at)]), float_bits(expected))
                << level.name << ", rows " << rows << ", k " << k << ", at " << at;
          }
        }
      }
    }
  }
}

TEST(LevelTiles, every_height_with_blocks_is_chains_times_scales) {
  constexpr int64_t kLength = 32;
  constexpr int64_t kSteps = 3 * kLength + 5;
  constexpr int64_t kBlocks = 4;
  for (int i = 0; i < kLevelCount; ++i) {
    if (kLevels[i].level == nullptr || !kLevels[i].is_supported()) continue;
    const Level &level = *kLevels[i].level;
    const int cols = level.tile_cols;
    for (int rows = 1; rows <= level.tile_rows; ++rows) {
      const std::vector<float> a = codes(static_cast<size_t>(kSteps * rows), 1);
      const std::vector<float> b = codes(static_cast<size_t>(kSteps * cols), 2);
      const std::vector<float> a_scales = numbers(static_cast<size_t>(kBlocks * rows), 3);
      const std::vector<float> b_scales = numbers(static_cast<size_t>(kBlocks * cols), 4);
      const std::vector<float> before = numbers(static_cast<size_t>(rows * cols), 5);
      alignas(64) float sums[kMaxTileRows * kMaxTileCols];
      std::copy(before.begin(), before.end(), sums);
      level.block[rows - 1](a.data(), b.data(), kSteps, kLength, a_scales.data(), b_scales.data(),
                            sums);
      for (int64_t at = 0; at < rows * cols; ++at) {
        const int64_t row = at / cols;
        const int64_t col = at % cols;
        float expected = before[static_cast<size_t>(at)];
        for (int64_t block = 0; block < kBlocks; ++block) {
          const int64_t first = block * kLength;
          const int64_t steps = block + 1 < kBlocks ? kLength : kSteps - first;
          const float part = chain(a.data() + first * rows + row, rows,
                                   b.data() + first * cols + col, cols, steps);
          expected += part * (a_scales[static_cast<size_t>(block * rows + row)] *
                              b_scales[static_cast<size_t>(block * cols + col)]);
        }
        ASSERT_EQ(float_bits(sums[at]), float_bits(expected))
            << level.name << ", rows " << rows << ", at " << at;
      }
    }
  }
}

TEST(LevelSums, prologues_and_histories) {
  for (const int64_t n : kSizes) {
    const auto size = static_cast<size_t>(n);
    const std::vector<float> in = numbers(size, 1);
    const std::vector<float> up = numbers(size, 2);
    expect_equal_levels([&](const Level &level, Bytes *out) {
      float parts[kSumParts] = {};
      level.prologue.add_up(in.data(), n, parts);
      level.prologue.add_up_squares(in.data(), n, 0.3f, parts);
      append(out, parts, kSumParts);
      std::vector<float> values(size);
      level.prologue.normalize(in.data(), n, 0.3f, 1.7f, up.data(), in.data(), values.data());
      append(out, values.data(), size);
      for (const uint32_t op :
           {OCTAVO_PROLOGUE_GELU, OCTAVO_PROLOGUE_GELU_TANH, OCTAVO_PROLOGUE_SWIGLU}) {
        level.prologue.activate(op, in.data(), up.data(), n, values.data());
        append(out, values.data(), size);
      }
      level.multiply(values.data(), n, 1.3f);
      append(out, values.data(), size);
      CastStats stats;
      level.stats.count(in.data(), up.data(), n, 0.9f, 2.0f, &stats);
      append(out, &stats.saturated, 1);
      append(out, &stats.signal, 1);
      append(out, &stats.noise, 1);
      std::vector<float> rows = numbers(9 * size, 3);
      rows[size / 2] = NAN;
      std::vector<float> largest(size);
      std::vector<int32_t> has_nan(size);
      std::vector<int32_t> rolls(size);
      for (size_t i = 0; i < size; ++i) rolls[i] = i % 3 == 0 ? 1 : 0;
      level.roll_history(rows.data(), 9, n, in.data(), rolls.data(), n, largest.data(),
                         has_nan.data());
      for (int32_t &nan : has_nan) nan = nan != 0 ? 1 : 0;
      append(out, rows.data(), rows.size());
      append(out, largest.data(), size);
      append(out, has_nan.data(), size);
    });
  }
}

TEST(LevelSums, steps_sums_and_roundings) {
  for (const int64_t n : kSizes) {
    const auto size = static_cast<size_t>(n);
    const std::vector<float> in = numbers(size, 1);
    expect_equal_levels([&](const Level &level, Bytes *out) {
      AdamPlan plan = {};
      plan.factors = {0.9f,  0.999f, 0.1f,   0.001f, 2e-3f,
                      0.08f, 1e-8f,  0.999f, 0.0f,   std::numeric_limits<float>::infinity()};
      plan.gradient_scale = 1.5f;
      for (const float l2 : {0.0f, 0.01f}) {
        plan.factors.l2 = l2;
        std::vector<float> weight = numbers(size, 2);
        std::vector<float> exp_avg = numbers(size, 3);
        std::vector<float> exp_avg_sq = numbers(size, 4);
        for (float &value : exp_avg_sq) value = std::fabs(value);
        level.updates.step(plan, in.data(), n, weight.data(), exp_avg.data(), exp_avg_sq.data());
        append(out, weight.data(), size);
        append(out, exp_avg.data(), size);
        append(out, exp_avg_sq.data(), size);
      }
      std::vector<double> sums(kSquareSums > n ? static_cast<size_t>(kSquareSums) : size, 0.1);
      level.updates.add_each(in.data(), n, sums.data());
      level.updates.add_squares(in.data(), n, sums.data());
      append(out, sums.data(), sums.size());
      std::vector<uint8_t> shards(5 * size);
      for (size_t i = 0; i < shards.size(); ++i) shards[i] = static_cast<uint8_t>(i * 37 + i / 251);
      for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
        std::vector<uint8_t> total(size);
        const int64_t outside =
            level.updates.sum_codes(dtype, shards.data(), 5, size, n, total.data());
        append(out, &outside, 1);
        append(out, total.data(), size);
        level.updates.rounding.cast(dtype, true, in.data(), n, 3.0f, {1, 2}, 0xFFFFFFF0u,
                                    total.data());
        append(out, total.data(), size);
      }
    });
  }
}

/* Also where the numbers of elements pass 2^32. */
TEST(LevelSums, codes_rounded_again_by_the_definition) {
  constexpr RandomKey kKey = {1, 2};
  for (const int64_t n : kSizes) {
    const auto size = static_cast<size_t>(n);
    const std::vector<float> values = numbers(size, 1), scale_inv = numbers(size, 2);
    for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
      for (const auto &[first, step] : {std::pair<uint64_t, uint64_t>{5, 1},
                                        {0xFFFFFFF0u, 1},
                                        {0xFFFFFF00u, 37},
                                        {uint64_t{1} << 33, 4000}}) {
        Bytes expected(size);
        for (size_t i = 0; i < size; ++i)
          expected[i] =
              round_code(dtype == OCTAVO_E4M3FN, values[i], scale_inv[i], kKey, first + i * step);
        for (int k = 0; k < kLevelCount; ++k) {
          const LevelEntry &entry = kLevels[k];
          if (entry.level == nullptr || !entry.is_supported()) continue;
          Bytes found(size);
          entry.level->updates.rounding.round_again(dtype, values.data(), scale_inv.data(), n, kKey,
                                                    first, step, found.data());
          ASSERT_EQ(found, expected) << entry.name << " " << first << " " << n;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test
