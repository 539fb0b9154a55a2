// Pending: which operation is the oldest, and since when nothing has ended.
#include "host_adapters/ranks/nccl/pending.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <thread>

#include "tests/support/cuda_on_cpu/events.h"
#include "tests/support/cuda_on_cpu/streams.h"

namespace octavo::cuda::nccl {
namespace {

class PendingTest : public testing::Test {
 protected:
  PendingTest() {
    for (cudaStream_t &s : streams) {
      cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
      cuda_on_cpu::hold_stream(s);
    }
    EXPECT_EQ(pending.open(), cudaSuccess);
  }
  ~PendingTest() override {
    pending.close();
    for (const cudaStream_t s : streams) cudaStreamDestroy(s);
    EXPECT_EQ(cuda_on_cpu::events_alive(), 0);
  }
  cudaStream_t streams[2];
  Pending pending;
};

TEST_F(PendingTest, time_begins_anew_with_every_end) {
  EXPECT_EQ(pending.add({"first", 1}, streams[0]), cudaSuccess);
  EXPECT_EQ(pending.add({"second", 2}, streams[1]), cudaSuccess);
  usleep(20000);
  EXPECT_EQ(pending.look(), cudaSuccess);
  const Clock::duration before = pending.stalled();
  EXPECT_GE(before, std::chrono::milliseconds(20));
  cuda_on_cpu::release_stream(streams[0]);
  cuda_on_cpu::settle();
  const Clock::time_point ended = Clock::now();
  EXPECT_EQ(pending.look(), cudaSuccess);
  const Clock::duration after = pending.stalled();  // before the next look at the clock
  EXPECT_LE(after, Clock::now() - ended);
  EXPECT_STREQ(pending.oldest().verb, "second");
  EXPECT_EQ(pending.oldest().bytes, 2u);
  EXPECT_FALSE(pending.empty());
  cuda_on_cpu::release_stream(streams[1]);
  cuda_on_cpu::settle();
  EXPECT_EQ(pending.look(), cudaSuccess);
  EXPECT_TRUE(pending.empty());
}

// With more operations than events, the newest event moves on, and no older one is lost.
TEST_F(PendingTest, more_operations_than_events) {
  EXPECT_EQ(pending.add({"first", 1}, streams[0]), cudaSuccess);
  for (uint64_t i = 0; i < 100; ++i)
    EXPECT_EQ(pending.add({"later", 2 + i}, streams[1]), cudaSuccess);
  cuda_on_cpu::release_stream(streams[1]);
  cuda_on_cpu::settle();
  EXPECT_EQ(pending.look(), cudaSuccess);
  EXPECT_FALSE(pending.empty());
  EXPECT_STREQ(pending.oldest().verb, "first");
  cuda_on_cpu::release_stream(streams[0]);
  cuda_on_cpu::settle();
  EXPECT_EQ(pending.look(), cudaSuccess);
  EXPECT_TRUE(pending.empty());
}

// A stream waits for what came before on another one, and for nothing on its own.
TEST_F(PendingTest, order_between_streams) {
  const int before = cuda_on_cpu::event_waits();
  EXPECT_EQ(pending.order(streams[0]), cudaSuccess);
  EXPECT_EQ(pending.add({"first", 1}, streams[0]), cudaSuccess);
  EXPECT_EQ(pending.order(streams[0]), cudaSuccess);
  EXPECT_EQ(cuda_on_cpu::event_waits(), before);
  EXPECT_EQ(pending.order(streams[1]), cudaSuccess);
  EXPECT_EQ(cuda_on_cpu::event_waits(), before + 1);
}

// A stream that is destroyed leaves its handle to the next one, which waits all the same.
TEST_F(PendingTest, order_behind_a_stream_that_is_gone) {
  EXPECT_EQ(pending.add({"first", 1}, streams[0]), cudaSuccess);
  const cudaStream_t gone = streams[0];
  EXPECT_EQ(cudaStreamDestroy(gone), cudaSuccess);
  EXPECT_EQ(cudaStreamCreateWithFlags(&streams[0], cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(streams[0], gone);
  const int before = cuda_on_cpu::event_waits();
  EXPECT_EQ(pending.order(streams[0]), cudaSuccess);
  EXPECT_EQ(cuda_on_cpu::event_waits(), before + 1);
}

// The watcher is a thread of its own, and a capture in global mode ends by its queries.
TEST_F(PendingTest, looking_leaves_captures_alone) {
  EXPECT_EQ(pending.add({"first", 1}, streams[0]), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(streams[1], cudaStreamCaptureModeGlobal), cudaSuccess);
  std::thread([this] { EXPECT_EQ(pending.look(), cudaSuccess); }).join();
  EXPECT_EQ(pending.look(), cudaSuccess);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(streams[1], &graph), cudaSuccess);
  cudaGraphDestroy(graph);
}

}  // namespace
}  // namespace octavo::cuda::nccl
