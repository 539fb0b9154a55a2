/* delayed_scale_update: fused and unfused semantics, the order of rows, the warm-up counter.
 *
 * The unfused path is also compared with recorded runs in golden_trace_test; the fused one has no
 * recording, so its rules are spelled out here.
 */
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/support/history.h"

namespace octavo::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/* A pool of `n` columns. */
struct Pool {
  std::vector<float> amax;
  std::vector<float> history;
  std::vector<float> scale;
  std::vector<float> counter;
  octavo_delayed_scale_update c =
      make_call<octavo_delayed_scale_update>(OCTAVO_KIND_DELAYED_SCALE_UPDATE);

  Pool(size_t n, size_t length, uint32_t rule)
      : amax(n, 0.0f), history(n * length, 0.0f), scale(n, 1.0f), counter(n, 0.0f) {
    c.amax = amax.data();
    c.history = history.data();
    c.scale = scale.data();
    c.counter = counter.data();
    c.n = n;
    c.length = length;
    c.format_max = 448.0f;
    c.use_max = 1;
    c.rule = rule;
    c.history_flags = history_of(c.rule);
  }

  void update(Kernels *kernels, float live) {
    amax[0] = live;
    ASSERT_EQ(kernels->table->delayed_scale_update(kernels->ctx(), &c), OCTAVO_OK)
        << kernels->host().last_text();
  }
};

TEST(Delayed, rows_run_from_oldest_to_newest) {
  Kernels kernels;
  Pool p(1, 4, OCTAVO_RULE_QUOTIENT);
  for (const float live : {1.0f, 2.0f, 3.0f, 4.0f}) p.update(&kernels, live);
  EXPECT_EQ(p.history, (std::vector<float>{0, 2, 3, 4}));
  EXPECT_EQ(p.amax[0], 0.0f);
  EXPECT_EQ(p.counter[0], 4.0f);
  EXPECT_EQ(p.scale[0], 112.0f);
}

TEST(Delayed, the_maximum_includes_the_oldest_row) {
  Kernels kernels;
  Pool p(1, 3, OCTAVO_RULE_QUOTIENT);
  p.update(&kernels, 64.0f);
  p.update(&kernels, 1.0f);
  EXPECT_EQ(p.history, (std::vector<float>{0, 64, 1}));
  p.update(&kernels, 2.0f);
  EXPECT_EQ(p.scale[0], 7.0f) << "64 was still in the window";
  p.update(&kernels, 2.0f);
  EXPECT_EQ(p.scale[0], 224.0f);
}

TEST(Delayed, most_recent_looks_at_the_live_value_only) {
  Kernels kernels;
  Pool p(1, 3, OCTAVO_RULE_QUOTIENT);
  p.c.use_max = 0;
  p.update(&kernels, 64.0f);
  p.update(&kernels, 1.0f);
  EXPECT_EQ(p.scale[0], 448.0f);
}

TEST(Delayed, a_live_zero_changes_nothing_when_fused_and_rolls_when_unfused) {
  Kernels kernels;
  for (const uint32_t rule : {OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2}) {
    Pool p(1, 3, rule);
    p.update(&kernels, 4.0f);
    p.update(&kernels, 8.0f);
    p.scale[0] = 5.0f;
    p.update(&kernels, 0.0f);
    EXPECT_EQ(p.history, (std::vector<float>{0, 4, 8}));
    EXPECT_EQ(p.scale[0], 5.0f);
    EXPECT_EQ(p.counter[0], 2.0f);
  }
  Pool p(1, 3, OCTAVO_RULE_RECIPROCAL);
  p.update(&kernels, 4.0f);
  p.update(&kernels, 8.0f);
  p.scale[0] = 5.0f;
  p.update(&kernels, 0.0f);
  EXPECT_EQ(p.history, (std::vector<float>{0, 8, 0}));
  EXPECT_EQ(p.scale[0], 1.0f / 8.0f * 448.0f);
  EXPECT_EQ(p.counter[0], 3.0f);
}

TEST(Delayed, nan_in_the_window_is_ignored_when_fused_and_keeps_the_scale_when_unfused) {
  Kernels kernels;
  Pool fused(1, 4, OCTAVO_RULE_QUOTIENT);
  fused.update(&kernels, kNan);
  EXPECT_EQ(fused.scale[0], 1.0f);
  EXPECT_EQ(fused.counter[0], 0.0f);
  fused.update(&kernels, 7.0f);
  EXPECT_EQ(fused.scale[0], 64.0f);
  Pool unfused(1, 4, OCTAVO_RULE_RECIPROCAL);
  unfused.update(&kernels, kNan);
  unfused.update(&kernels, 7.0f);
  EXPECT_EQ(unfused.scale[0], 1.0f);
  EXPECT_EQ(unfused.counter[0], 1.0f);
}

TEST(Delayed, infinity_freezes_the_scale_until_it_rolls_out_and_resets_the_counter) {
  Kernels kernels;
  Pool p(1, 3, OCTAVO_RULE_QUOTIENT);
  p.update(&kernels, 7.0f);
  p.update(&kernels, 7.0f);
  EXPECT_EQ(p.counter[0], 2.0f);
  p.update(&kernels, kInf);
  EXPECT_EQ(p.counter[0], 0.0f);
  p.update(&kernels, 1.0f);
  p.update(&kernels, 1.0f);
  EXPECT_EQ(p.scale[0], 64.0f);
  p.update(&kernels, 1.0f);
  EXPECT_EQ(p.scale[0], 448.0f);
  EXPECT_EQ(p.counter[0], 3.0f);
}

TEST(Delayed, what_is_dropped_enters_as_0_and_the_rest_of_the_window_counts) {
  Kernels kernels;
  for (const uint32_t rule : {OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_RECIPROCAL}) {
    for (const float odd : {kInf, kNan}) {
      Pool p(1, 3, rule);
      p.c.history_flags |= OCTAVO_HISTORY_DROP_NONFINITE;
      p.update(&kernels, 7.0f);
      p.scale[0] = 5.0f;
      p.update(&kernels, odd);
      EXPECT_EQ(p.history, (std::vector<float>{0, 7, 0})) << odd;
      EXPECT_EQ(p.scale[0], 1.0f / 7.0f * 448.0f) << odd;
      p.update(&kernels, 3.5f);
      EXPECT_EQ(p.scale[0], 1.0f / 7.0f * 448.0f) << odd;
      p.update(&kernels, 3.5f);
      EXPECT_EQ(p.scale[0], 128.0f) << odd;
    }
  }
}

TEST(Delayed, rules_margin_and_overflow) {
  Kernels kernels;
  Pool quotient(1, 1, OCTAVO_RULE_QUOTIENT);
  quotient.c.margin = 2;
  quotient.update(&kernels, 3.0f);
  EXPECT_EQ(quotient.scale[0], 112.0f / 3.0f);
  quotient.update(&kernels, 1e-38f);
  EXPECT_EQ(quotient.scale[0], kFloatMax);
  EXPECT_EQ(quotient.history, (std::vector<float>{0}));
  Pool pow2(1, 1, OCTAVO_RULE_POW2);
  pow2.update(&kernels, 10.0f);
  EXPECT_EQ(pow2.scale[0], 32.0f);
  pow2.update(&kernels, 1e-38f);
  EXPECT_EQ(pow2.scale[0], 0x1p127f);
  Pool reciprocal(1, 1, OCTAVO_RULE_RECIPROCAL);
  reciprocal.c.margin = 3;
  reciprocal.update(&kernels, 1e-38f);
  EXPECT_EQ(reciprocal.scale[0], kFloatMax) << "it overflows before the margin is applied";
}

/* TE's Python path: torch's maximum over the rows is NaN if one is, most_recent takes row 0. */
TEST(Delayed, a_nan_in_an_older_row_keeps_the_scale_of_a_maximum_only) {
  Kernels kernels;
  for (const uint32_t use_max : {0u, 1u})
    for (const uint32_t flags : {0u, OCTAVO_HISTORY_NAN_KEEPS + 0u}) {
      Pool p(1, 3, OCTAVO_RULE_QUOTIENT);
      p.c.use_max = use_max;
      p.c.history_flags = flags;
      p.history[1] = kNan;
      p.update(&kernels, 2.0f);
      EXPECT_EQ(p.scale[0], use_max != 0 && flags != 0 ? 1.0f : 224.0f) << use_max << flags;
      p.update(&kernels, kNan);
      EXPECT_EQ(p.history[1], 2.0f);
    }
}

TEST(Delayed, every_margin_leaves_a_finite_scale_above_0) {
  Kernels kernels;
  for (const uint32_t rule :
       {OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2, OCTAVO_RULE_RECIPROCAL, OCTAVO_RULE_MSAMP})
    for (const float format_max : {kMaxE4m3, kMaxE5m2})
      for (int margin = 0; margin <= 30; ++margin)
        for (const float amax : {0x1p-149f, 1e-38f, 1.0f, 3e38f, kFloatMax}) {
          Pool p(1, 1, rule);
          p.c.margin = margin;
          p.c.format_max = format_max;
          p.update(&kernels, amax);
          EXPECT_TRUE(is_usable_amax(p.scale[0])) << rule << ", " << margin << ", " << amax;
        }
}

TEST(Delayed, columns_of_a_pool_are_independent_and_may_lack_a_counter) {
  Kernels kernels(5);
  constexpr size_t kColumns = 1000;
  Pool p(kColumns, 64, OCTAVO_RULE_QUOTIENT);
  p.c.counter = nullptr;
  for (int step = 1; step <= 3; ++step) {
    for (size_t i = 0; i < kColumns; ++i) p.amax[i] = static_cast<float>(i + 1) / step;
    p.update(&kernels, 1.0f / static_cast<float>(step));
  }
  for (size_t i = 0; i < kColumns; ++i) {
    ASSERT_EQ(p.scale[i], 448.0f / static_cast<float>(i + 1));
    ASSERT_EQ(p.history[63 * kColumns + i], static_cast<float>(i + 1) / 3);
    ASSERT_EQ(p.counter[i], 0.0f);
  }
}

TEST(ScaleFromAmax, divides_first_and_guards_what_is_not_usable) {
  Kernels kernels;
  const std::vector<float> amax = {8.0f, 0.0f, kInf, kNan, 1e-38f};
  std::vector<float> scale(amax.size());
  std::vector<float> scale_inv(amax.size());
  auto c = make_call<octavo_scale_from_amax>(OCTAVO_KIND_SCALE_FROM_AMAX);
  c.amax = amax.data();
  c.scale = scale.data();
  c.scale_inv = scale_inv.data();
  c.n = amax.size();
  c.format_max = 448.0f;
  c.divide_by = 2.0f;
  c.rule = OCTAVO_RULE_QUOTIENT;
  ASSERT_EQ(kernels.table->scale_from_amax(kernels.ctx(), &c), OCTAVO_OK);
  EXPECT_EQ(scale, (std::vector<float>{112, 1, 1, 1, kFloatMax}));
  for (size_t i = 0; i < amax.size(); ++i) EXPECT_EQ(scale_inv[i], 1.0f / scale[i]);
}

}  // namespace
}  // namespace octavo::test
