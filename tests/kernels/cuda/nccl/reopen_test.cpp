// After a failure the same ranks go on with a new communicator.
#include <gmock/gmock.h>
#include <unistd.h>

#include "tests/kernels/cuda/nccl/world.h"

namespace octavo::test {
namespace {

using testing::Each;
using testing::HasSubstr;

class NcclReopen : public testing::Test {
 protected:
  void SetUp() override {
    for (const octavo_status s : world.open()) ASSERT_EQ(s, OCTAVO_OK) << world.listener(0).first();
  }
  void TearDown() override {
    world.close();
    EXPECT_EQ(fake().violations, 0) << fake().violation.load();
    EXPECT_EQ(fake().alive, 0);
    EXPECT_EQ(cuda_on_cpu::events_alive(), 0);
    EXPECT_EQ(cuda_on_cpu::streams_alive(), 0);
  }
  std::vector<octavo_status> sum(cudaStream_t stream = nullptr) {
    return world.run([&](uint32_t rank, const octavo_collective &c) -> octavo_status {
      value[rank] = static_cast<float>(rank + 1);
      return c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, &value[rank], 1,
                   &value[rank], 1, stream);
    });
  }
  std::vector<octavo_status> reopen() {
    world.new_id();
    return world.each(
        [&](uint32_t rank) { return octavo_nccl_reopen(world.get(rank), &world.id, nullptr); });
  }
  void abort_all() {
    for (uint32_t rank = 0; rank < 3; ++rank) octavo_nccl_abort(world.get(rank));
  }
  NcclWorld world{3};
  float value[3] = {};
};

TEST_F(NcclReopen, goes_on_with_the_same_table) {
  for (int round = 0; round < 3; ++round) {
    const octavo_collective *before = world.collective(1);
    EXPECT_THAT(sum(), Each(octavo_status{OCTAVO_OK}));
    EXPECT_THAT(value, Each(6.0f));
    abort_all();
    EXPECT_THAT(sum(), Each(octavo_status{OCTAVO_DEVICE}));
    EXPECT_THAT(reopen(), Each(octavo_status{OCTAVO_OK})) << world.listener(0).last();
    EXPECT_EQ(octavo_nccl_check(world.get(1)), OCTAVO_OK);
    EXPECT_EQ(world.collective(1), before);
  }
  EXPECT_THAT(sum(), Each(octavo_status{OCTAVO_OK}));
  EXPECT_THAT(value, Each(6.0f));
}

// What was pending when the communicator failed is not waited for again, and its text is not told
// again.
TEST_F(NcclReopen, after_a_lost_peer) {
  fake().stalls_at = 1;
  fake().stall_error = cuda::nccl::kRemoteError;
  sum();
  for (uint32_t rank = 0; rank < 3; ++rank)
    while (octavo_nccl_check(world.get(rank)) == OCTAVO_OK) usleep(1000);
  fake().stalls_at = -1;
  EXPECT_THAT(reopen(), Each(octavo_status{OCTAVO_OK})) << world.listener(0).last();
  EXPECT_THAT(sum(), Each(octavo_status{OCTAVO_OK}));
  EXPECT_THAT(value, Each(6.0f));
}

// The host's own work holds the stream: what was given up there does not count for the new one.
TEST(NcclReopenOfOne, while_a_stream_is_still_held) {
  NcclWorld busy(1);
  busy.deadline_ms = 300;
  ASSERT_THAT(busy.open(), Each(octavo_status{OCTAVO_OK})) << busy.listener(0).first();
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cuda_on_cpu::hold_stream(stream);
  char data = 1;
  const octavo_collective &c = *busy.collective(0);
  EXPECT_EQ(c.broadcast(c.ctx, 0, &data, 1, stream), OCTAVO_OK);
  while (octavo_nccl_check(busy.get(0)) == OCTAVO_OK) usleep(1000);
  EXPECT_THAT(busy.listener(0).first(), HasSubstr("broadcast of 1 bytes: rank 0 of 1: expected"));
  busy.new_id();
  EXPECT_EQ(octavo_nccl_reopen(busy.get(0), &busy.id, nullptr), OCTAVO_OK)
      << busy.listener(0).last();
  EXPECT_EQ(octavo_nccl_check(busy.get(0)), OCTAVO_OK);
  cuda_on_cpu::release_stream(stream);
  busy.close();
  EXPECT_EQ(fake().violations, 0) << fake().violation.load();
  cudaStreamDestroy(stream);
}

TEST_F(NcclReopen, of_one_that_works) {
  EXPECT_EQ(octavo_nccl_reopen(world.get(0), &world.id, nullptr), OCTAVO_WRONG_STATE);
  EXPECT_EQ(
      world.listener(0).last(),
      "octavo_nccl_reopen: expected a communicator that has failed, found one that works; end "
      "it on every rank with octavo_nccl_abort first");
  EXPECT_THAT(sum(), Each(octavo_status{OCTAVO_OK}));
}

TEST_F(NcclReopen, that_fails_can_be_tried_again) {
  abort_all();
  fake().init_result = cuda::nccl::kSystemError;
  EXPECT_THAT(reopen(), Each(octavo_status{OCTAVO_RESOURCE}));
  EXPECT_THAT(sum(), Each(octavo_status{OCTAVO_DEVICE}));
  EXPECT_THAT(world.listener(2).last(), HasSubstr("ncclCommInitRankConfig answered"));
  fake().init_result = 0;
  EXPECT_EQ(octavo_nccl_reopen(world.get(0), nullptr, nullptr), OCTAVO_INVALID);
  EXPECT_THAT(world.listener(0).last(), HasSubstr("expected a new id, as it was opened"));
  EXPECT_THAT(reopen(), Each(octavo_status{OCTAVO_OK})) << world.listener(0).last();
  EXPECT_THAT(sum(), Each(octavo_status{OCTAVO_OK}));
}

}  // namespace
}  // namespace octavo::test
