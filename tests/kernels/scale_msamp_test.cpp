/* The rules MSAMP and MSAMP04: exponents against fp64, the kept scale, delayed updates.
 *
 * Recorded scales of MS-AMP are compared in golden_scale_test; here are margins, limits, and the
 * order of events in a history, for which there is no recording.
 */
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/format/scale_rules.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/support/history.h"

namespace octavo::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(ScaleMsamp, is_the_power_of_two_below_the_rounded_quotient) {
  std::mt19937 generator(1);
  std::uniform_int_distribution<int32_t> bits(1, kInfinityBits - 1);
  for (int i = 0; i < 100000; ++i) {
    const float amax = bits_float(bits(generator));
    for (const float m : {448.0f, 57344.0f, 65504.0f}) {
      for (const int margin : {0, 1, 7, -3}) {
        const float reciprocal = static_cast<float>(1.0 / static_cast<double>(amax));
        const float quotient = reciprocal * m;
        /* Below 2^-120 an fp64 quotient is far from any power of two unless it is one: m and amax
         * have 24 bits, so two different quotients of them are at least 2^-48 apart. */
        int exponent = 0;
        std::frexp(std::isfinite(quotient) ? static_cast<double>(quotient)
                                           : static_cast<double>(m) / static_cast<double>(amax),
                   &exponent);
        --exponent;
        exponent -= margin;
        const float limited = std::ldexp(1.0f, std::clamp(exponent, -126, 127));
        ASSERT_EQ(scale_msamp(amax, 3.0f, m, margin), limited) << amax << " " << margin;
        if (!std::isfinite(quotient)) continue;
        ASSERT_EQ(scale_msamp04(amax, 3.0f, m, margin), std::ldexp(1.0f, exponent)) << amax;
      }
    }
  }
}

TEST(ScaleMsamp, both_ends_of_the_exponent_are_limited) {
  for (const int margin : {126, 1000, INT32_MAX}) {
    EXPECT_EQ(scale_msamp(448.0f, 1.0f, 448.0f, margin), 0x1p-126f) << margin;
  }
  for (const int margin : {-127, -1000, INT32_MIN}) {
    EXPECT_EQ(scale_msamp(448.0f, 1.0f, 448.0f, margin), 0x1p127f) << margin;
  }
  EXPECT_EQ(scale_msamp(1e-40f, 1.0f, 448.0f, 0), 0x1p127f);
  /* 448 / 1e-40 overflows and is 2^141.7: a margin counts from 2^141, not from 2^127. */
  EXPECT_EQ(scale_msamp(1e-40f, 1.0f, 448.0f, 14), 0x1p127f);
  EXPECT_EQ(scale_msamp(1e-40f, 1.0f, 448.0f, 15), 0x1p126f);
  EXPECT_EQ(scale_msamp(0x1p-149f, 1.0f, 448.0f, 40), 0x1p117f);
  EXPECT_EQ(scale_msamp(0x1.cp-130f, 1.0f, 448.0f, 20), 0x1p118f); /* 448 is 1.75 * 2^8 */
  EXPECT_EQ(scale_msamp(0x1.c0002p-130f, 1.0f, 448.0f, 20), 0x1p117f);
  EXPECT_EQ(scale_msamp04(1e-40f, 1.0f, 448.0f, 0), kInf);
  EXPECT_EQ(scale_msamp04(448.0f, 1.0f, 448.0f, INT32_MAX), 0.0f);
  EXPECT_EQ(scale_msamp04(448.0f, 1.0f, 448.0f, INT32_MIN), kInf);
}

TEST(ScaleMsamp, what_is_not_usable_keeps_the_old_scale_and_msamp04_inverts_it_for_infinity) {
  for (const float odd : {0.0f, kInf, kNan}) {
    EXPECT_EQ(scale_by_rule(OCTAVO_RULE_MSAMP, odd, 8.0f, 448.0f, 0), 8.0f) << odd;
  }
  EXPECT_EQ(scale_by_rule(OCTAVO_RULE_MSAMP04, 0.0f, 8.0f, 448.0f, 0), 8.0f);
  EXPECT_EQ(scale_by_rule(OCTAVO_RULE_MSAMP04, kNan, 8.0f, 448.0f, 0), 8.0f);
  EXPECT_EQ(scale_by_rule(OCTAVO_RULE_MSAMP04, kInf, 8.0f, 448.0f, 0), 0.125f);
}

TEST(ScaleFromAmax, keeps_what_is_given_even_in_place) {
  Kernels kernels;
  const std::vector<float> amax = {8.0f, 0.0f, kInf, kNan, 1e-40f};
  for (const bool in_place : {false, true}) {
    for (const uint32_t rule : std::initializer_list<uint32_t>{
             OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2, OCTAVO_RULE_RECIPROCAL, OCTAVO_RULE_MSAMP,
             OCTAVO_RULE_MSAMP04}) {
      std::vector<float> old = {2.0f, 4.0f, 8.0f, 16.0f, 32.0f};
      std::vector<float> other(5, -1.0f);
      std::vector<float> scale_inv(5, -1.0f);
      auto c = make_call<octavo_scale_from_amax>(OCTAVO_KIND_SCALE_FROM_AMAX);
      c.amax = amax.data();
      c.scale = in_place ? old.data() : other.data();
      c.scale_inv = scale_inv.data();
      c.kept = old.data();
      c.n = amax.size();
      c.format_max = 448.0f;
      c.divide_by = 1.0f;
      c.rule = rule;
      ASSERT_EQ(kernels.table->scale_from_amax(kernels.ctx(), &c), OCTAVO_OK)
          << kernels.host().last_text();
      const bool is_power = rule != OCTAVO_RULE_QUOTIENT && rule != OCTAVO_RULE_RECIPROCAL;
      const float overflow = rule == OCTAVO_RULE_MSAMP04 ? kInf : is_power ? 0x1p127f : kFloatMax;
      const std::vector<float> expected = {is_power ? 32.0f : 56.0f, 4.0f,
                                           rule == OCTAVO_RULE_MSAMP04 ? 0.125f : 8.0f, 16.0f,
                                           overflow};
      for (size_t i = 0; i < amax.size(); ++i) {
        EXPECT_EQ(c.scale[i], expected[i]) << "rule " << rule << " amax " << amax[i];
        EXPECT_EQ(scale_inv[i], 1.0f / expected[i]) << "rule " << rule << " amax " << amax[i];
      }
    }
  }
}

/* One column with a history of 4. */
struct Column {
  float amax = 0.0f;
  std::vector<float> history = {0.0f, 0.0f, 0.0f, 0.0f};
  float scale = 1.0f;
  float counter = 0.0f;

  void update(uint32_t rule, float live, uint32_t use_max = 1) {
    Kernels kernels;
    auto c = make_call<octavo_delayed_scale_update>(OCTAVO_KIND_DELAYED_SCALE_UPDATE);
    amax = live;
    c.amax = &amax;
    c.history = history.data();
    c.scale = &scale;
    c.counter = &counter;
    c.n = 1;
    c.length = history.size();
    c.format_max = 448.0f;
    c.use_max = use_max;
    c.rule = rule;
    c.history_flags = history_of(c.rule);
    ASSERT_EQ(kernels.table->delayed_scale_update(kernels.ctx(), &c), OCTAVO_OK)
        << kernels.host().last_text();
  }
};

TEST(DelayedMsamp, ordinary_updates_take_the_maximum_of_the_window_and_roll) {
  for (const uint32_t rule :
       std::initializer_list<uint32_t>{OCTAVO_RULE_MSAMP, OCTAVO_RULE_MSAMP04}) {
    Column c;
    c.update(rule, 10.0f);
    EXPECT_EQ(c.scale, 32.0f);
    for (const float live : {1.0f, 2.0f, 3.0f}) c.update(rule, live);
    EXPECT_EQ(c.history, (std::vector<float>{0, 1, 2, 3}));
    EXPECT_EQ(c.scale, 32.0f) << "10 was still in the window";
    EXPECT_EQ(c.counter, 4.0f);
    c.update(rule, 3.0f);
    EXPECT_EQ(c.scale, 128.0f);
    EXPECT_EQ(c.amax, 0.0f);
  }
}

TEST(DelayedMsamp, a_live_zero_changes_nothing_but_rolls_in_msamp04) {
  Column fixed;
  Column parity;
  for (const float live : {4.0f, 8.0f}) {
    fixed.update(OCTAVO_RULE_MSAMP, live);
    parity.update(OCTAVO_RULE_MSAMP04, live);
  }
  fixed.scale = parity.scale = 5.0f;
  fixed.update(OCTAVO_RULE_MSAMP, 0.0f);
  EXPECT_EQ(fixed.history, (std::vector<float>{0, 0, 4, 8}));
  EXPECT_EQ(fixed.scale, 5.0f);
  EXPECT_EQ(fixed.counter, 2.0f);
  parity.update(OCTAVO_RULE_MSAMP04, 0.0f);
  EXPECT_EQ(parity.history, (std::vector<float>{0, 4, 8, 0}));
  EXPECT_EQ(parity.scale, 32.0f);
  EXPECT_EQ(parity.counter, 3.0f);
}

TEST(DelayedMsamp, a_nonfinite_amax_enters_as_0_and_restarts_the_warm_up) {
  for (const float odd : {kInf, kNan}) {
    for (const uint32_t rule :
         std::initializer_list<uint32_t>{OCTAVO_RULE_MSAMP, OCTAVO_RULE_MSAMP04}) {
      Column c;
      c.update(rule, 7.0f);
      c.update(rule, 1.0f);
      c.scale = 3.0f;
      c.update(rule, odd);
      EXPECT_EQ(c.history, (std::vector<float>{0, 7, 1, 0})) << odd;
      EXPECT_EQ(c.scale, 64.0f) << odd << ": 7 is the maximum of the rest";
      EXPECT_EQ(c.counter, 0.0f) << odd;
      Column empty;
      empty.scale = 3.0f;
      empty.update(rule, odd);
      EXPECT_EQ(empty.history, (std::vector<float>(4, 0.0f))) << odd;
      EXPECT_EQ(empty.scale, 3.0f) << odd << ": nothing else is in the window";
      EXPECT_EQ(empty.amax, 0.0f);
    }
  }
}

TEST(DelayedMsamp, most_recent_keeps_the_scale_for_a_nonfinite_amax) {
  Column c;
  c.update(OCTAVO_RULE_MSAMP, 7.0f, 0);
  EXPECT_EQ(c.scale, 64.0f);
  c.update(OCTAVO_RULE_MSAMP, kInf, 0);
  EXPECT_EQ(c.scale, 64.0f);
  c.update(OCTAVO_RULE_MSAMP, 1.0f, 0);
  EXPECT_EQ(c.scale, 256.0f);
  EXPECT_EQ(c.counter, 1.0f);
}

/* A cast of one element with the scale that `scale` holds. */
float cast_scale(uint32_t rule, float value, const float *scale, const float *counter) {
  Kernels kernels;
  Matrix in(OCTAVO_F32, 1, 1);
  Matrix out(OCTAVO_E4M3FN, 1, 1);
  in.set(0, 0, value);
  float scale_inv = -1.0f;
  const octavo_scale out_scale_inv = per_tensor(&scale_inv);
  auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  c.in = in.tensor();
  c.out = out.tensor();
  c.out_scale_inv = &out_scale_inv;
  c.scale = scale;
  c.counter = counter;
  c.window = 16.0f;
  c.format_max = 448.0f;
  c.rule = rule;
  EXPECT_EQ(kernels.quantize(c), OCTAVO_OK) << kernels.host().last_text();
  EXPECT_EQ(out.code(0, 0), encode_e4m3(value * (1.0f / scale_inv)));
  return 1.0f / scale_inv;
}

TEST(QuantizeKept, the_old_scale_is_kept_without_a_usable_amax) {
  const float old = 8.0f;
  const float warm_up = 3.0f;
  const float warm = 16.0f;
  for (const float odd : {0.0f, kInf, -kInf}) {
    for (const uint32_t rule : {OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2, OCTAVO_RULE_MSAMP}) {
      EXPECT_EQ(cast_scale(rule, odd, &old, &warm_up), 8.0f) << odd;
      EXPECT_EQ(cast_scale(rule, odd, &old, &warm), 8.0f) << odd;
      EXPECT_EQ(cast_scale(rule, odd, &old, nullptr), 8.0f) << odd;
      EXPECT_EQ(cast_scale(rule, odd, nullptr, nullptr), 1.0f) << odd;
    }
  }
  EXPECT_EQ(cast_scale(OCTAVO_RULE_MSAMP04, 0.0f, &old, &warm_up), 8.0f);
  EXPECT_EQ(cast_scale(OCTAVO_RULE_MSAMP04, kInf, &old, &warm_up), 0.125f);
  EXPECT_EQ(cast_scale(OCTAVO_RULE_MSAMP, 10.0f, &old, &warm_up), 32.0f);
  EXPECT_EQ(cast_scale(OCTAVO_RULE_MSAMP, 10.0f, &old, &warm), 8.0f);
}

TEST(QuantizeKept, a_given_scale_that_is_null_is_1) {
  const float given = 8.0f;
  EXPECT_EQ(cast_scale(OCTAVO_RULE_GIVEN, 10.0f, &given, nullptr), 8.0f);
  EXPECT_EQ(cast_scale(OCTAVO_RULE_GIVEN, 10.0f, nullptr, nullptr), 1.0f);
}

}  // namespace
}  // namespace octavo::test
