/* gradient_scale: the norm over many sums, clipping as torch's clip_grad_norm_ does it, when a step
 * is skipped, and what it refuses. */
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/support/draft_calls.h"

namespace octavo::test {
namespace {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct GradientScale {
  Kernels kernels;
  std::vector<float> sums = {9.0f, 16.0f};
  float nonfinite = 0.0f;
  float norm = -1.0f;
  float skip = -1.0f;
  float first = -1.0f;
  float second = -1.0f;
  float *scales[2] = {&first, &second};
  octavo_gradient_scale c = make_call<octavo_gradient_scale>(OCTAVO_KIND_GRADIENT_SCALE);

  GradientScale() {
    c.nonfinite = &nonfinite;
    c.norm = &norm;
    c.skip = &skip;
    c.grad_scale = scales;
    c.count = 2;
    c.factor = 1.0f;
  }
  octavo_status run() {
    c.sum = sums.data();
    c.sum_count = sums.size();
    return draft_call(kernels.table, kernels.ctx(), &c);
  }
};

TEST(GradientScale, without_a_limit_the_factor_stays) {
  GradientScale g;
  ASSERT_EQ(g.run(), OCTAVO_OK) << g.kernels.host().last_text();
  EXPECT_EQ(g.norm, 5.0f);
  EXPECT_EQ(g.skip, 0.0f);
  EXPECT_EQ(g.first, 1.0f);
  EXPECT_EQ(g.second, 1.0f);
}

TEST(GradientScale, clips_to_the_largest_norm_as_torch_does) {
  GradientScale g;
  g.c.max_norm = 2.0f;
  ASSERT_EQ(g.run(), OCTAVO_OK);
  EXPECT_EQ(g.first, 2.0f / (5.0f + 1e-6f));
  EXPECT_EQ(g.second, g.first);
  g.c.max_norm = 5.5f;
  ASSERT_EQ(g.run(), OCTAVO_OK);
  EXPECT_EQ(g.first, 1.0f);
}

TEST(GradientScale, the_factor_counts_in_norm_and_scale) {
  GradientScale g;
  g.c.factor = 0.125f;
  ASSERT_EQ(g.run(), OCTAVO_OK);
  EXPECT_EQ(g.norm, 0.625f);
  EXPECT_EQ(g.first, 0.125f);
  g.c.max_norm = 0.25f;
  ASSERT_EQ(g.run(), OCTAVO_OK);
  EXPECT_EQ(g.first, 0.125f * (0.25f / (0.625f + 1e-6f)));
}

TEST(GradientScale, sums_are_added_in_fp64) {
  GradientScale g;
  g.sums.assign(1u << 20, 0x1p-30f);
  g.sums.front() = 1.0f; /* in fp32 none of the others would count */
  ASSERT_EQ(g.run(), OCTAVO_OK);
  EXPECT_EQ(g.norm, static_cast<float>(std::sqrt(1.0 + 0x1p-10 - 0x1p-30)));
}

TEST(GradientScale, skips_on_the_flag_and_on_a_norm_that_is_not_finite) {
  GradientScale g;
  g.c.max_norm = 1.0f;
  g.nonfinite = 1.0f;
  ASSERT_EQ(g.run(), OCTAVO_OK);
  EXPECT_EQ(g.skip, 1.0f);
  g.nonfinite = 0.0f;
  for (const float bad : {kNan, kInf}) {
    g.sums = {1.0f, bad};
    ASSERT_EQ(g.run(), OCTAVO_OK);
    EXPECT_EQ(g.skip, 1.0f);
    EXPECT_TRUE(std::isfinite(g.first)) << "a finite factor, whatever is skipped";
  }
  g.sums = {};
  ASSERT_EQ(g.run(), OCTAVO_OK);
  EXPECT_EQ(g.skip, 0.0f);
  EXPECT_EQ(g.norm, 0.0f);
}

TEST(GradientScale, outputs_are_optional) {
  GradientScale g;
  g.c.norm = nullptr;
  g.c.skip = nullptr;
  g.c.nonfinite = nullptr;
  g.c.count = 0;
  g.c.grad_scale = nullptr;
  EXPECT_EQ(g.run(), OCTAVO_OK);
  EXPECT_EQ(g.first, -1.0f);
}

TEST(GradientScale, refuses_what_it_cannot_use_and_changes_nothing) {
  const auto expect_refused = [](void (*spoil)(GradientScale *), const char *text) {
    GradientScale g;
    spoil(&g);
    EXPECT_EQ(g.run(), OCTAVO_INVALID) << text;
    EXPECT_THAT(g.kernels.host().last_text(), HasSubstr(text));
    EXPECT_EQ(g.first, -1.0f);
    EXPECT_EQ(g.norm, -1.0f);
    EXPECT_EQ(g.skip, -1.0f);
  };
  expect_refused([](GradientScale *g) { g->c.factor = 0; }, "factor = 0");
  expect_refused([](GradientScale *g) { g->c.factor = kNan; }, "factor = nan");
  expect_refused([](GradientScale *g) { g->c.max_norm = -1; }, "max_norm = -1");
  expect_refused([](GradientScale *g) { g->c.max_norm = kInf; }, "max_norm = inf");
  expect_refused([](GradientScale *g) { g->c.grad_scale = nullptr; }, "grad_scale is null");
  expect_refused([](GradientScale *g) { g->scales[1] = nullptr; }, "grad_scale[i] is null");
  expect_refused([](GradientScale *g) { g->c.size = 8; }, "the call struct has 8 bytes");
}

}  // namespace
}  // namespace octavo::test
