// octavo_reduction_bytes, and the plans that octavo_reduce_gradients refuses before a stage runs.
#include <gmock/gmock.h>

#include "octavo/draft/reduction.h"
#include "tests/support/sharded_runs.h"

namespace octavo::test {
namespace {

class ReducePlanTest : public ShardedTest {
 protected:
  void open(const std::string &fault) {
    r = open_run(fault);
    r->seal({{"a", 2, 2}, {"b", 2, 2}});
  }
  octavo_status bytes(uint32_t world, uint64_t count = 2) {
    return octavo_reduction_bytes(r->run.get(), ids, count, world, &buffer, &state_bytes);
  }
  octavo_status reduce(uint32_t world) {
    const octavo_collective c = counted(world);
    return octavo_reduce_gradients(r->run.get(), items, 2, &c, send, recv, state, nullptr);
  }

  std::unique_ptr<ShardedRun> r;
  const uint32_t ids[2] = {0, 1};
  const octavo_parameter_item items[2] = {{0, 0, nullptr, nullptr}, {1, 0, nullptr, nullptr}};
  uint64_t buffer = 77, state_bytes = 77;
  char memory[2][4096] = {};
  void *send = memory[0];
  void *recv = memory[1];
  uint64_t stages[2] = {};
  void *state = stages;
};

// The longest of 5 floats, 4 W bytes and 10 W halves.
TEST_F(ReducePlanTest, bytes_are_those_of_the_longest_stage) {
  open("none");
  for (uint32_t world : {1u, 2u, 3u, 64u}) {
    ASSERT_EQ(bytes(world), OCTAVO_OK) << r->error();
    EXPECT_EQ(buffer, std::max<uint64_t>(20, 20 * world));
    EXPECT_EQ(state_bytes, 16u);
  }
  ASSERT_EQ(bytes(1, 0), OCTAVO_OK);
  EXPECT_EQ(state_bytes, 8u);
}

TEST_F(ReducePlanTest, bytes_of_a_stage_without_collective_count) {
  open("long_none");
  ASSERT_EQ(bytes(2), OCTAVO_OK) << r->error();
  EXPECT_EQ(buffer, 1000u);
}

TEST_F(ReducePlanTest, stages_and_collectives_run_in_turn) {
  open("none");
  for (int repetition = 1; repetition <= 3; ++repetition) {
    ASSERT_EQ(reduce(3), OCTAVO_OK) << r->error();
    EXPECT_EQ(stages[0], static_cast<uint64_t>(4 * repetition));
    EXPECT_EQ(calls, 3 * repetition);
  }
}

struct BadPlan {
  const char *fault;
  octavo_status status;
  std::string text;
};

TEST_F(ReducePlanTest, bad_plans_are_refused_before_the_first_stage) {
  const BadPlan plans[] = {
      {"unknown_collective", OCTAVO_UNSUPPORTED,
       "stage 2 requests collective 6, unknown to this host"},
      {"unknown_dtype", OCTAVO_UNSUPPORTED, "stage 2 exchanges dtype 25443, unknown to this host"},
      {"too_long", OCTAVO_INTERNAL,
       "stage 2: expected a buffer of fewer than 2^63 bytes, found 4611686018427387903 elements of "
       "4 bytes: correct the backend"},
      {"gather_counts", OCTAVO_INTERNAL,
       "stage 2: 3 elements to send and 10 to receive do not fit collective 4 of 3 ranks: correct "
       "the backend"},
      {"all_to_all_counts", OCTAVO_INTERNAL,
       "stage 2: 1 elements to send and 1 to receive do not fit collective 3 of 3 ranks: correct "
       "the backend"},
      {"scatter_counts", OCTAVO_INTERNAL,
       "stage 2: 10 elements to send and 3 to receive do not fit collective 5 of 3 ranks: correct "
       "the backend"},
      {"reduce_counts", OCTAVO_INTERNAL,
       "stage 2: 3 elements to send and 4 to receive do not fit collective 2 of 3 ranks: correct "
       "the backend"}};
  for (const BadPlan &plan : plans) {
    open(plan.fault);
    EXPECT_EQ(bytes(3), plan.status) << plan.fault;
    EXPECT_EQ(r->error(), plan.text);
    EXPECT_EQ(buffer, 77u);
    EXPECT_EQ(state_bytes, 77u);
    EXPECT_EQ(reduce(3), plan.status) << plan.fault;
    EXPECT_EQ(r->error(), plan.text);
    EXPECT_EQ(stages[0], 0u);
    EXPECT_EQ(calls, 0);
  }
}

TEST_F(ReducePlanTest, refusal_of_the_backend_comes_back) {
  open("plan_refuses");
  EXPECT_EQ(bytes(2), OCTAVO_NO_RESOURCE);
  EXPECT_EQ(buffer, 77u);
  EXPECT_EQ(reduce(2), OCTAVO_NO_RESOURCE);
  EXPECT_EQ(stages[0], 0u);
}

TEST_F(ReducePlanTest, missing_buffers) {
  open("none");
  void **const buffers[] = {&send, &recv, &state};
  const char *const texts[] = {"send of 40", "recv of 40", "state of 16"};
  for (int i = 0; i < 3; ++i) {
    void *const kept = *buffers[i];
    *buffers[i] = nullptr;
    EXPECT_EQ(reduce(2), OCTAVO_INVALID);
    EXPECT_EQ(r->error(), std::string("octavo_reduce_gradients: expected ") + texts[i] +
                              " bytes, found null: octavo_reduction_bytes has the sizes");
    *buffers[i] = kept;
  }
  EXPECT_EQ(stages[0], 0u);
}

TEST_F(ReducePlanTest, arguments_of_reduction_bytes) {
  open("none");
  octavo_run *run = r->run.get();
  EXPECT_EQ(bytes(0), OCTAVO_INVALID);
  EXPECT_EQ(r->error(), "octavo_reduction_bytes: expected at least 1 rank, found 0");
  EXPECT_EQ(octavo_reduction_bytes(nullptr, ids, 2, 1, &buffer, &state_bytes), OCTAVO_INVALID);
  EXPECT_EQ(octavo_reduction_bytes(run, nullptr, 2, 1, &buffer, &state_bytes), OCTAVO_INVALID);
  EXPECT_EQ(octavo_reduction_bytes(run, ids, 2, 1, nullptr, &state_bytes), OCTAVO_INVALID);
  EXPECT_EQ(octavo_reduction_bytes(run, ids, 2, 1, &buffer, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(octavo_reduction_bytes(run, nullptr, 0, 1, &buffer, &state_bytes), OCTAVO_OK);
}

TEST_F(ReducePlanTest, backend_without_gradients) {
  Request request;
  request.set("plugins.trust", "dev").set("fp8.backend", "te");
  RunPtr run;
  ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
  EXPECT_EQ(octavo_reduction_bytes(run.get(), ids, 2, 2, &buffer, &state_bytes),
            OCTAVO_UNSUPPORTED);
  EXPECT_EQ(request.host.error(),
            "the chosen backend has no octavo.gradients/1: its gradients are the host's own, "
            "reduce them there");
}

}  // namespace
}  // namespace octavo::test
