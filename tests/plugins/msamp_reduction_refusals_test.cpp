// Calls of msamp's gradient reduction that are refused, and leave every slot as it was.
#include "tests/plugins/msamp_reduction.h"

namespace octavo::test {
namespace {

class MsampReductionRefuses : public MsampReduction {
 protected:
  MsampReductionRefuses() {
    open(2, kTwoShot, {}, {{6, 7}});
    for (uint32_t rank = 0; rank < 2; ++rank) group->write(rank, 0, some_matrix(6, 7, rank, 1.0f));
    before = all_bytes();
  }
  ~MsampReductionRefuses() override {
    EXPECT_EQ(all_bytes(), before);
    EXPECT_EQ(*group->floats(0, "reduce/added"), 0.0f);
    EXPECT_EQ(*group->floats(0, "reduce/saturated"), 0.0f);
  }
  // A parameter of a second seal.
  uint32_t add(const char *name, uint32_t flags) {
    const Answer a = add_parameter(group->run(), parameter_desc(name, 3, 4, flags));
    EXPECT_EQ(a.status, OCTAVO_OK) << request->host.error();
    return a.id;
  }
  octavo_status plan(uint32_t parameter, uint32_t world = 2) {
    octavo_gradient_plan plan{};
    plan.size = sizeof(plan);
    plan.kind = OCTAVO_KIND_GRADIENT_PLAN;
    plan.world = world;
    plan.parameters = &parameter;
    plan.count = 1;
    plan.ctx = &stages;
    plan.stage = [](void *ctx, const octavo_gradient_stage *) -> octavo_status {
      ++*static_cast<int *>(ctx);
      return OCTAVO_OK;
    };
    return group->gradients()->plan_reduction(group->session(), &plan);
  }
  void expect_error(const std::string &part) {
    EXPECT_NE(request->host.error().find(part), std::string::npos) << request->host.error();
    EXPECT_EQ(stages, 0);
  }
  std::vector<std::vector<uint8_t>> before;
  int stages = 0;
};

TEST_F(MsampReductionRefuses, gradient_of_the_host) {
  const uint32_t id = add("norm", 0);
  ASSERT_EQ(octavo_seal(group->run()), OCTAVO_OK) << request->host.error();
  EXPECT_EQ(plan(id), OCTAVO_INVALID);
  expect_error(
      "\"norm\": expected a parameter with a gradient slot, found one whose gradient is "
      "the host's: reduce it there");
}

TEST_F(MsampReductionRefuses, frozen_parameter) {
  const uint32_t id =
      add("frozen", uint32_t{OCTAVO_PARAMETER_LINEAR_WEIGHT} | OCTAVO_PARAMETER_FROZEN);
  ASSERT_EQ(add_linear(group->run(), "frozen", id).status, OCTAVO_OK);
  ASSERT_EQ(octavo_seal(group->run()), OCTAVO_OK) << request->host.error();
  EXPECT_EQ(plan(id), OCTAVO_INVALID);
  expect_error("\"frozen\": expected a parameter with a gradient slot, found a frozen one");
}

TEST_F(MsampReductionRefuses, parameter_that_is_not_sealed) {
  const uint32_t id = add("late", OCTAVO_PARAMETER_LINEAR_WEIGHT);
  EXPECT_EQ(plan(id), OCTAVO_INVALID);
  expect_error("expected a sealed parameter below 1, found 1");
  EXPECT_EQ(plan(77), OCTAVO_INVALID);
  expect_error("expected a sealed parameter below 1, found 77");
}

TEST_F(MsampReductionRefuses, number_of_ranks) {
  EXPECT_EQ(plan(0, 0), OCTAVO_INVALID);
  expect_error("plan_reduction: expected 1 to 65536 ranks, found 0");
  EXPECT_EQ(plan(0, 65537), OCTAVO_INVALID);
  expect_error("found 65537");
}

TEST_F(MsampReductionRefuses, unknown_stage) {
  ReductionGroup::Bucket bucket;
  ASSERT_EQ(group->start({0}, bucket), OCTAVO_OK);
  for (const uint32_t stage : {4U, 5U, 0xFFFFFFFFU})
    EXPECT_EQ(group->run_stage(bucket, stage), OCTAVO_INVALID) << stage;
}

TEST_F(MsampReductionRefuses, missing_gradient_slot) {
  ReductionGroup::Bucket bucket;
  ASSERT_EQ(group->start({0}, bucket), OCTAVO_OK);
  const uint32_t uses = octavo_run_use_count(group->run(), OCTAVO_OWNER_PARAMETER, 0);
  const std::vector<void *> nothing(uses, nullptr);
  for (void *const *slots : {static_cast<void *const *>(nullptr), nothing.data()}) {
    bucket.items[0][0].slots = slots;
    for (uint32_t stage = 0; stage < 4; ++stage) {
      EXPECT_EQ(group->run_stage(bucket, stage), OCTAVO_INVALID);
      expect_error("run_stage \"w0\": expected its gradient slot, found null");
    }
  }
}

}  // namespace
}  // namespace octavo::test
