/* What adam_one_pass refuses and leaves alone. */
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/draft/one_pass.h"
#include "tests/kernels/adam_case.h"
#include "tests/support/draft_calls.h"

namespace octavo::test {
namespace {

TEST(AdamOnePassCalls, a_skipped_step_changes_nothing) {
  Kernels kernels;
  AdamParameter p(kAdamLayouts[0], {}, 3, 40, 0), before(kAdamLayouts[0], {}, 3, 40, 0);
  const float skip = 1.0f;
  float amax[OCTAVO_AMAX_COUNT] = {1.0f, 2.0f, 3.0f, 0.0f};
  float *const amaxes[] = {amax};
  p.c.skip = &skip;
  auto rounded = make_call<octavo_adam_rounded>(OCTAVO_KIND_ADAM_ROUNDED);
  rounded.step = &p.c;
  auto c = make_call<octavo_adam_one_pass>(OCTAVO_KIND_ADAM_ONE_PASS);
  c.rounded = &rounded;
  c.amax = amaxes;
  ASSERT_EQ(draft_call(kernels.table, kernels.ctx(), &c), OCTAVO_OK) << kernels.host().last_text();
  for (unsigned i = 0; i < 3; ++i) {
    EXPECT_EQ(p.tensors[i].data(), before.tensors[i].data()) << i;
    EXPECT_EQ(p.scale_invs[i], before.scale_invs[i]) << i;
  }
  EXPECT_EQ(p.step, before.step);
  EXPECT_EQ(amax[2], 3.0f);
}

/* The kernels need no address where nothing has one scale. */
TEST(AdamOnePassCalls, plain_items_have_no_amax) {
  Kernels kernels;
  AdamParameter p(kAdamLayouts[5], {}, 3, 40, 0);
  auto rounded = make_call<octavo_adam_rounded>(OCTAVO_KIND_ADAM_ROUNDED);
  rounded.step = &p.c;
  auto c = make_call<octavo_adam_one_pass>(OCTAVO_KIND_ADAM_ONE_PASS);
  c.rounded = &rounded;
  uint64_t bytes = 1;
  EXPECT_EQ(kernels.table->workspace_bytes(kernels.ctx(), &c, &bytes), OCTAVO_OK);
  EXPECT_EQ(bytes, 0u);
  EXPECT_EQ(draft_call(kernels.table, kernels.ctx(), &c), OCTAVO_OK) << kernels.host().last_text();
  EXPECT_EQ(p.step, 7);
}

TEST(AdamOnePassCalls, refuses_calls_without_what_it_reads) {
  Kernels kernels;
  AdamParameter p(kAdamLayouts[0], {}, 3, 40, 0);
  auto rounded = make_call<octavo_adam_rounded>(OCTAVO_KIND_ADAM_ROUNDED);
  rounded.step = &p.c;
  float *amax = nullptr;
  auto c = make_call<octavo_adam_one_pass>(OCTAVO_KIND_ADAM_ONE_PASS);
  const auto refused = [&](octavo_status status) {
    EXPECT_EQ(draft_call(kernels.table, kernels.ctx(), &c), status);
    return kernels.host().last_text();
  };
  EXPECT_THAT(refused(OCTAVO_INVALID), testing::HasSubstr("adam_one_pass: rounded is null"));
  c.rounded = &rounded;
  EXPECT_THAT(refused(OCTAVO_INVALID), testing::HasSubstr("adam_one_pass: amax is null"));
  c.amax = &amax;
  EXPECT_THAT(refused(OCTAVO_INVALID), testing::HasSubstr("adam_one_pass: amax[i] is null"));
  alignas(float) char bytes[2 * sizeof(float)] = {};
  amax = reinterpret_cast<float *>(bytes + 1);
  EXPECT_THAT(refused(OCTAVO_INVALID), testing::HasSubstr("amax[i]"));
  rounded.exp_avg_sq_rounding = OCTAVO_ROUND_SHRINKING;
  EXPECT_THAT(refused(OCTAVO_UNSUPPORTED), testing::HasSubstr("exp_avg_sq_rounding = 32768"));
  c.size = 8;
  EXPECT_THAT(refused(OCTAVO_INVALID), testing::HasSubstr("the call struct has 8 bytes"));
  EXPECT_EQ(p.step, 6);
}

}  // namespace
}  // namespace octavo::test
