/* prescale_update: when it halves, when it grows, where it stops, and what it refuses.
 *
 * A share equal to the threshold grows; only one above it halves.
 */
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/support/draft_calls.h"

namespace octavo::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Prescale {
  Kernels kernels;
  float prescale = 0.5f;
  float saturated = 0.0f;
  float added = 0.0f;
  octavo_prescale_update c = make_call<octavo_prescale_update>(OCTAVO_KIND_PRESCALE_UPDATE);

  Prescale() {
    c.prescale = &prescale;
    c.saturated = &saturated;
    c.added = &added;
    c.threshold = 0x1p-17f; /* 8 of 2^20 */
    c.growth = 1.25f;
    c.low = 0.0625f;
    c.high = 1.0f;
  }
  /* An update after 2^20 elements, `outside` of which left the range. */
  octavo_status update(float outside, float elements = 0x1p20f) {
    saturated = outside;
    added = elements;
    return draft_call(kernels.table, kernels.ctx(), &c);
  }
};

TEST(Prescale, halves_above_the_threshold_and_grows_else) {
  Prescale p;
  ASSERT_EQ(p.update(9.0f), OCTAVO_OK) << p.kernels.host().last_text();
  EXPECT_EQ(p.prescale, 0.25f);
  EXPECT_EQ(p.saturated, 0.0f);
  EXPECT_EQ(p.added, 0.0f);
  ASSERT_EQ(p.update(8.0f), OCTAVO_OK);
  EXPECT_EQ(p.prescale, 0.3125f);
  EXPECT_EQ(p.saturated, 0.0f);
  EXPECT_EQ(p.added, 0.0f);
  ASSERT_EQ(p.update(0.0f), OCTAVO_OK);
  EXPECT_EQ(p.prescale, 0.390625f);
}

TEST(Prescale, stays_without_elements_and_still_clears_both_counts) {
  Prescale p;
  ASSERT_EQ(p.update(0.0f, 0.0f), OCTAVO_OK);
  EXPECT_EQ(p.prescale, 0.5f);
  ASSERT_EQ(p.update(3.0f, 0.0f), OCTAVO_OK);
  EXPECT_EQ(p.prescale, 0.5f);
  EXPECT_EQ(p.saturated, 0.0f);
  EXPECT_EQ(p.added, 0.0f);
}

TEST(Prescale, stays_inside_its_limits) {
  Prescale p;
  for (int i = 0; i < 20; ++i) ASSERT_EQ(p.update(0.0f), OCTAVO_OK);
  EXPECT_EQ(p.prescale, 1.0f);
  for (int i = 0; i < 20; ++i) ASSERT_EQ(p.update(1e6f), OCTAVO_OK);
  EXPECT_EQ(p.prescale, 0.0625f);
}

TEST(Prescale, a_count_that_is_nan_halves_and_a_prescale_that_is_nan_restarts_at_the_bottom) {
  Prescale p;
  ASSERT_EQ(p.update(kNan), OCTAVO_OK);
  EXPECT_EQ(p.prescale, 0.25f);
  ASSERT_EQ(p.update(0.0f, kNan), OCTAVO_OK);
  EXPECT_EQ(p.prescale, 0.125f);
  EXPECT_EQ(p.saturated, 0.0f);
  EXPECT_EQ(p.added, 0.0f);
  p.prescale = kNan;
  ASSERT_EQ(p.update(0.0f), OCTAVO_OK);
  EXPECT_EQ(p.prescale, 0.0625f);
}

TEST(Prescale, needs_no_workspace) {
  Prescale p;
  uint64_t bytes = 77;
  ASSERT_EQ(p.kernels.table->workspace_bytes(p.kernels.ctx(), &p.c, &bytes), OCTAVO_OK);
  EXPECT_EQ(bytes, 0u);
}

TEST(Prescale, refuses_numbers_that_mean_nothing) {
  const auto expect_refused = [](void (*spoil)(octavo_prescale_update *), const char *text) {
    Prescale p;
    spoil(&p.c);
    EXPECT_EQ(p.update(5.0f), OCTAVO_INVALID) << text;
    EXPECT_THAT(p.kernels.host().last_text(), testing::HasSubstr(text));
    EXPECT_EQ(p.prescale, 0.5f) << text;
    EXPECT_EQ(p.saturated, 5.0f) << text;
    EXPECT_EQ(p.added, 0x1p20f) << text;
  };
  expect_refused([](octavo_prescale_update *c) { c->threshold = -1; }, "threshold = -1");
  expect_refused([](octavo_prescale_update *c) { c->threshold = kNan; }, "threshold = nan");
  expect_refused([](octavo_prescale_update *c) { c->growth = 0.5f; }, "growth = 0.5");
  expect_refused([](octavo_prescale_update *c) { c->low = 0; }, "low = 0, high = 1");
  expect_refused([](octavo_prescale_update *c) { c->low = 2; }, "low = 2, high = 1");
  expect_refused([](octavo_prescale_update *c) { c->high = kNan; }, "high = nan");
  expect_refused([](octavo_prescale_update *c) { c->prescale = nullptr; }, "prescale is null");
  expect_refused([](octavo_prescale_update *c) { c->saturated = nullptr; }, "saturated is null");
  expect_refused([](octavo_prescale_update *c) { c->added = nullptr; }, "added is null");
  expect_refused([](octavo_prescale_update *c) { c->size = 8; }, "the call struct has 8 bytes");
}

TEST(Prescale, a_table_by_an_unknown_id) {
  Prescale p;
  const octavo_kernels &table = *p.kernels.table;
  EXPECT_NE(table.get_extension(p.kernels.ctx(), OCTAVO_STR(OCTAVO_MSAMP_KERNELS_ID)), nullptr);
  EXPECT_EQ(table.get_extension(p.kernels.ctx(), OCTAVO_STR("octavo.kernels.msamp/2")), nullptr);
  EXPECT_EQ(table.get_extension(p.kernels.ctx(), octavo_str{nullptr, 0}), nullptr);
}

}  // namespace
}  // namespace octavo::test
