/* Stochastic rounding: its probabilities between all neighbouring codes of every format, and that
 * draws of neighbouring elements, steps, tensors and keys have nothing to do with each other.
 *
 * Keys are fixed, so nothing here is left to chance: a limit says how likely a right rounding would
 * have failed when the key was chosen.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "kernels/format/rounding.h"
#include "octavo/draft/optimizer.h"
#include "octavo/draft/rounding.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/support/draft_calls.h"

namespace octavo::test {
namespace {

struct Format {
  const char *name;
  uint32_t codes; /* of finite magnitudes, from 0 on */
  std::function<double(uint32_t)> decode;
  std::function<uint32_t(float, uint32_t)> encode;
};

const ExpandedGroup kGroups[] = {expanded_group({1e-3f, 1e-9f}), expanded_group({2.0f, 1.5f}),
                                 expanded_group({3e4f, 1e-20f})};

std::vector<Format> formats() {
  std::vector<Format> all = {
      {"E4M3", 0x7F, [](uint32_t c) { return decode_e4m3(static_cast<uint8_t>(c)); },
       encode_e4m3_random},
      {"E5M2", 0x7C, [](uint32_t c) { return decode_e5m2(static_cast<uint8_t>(c)); },
       encode_e5m2_random},
      {"f16", 0x7C00, [](uint32_t c) { return decode_f16(static_cast<uint16_t>(c)); },
       encode_f16_random<kSaturatedF16>},
      {"plain f16", 0x7C00, [](uint32_t c) { return decode_f16(static_cast<uint16_t>(c)); },
       encode_f16_random<kPlainF16>},
      {"bf16", 0x7F80, [](uint32_t c) { return decode_bf16(static_cast<uint16_t>(c)); },
       encode_bf16_random}};
  for (const ExpandedGroup &g : kGroups)
    all.push_back({"expanded", 0x7F,
                   [g](uint32_t c) { return decode_expanded(g, static_cast<uint8_t>(c)); },
                   [g](float v, uint32_t random) { return encode_expanded_random(g, v, random); }});
  return all;
}

/* Draws between every pair of neighbours. The number of upper ones is binomial, so the sum of
 * (k - n p)^2 / (n p (1 - p)) over the pairs has their number as its mean and, up to terms of
 * 1 / (n p), twice that as its variance: 5 standard deviations are exceeded with 3e-7. */
TEST(StochasticRounding, chi_square_of_every_interval) {
  for (const Format &f : formats()) {
    const int draws = f.codes > 1000 ? 200 : 4000;
    for (const double wanted : {0.1, 0.25, 0.5, 0.8}) {
      double sum = 0;
      int intervals = 0;
      for (uint32_t code = 0; code + 1 < f.codes; ++code) {
        const double low = f.decode(code), high = f.decode(code + 1);
        const float value = static_cast<float>(low + wanted * (high - low));
        const double p = (static_cast<double>(value) - low) / (high - low);
        if (!(p > 0.05) || !(p < 0.95)) continue; /* fp32 has no such value between these two */
        const RandomKey key = random_key(code, draws, 0);
        int upper = 0;
        for (int i = 0; i < draws; ++i) {
          const uint32_t found = f.encode(value, random_bits(key, static_cast<uint64_t>(i)));
          ASSERT_TRUE(found == code || found == code + 1) << f.name << " " << code << " " << found;
          upper += found == code + 1 ? 1 : 0;
        }
        const double distance = upper - draws * p;
        sum += distance * distance / (draws * p * (1 - p));
        ++intervals;
      }
      EXPECT_GE(intervals, 100) << f.name;
      EXPECT_LE(std::abs(sum - intervals), 5 * std::sqrt(2.0 * intervals))
          << f.name << " " << wanted;
    }
  }
}

/* Every pattern of the bits that are dropped: as many of them round up as the value is units above
 * the lower code. */
TEST(StochasticRounding, counts_are_exact) {
  for (const float value : {1.0f + 0x1p-20f, 1.37f, -1.9999f, 300.1f, 0x1.3p-7f, -0x1.234p-8f}) {
    const auto magnitude = static_cast<double>(std::abs(value));
    const double unit = std::max(std::exp2(std::floor(std::log2(magnitude)) - 3), 0x1p-9);
    const double low = std::floor(magnitude / unit) * unit;
    const auto expected = static_cast<int64_t>(std::floor((magnitude - low) / unit * 0x1p20));
    int64_t upper = 0;
    for (uint32_t random = 0; random < 1u << 20; ++random) {
      const double found = std::abs(decode_e4m3(encode_e4m3_random(value, random)));
      ASSERT_TRUE(found == low || found == low + unit) << value << " " << found;
      upper += found > low ? 1 : 0;
    }
    EXPECT_EQ(upper, expected) << value;
  }
}

TEST(StochasticRounding, codes_stay_and_what_is_no_number_is_cast_as_ever) {
  for (const Format &f : formats()) {
    if (std::string(f.name) == "expanded") continue; /* its powers are rounded */
    for (uint32_t code = 0; code < f.codes; ++code) {
      for (const uint32_t random : {0u, 0xFFFFFFFFu})
        ASSERT_EQ(f.encode(static_cast<float>(f.decode(code)), random), code) << f.name;
    }
  }
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const uint32_t random : {0u, 0xFFFFFFFFu}) {
    for (const float v : {kInf, -kInf, std::nanf(""), 1e30f, -1e30f, 0.0f, -0.0f}) {
      EXPECT_EQ(encode_e4m3_random(v, random), encode_e4m3(v)) << v;
      EXPECT_EQ(encode_e5m2_random(v, random), encode_e5m2(v)) << v;
      EXPECT_EQ(encode_f16_random<kSaturatedF16>(v, random), encode_f16_saturating(v)) << v;
      EXPECT_EQ(encode_f16_random<kPlainF16>(v, random), encode_f16(v)) << v;
    }
    for (const float v : {kInf, -kInf, std::nanf(""), 0.0f, -0.0f})
      EXPECT_EQ(encode_bf16_random(v, random), encode_bf16(v)) << v;
  }
}

/* Bits of two sequences agree in half of the places: 2^20 of them differ from that by less than 5
 * standard deviations of 512. */
TEST(StochasticRounding, neighbours_of_every_kind_are_independent) {
  const auto expect_independent = [](auto &&first, auto &&second, const char *what) {
    int agree = 0;
    for (uint32_t i = 0; i < 1u << 15; ++i) agree += __builtin_popcount(~(first(i) ^ second(i)));
    EXPECT_NEAR(agree, 1 << 19, 5 * 512) << what;
  };
  const auto of = [](uint64_t seed, int32_t step, uint32_t tensor, uint64_t first) {
    const RandomKey key = random_key(seed, step, tensor);
    return [key, first](uint32_t i) { return random_bits(key, first + i); };
  };
  for (uint64_t seed = 0; seed < 16; ++seed) {
    const auto base = of(seed, 5, 1, 0);
    expect_independent(base, of(seed, 5, 1, 1), "elements");
    expect_independent(base, of(seed, 5, 1, uint64_t{1} << 32), "elements 2^32 apart");
    expect_independent(base, of(seed, 6, 1, 0), "steps");
    expect_independent(base, of(seed, 5, 2, 0), "tensors");
    expect_independent(base, of(seed + 1, 5, 1, 0), "keys");
    expect_independent(
        base, [](uint32_t) { return 0u; }, "zeros");
  }
}

TEST(AdamRounded, refusals) {
  Kernels kernels;
  auto step = make_call<octavo_adam_step>(OCTAVO_KIND_ADAM_STEP);
  auto c = make_call<octavo_adam_rounded>(OCTAVO_KIND_ADAM_ROUNDED);
  const auto run = [&] { return draft_call(kernels.table, kernels.ctx(), &c); };
  EXPECT_EQ(run(), OCTAVO_INVALID);
  EXPECT_NE(kernels.host().last_text().find("step"), std::string::npos);
  c.step = &step;
  EXPECT_EQ(run(), OCTAVO_OK);
  uint32_t *const roundings[] = {&c.weight_rounding, &c.exp_avg_rounding, &c.exp_avg_sq_rounding};
  for (uint32_t *rounding : roundings) {
    *rounding = 77;
    EXPECT_EQ(run(), OCTAVO_UNSUPPORTED);
    EXPECT_NE(kernels.host().last_text().find("rounding = 77; expected 0"), std::string::npos);
    *rounding = OCTAVO_ROUND_SHRINKING;
    EXPECT_EQ(run(), rounding == &c.exp_avg_rounding ? OCTAVO_OK : OCTAVO_UNSUPPORTED);
    *rounding = OCTAVO_ROUND_STOCHASTIC;
    EXPECT_EQ(run(), OCTAVO_OK) << "nothing needs a key";
    *rounding = OCTAVO_ROUND_NEAREST_EVEN;
  }
  octavo_adam_item item = {};
  step.items = &item;
  step.count = 1;
  c.exp_avg_rounding = OCTAVO_ROUND_STOCHASTIC;
  EXPECT_EQ(run(), OCTAVO_INVALID);
  EXPECT_NE(kernels.host().last_text().find("keys"), std::string::npos);
  octavo_ability question = {};
  question.size = sizeof(question);
  question.kind = OCTAVO_KIND_ABILITY;
  question.call = OCTAVO_KIND_ADAM_ROUNDED;
  ASSERT_EQ(kernels.table->ability(kernels.ctx(), &question), OCTAVO_OK);
  EXPECT_EQ(question.decision, uint32_t{OCTAVO_ACCEPT_EMULATED});
}

}  // namespace
}  // namespace octavo::test
