// Ranks that are lost, errors of NCCL, deadlines and aborts: who is told, and that nobody waits.
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>

#include "tests/host_adapters/ranks/nccl/world.h"

namespace octavo::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class NcclFailures : public testing::Test {
 protected:
  void SetUp() override {
    for (cudaStream_t &s : streams)
      ASSERT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
  }
  void open(uint32_t deadline_ms) {
    world.deadline_ms = deadline_ms;
    for (const octavo_status s : world.open()) ASSERT_EQ(s, OCTAVO_OK) << world.listener(0).first();
  }
  void TearDown() override {
    world.close();
    EXPECT_EQ(fake().violations, 0) << fake().violation.load();
    EXPECT_EQ(fake().alive, 0);
    EXPECT_EQ(cuda_on_cpu::events_alive(), 0);
    for (const cudaStream_t s : streams) cudaStreamDestroy(s);
  }
  octavo_status gather(uint32_t rank) {
    const octavo_collective &c = *world.collective(rank);
    return c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_U8, "abcd", 4, memory[rank], 12,
                 streams[rank]);
  }
  octavo_status gather_until_known(uint32_t rank) {
    octavo_status status = gather(rank);
    for (int i = 0; i < 2000 && status == OCTAVO_OK; ++i) {
      usleep(1000);
      status = octavo_nccl_check(world.get(rank));
    }
    return status;
  }
  // Every verb, after a failure: at once, with its reason.
  void expect_refused(uint32_t rank, const char *reason) {
    const int before = fake().operations;
    const auto began = std::chrono::steady_clock::now();
    const octavo_collective &c = *world.collective(rank);
    EXPECT_EQ(gather(rank), OCTAVO_FAILED_DEVICE);
    EXPECT_THAT(world.listener(rank).last(), HasSubstr("all_gather: not started, since the"));
    EXPECT_THAT(world.listener(rank).last(), HasSubstr(reason));
    EXPECT_THAT(world.listener(rank).last(), HasSubstr("with a new id"));
    EXPECT_EQ(c.broadcast(c.ctx, 0, memory[rank], 4, nullptr), OCTAVO_FAILED_DEVICE);
    EXPECT_EQ(octavo_nccl_check(world.get(rank)), OCTAVO_FAILED_DEVICE);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
    EXPECT_EQ(fake().operations, before);
  }
  NcclWorld world{3};
  char memory[3][12] = {};
  cudaStream_t streams[3] = {};
};

// Rank 2 makes no call: the others' calls are in progress until the deadline, and then fail.
TEST_F(NcclFailures, rank_that_makes_no_call) {
  open(500);
  EXPECT_THAT(world.each([&](uint32_t rank) { return rank == 2 ? OCTAVO_OK : gather(rank); }),
              ElementsAre(OCTAVO_FAILED_DEVICE, OCTAVO_FAILED_DEVICE, OCTAVO_OK));
  for (const uint32_t rank : {0u, 1u}) {
    std::string text = "all_gather of 4 bytes: rank ";
    text += std::to_string(rank);
    text +=
        " of 3: expected an end within 500 ms, found it pending: another rank is gone, or its "
        "calls "
        "differ from this rank's; end the job or open the communicators again";
    EXPECT_THAT(world.listener(rank).texts(), ElementsAre(text));
    expect_refused(rank, text.c_str());
  }
  EXPECT_EQ(fake().aborts, 2);
}

// Enqueued on every rank, and never over: the watching thread finds it, no call is there to.
TEST_F(NcclFailures, operation_that_never_ends) {
  fake().stalls_at = 1;  // after the one of open
  open(500);
  EXPECT_THAT(world.each([&](uint32_t rank) { return gather_until_known(rank); }),
              Each(octavo_status{OCTAVO_FAILED_DEVICE}));
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(world.listener(rank).first(), HasSubstr("all_gather of 4 bytes: rank"));
    expect_refused(rank, "expected an end within 500 ms");
  }
  EXPECT_EQ(fake().aborts, 3);
}

// As above, but NCCL notices: that comes before the deadline.
TEST_F(NcclFailures, peer_that_nccl_misses) {
  fake().stalls_at = 1;
  fake().stall_error = cuda::nccl::kRemoteError;
  open(60000);
  EXPECT_THAT(world.each([&](uint32_t rank) { return gather_until_known(rank); }),
              Each(octavo_status{OCTAVO_FAILED_DEVICE}));
  EXPECT_THAT(
      world.listener(1).first(),
      HasSubstr("all_gather: rank 1 of 3: ncclCommGetAsyncError answered ncclRemoteError: a "
                "text of the fake (the last error of the fake); another rank is gone"));
  expect_refused(1, "ncclRemoteError");
}

// A rank that aborts takes those with it that wait for it, as far as NCCL tells them.
TEST_F(NcclFailures, abort_reaches_the_others) {
  fake().aborts_are_seen = true;
  open(60000);
  EXPECT_THAT(world.each([&](uint32_t rank) -> octavo_status {
    if (rank != 2) return gather(rank);
    usleep(20000);
    octavo_nccl_abort(world.get(2));
    return OCTAVO_FAILED_DEVICE;
  }),
              Each(octavo_status{OCTAVO_FAILED_DEVICE}));
  EXPECT_THAT(world.listener(0).first(), HasSubstr("ncclAllGather answered ncclRemoteError"));
  expect_refused(2, "the host called octavo_nccl_abort");
}

// From another thread, while the call waits: it comes back, long before the deadline.
TEST_F(NcclFailures, abort_while_a_call_waits) {
  open(60000);
  std::thread other([&] {
    usleep(30000);
    octavo_nccl_abort(world.get(0));
    octavo_nccl_abort(world.get(0));  // once more is once
  });
  EXPECT_EQ(gather(0), OCTAVO_FAILED_DEVICE);
  other.join();
  EXPECT_THAT(world.listener(0).first(),
              HasSubstr("all_gather: given up, since the communicator of rank 0 of 3 has failed "
                        "(the host called octavo_nccl_abort)"));
  EXPECT_EQ(fake().aborts, 1);
  expect_refused(0, "octavo_nccl_abort");
  for (const uint32_t rank : {1u, 2u}) octavo_nccl_abort(world.get(rank));
}

// NCCL's call itself hangs, under the lock of the communicator: the abort goes past it.
TEST_F(NcclFailures, call_of_nccl_that_hangs) {
  fake().blocks_at = 1;
  open(500);
  EXPECT_THAT(world.each([&](uint32_t rank) { return gather(rank); }),
              Each(octavo_status{OCTAVO_FAILED_DEVICE}));
  EXPECT_THAT(world.listener(0).first(),
              HasSubstr("all_gather: rank 0 of 3: expected an end within 500 ms"));
  EXPECT_EQ(fake().aborts, 3);
}

TEST_F(NcclFailures, abort_of_a_call_of_nccl_that_hangs) {
  fake().blocks_at = 1;
  open(60000);
  EXPECT_THAT(world.each([&](uint32_t rank) {
    std::thread other([&, rank] {
      usleep(20000);
      octavo_nccl_abort(world.get(rank));
    });
    const octavo_status status = gather(rank);
    other.join();
    return status;
  }),
              Each(octavo_status{OCTAVO_FAILED_DEVICE}));
  EXPECT_EQ(fake().aborts, 3);
}

// Each answer of NCCL has one status, and ends the communicator.
TEST_F(NcclFailures, every_answer_of_nccl) {
  struct Case {
    int result;
    octavo_status status;
    const char *name;
  };
  for (const Case &c :
       {Case{1, OCTAVO_FAILED_DEVICE, "ncclUnhandledCudaError"},
        Case{2, OCTAVO_NO_RESOURCE, "ncclSystemError"},
        Case{3, OCTAVO_INTERNAL, "ncclInternalError"},
        Case{4, OCTAVO_INVALID, "ncclInvalidArgument"}, Case{5, OCTAVO_INVALID, "ncclInvalidUsage"},
        Case{6, OCTAVO_FAILED_DEVICE, "ncclRemoteError"},
        Case{77, OCTAVO_FAILED_DEVICE, "an unknown ncclResult_t"}}) {
    NcclWorld one(1);
    fake().fails_at = 1;
    fake().fail_result = c.result;
    ASSERT_THAT(one.open(), Each(octavo_status{OCTAVO_OK}));
    const octavo_collective &table = *one.collective(0);
    float value = 1;
    EXPECT_EQ(table.run(table.ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, &value, 1, &value,
                        1, nullptr),
              c.status);
    std::string text = "all_reduce_sum: rank 0 of 1: ncclAllGather answered ";
    text += c.name;
    EXPECT_THAT(one.listener(0).first(), HasSubstr(text));
    EXPECT_EQ(octavo_nccl_check(one.get(0)), OCTAVO_FAILED_DEVICE);
    EXPECT_EQ(fake().aborts, 1);
    EXPECT_EQ(value, 1);
  }
}

TEST_F(NcclFailures, failure_of_a_group) {
  fake().fails_at = 1;
  fake().fail_result = cuda::nccl::kInternalError;
  open(60000);
  EXPECT_THAT(world.run([&](uint32_t rank, const octavo_collective &c) -> octavo_status {
    return c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_TO_ALL, OCTAVO_U8, "abc", 3, memory[rank], 3,
                 nullptr);
  }),
              Each(octavo_status{OCTAVO_INTERNAL}));
  EXPECT_THAT(world.listener(0).first(),
              HasSubstr("all_to_all: rank 0 of 3: a group of ncclSend and ncclRecv answered"));
}

// A group that fails in the middle is closed: the next call of this thread is not inside of it.
TEST(NcclFailuresOfOne, failure_inside_of_a_group) {
  NcclWorld one(1);
  ASSERT_THAT(one.open(), Each(octavo_status{OCTAVO_OK})) << one.listener(0).first();
  fake().send_result = cuda::nccl::kSystemError;
  char data = 'a', out = 0;
  const octavo_collective &c = *one.collective(0);
  const auto all_to_all = [&] {
    return c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_TO_ALL, OCTAVO_U8, &data, 1, &out, 1, nullptr);
  };
  EXPECT_EQ(all_to_all(), OCTAVO_NO_RESOURCE);
  fake().send_result = 0;
  one.close();
  ASSERT_THAT(one.open(), Each(octavo_status{OCTAVO_OK})) << one.listener(0).last();
  const octavo_collective &again = *one.collective(0);
  EXPECT_EQ(
      again.run(again.ctx, OCTAVO_COLLECTIVE_ALL_TO_ALL, OCTAVO_U8, &data, 1, &out, 1, nullptr),
      OCTAVO_OK)
      << one.listener(0).last();
  EXPECT_EQ(out, 'a');
  one.close();
  EXPECT_EQ(fake().violations, 0) << fake().violation.load();
}

// Slow is not stuck: operations that end one after another have the deadline each.
TEST_F(NcclFailures, deadline_begins_anew_with_every_end) {
  open(600);
  EXPECT_THAT(world.each([&](uint32_t rank) -> octavo_status {
    for (int i = 0; i < 5; ++i) {
      if (rank == 0) usleep(200000);
      const octavo_status status = gather(rank);
      if (status != OCTAVO_OK) return status;
    }
    return OCTAVO_OK;
  }),
              Each(octavo_status{OCTAVO_OK}));
  EXPECT_THAT(world.listener(1).texts(), SizeIs(0));
}

// More operations than there are events: the last event stands for the rest.
TEST_F(NcclFailures, many_pending_operations) {
  open(60000);
  char all[3][12] = {};
  for (const cudaStream_t s : streams) cuda_on_cpu::hold_stream(s);
  EXPECT_THAT(world.run([&](uint32_t rank, const octavo_collective &c) -> octavo_status {
    for (int i = 0; i < 100; ++i) {
      const octavo_status status = c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_U8, "abcd", 4,
                                         all[rank], 12, streams[rank]);
      if (status != OCTAVO_OK) return status;
    }
    return OCTAVO_OK;
  }),
              Each(octavo_status{OCTAVO_OK}));
  for (const cudaStream_t s : streams) cuda_on_cpu::release_stream(s);
  EXPECT_THAT(world.run([&](uint32_t rank, const octavo_collective &c) -> octavo_status {
    return c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_U8, "abcd", 4, all[rank], 12,
                 streams[rank]);
  }),
              Each(octavo_status{OCTAVO_OK}));
  world.close();
  EXPECT_EQ(fake().destroys, 3);  // ended properly: nothing was pending
}

}  // namespace
}  // namespace octavo::test
