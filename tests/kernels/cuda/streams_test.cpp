/* Lazy streams of the executor: what nothing orders comes in any order, and what is ordered does
 * not. */
#include "tests/kernels/cuda/streams_case.h"
#include "tests/support/cuda_on_cpu/events.h"

namespace octavo::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;

using CudaStreams = StreamsTest;

bool is_poison(float value) {
  return value != value;
}

TEST_F(CudaStreams, nothing_runs_before_somebody_waits) {
  be_lazy(1);
  float *x = take();
  ASSERT_EQ(put(x, x, 1, 1, streams[0]), cudaSuccess);
  EXPECT_EQ(*x, 1.0f);
  ASSERT_EQ(cudaStreamSynchronize(streams[0]), cudaSuccess);
  EXPECT_EQ(*x, 2.0f);
  ASSERT_EQ(put(x, x, 1, 1, streams[0]), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(*x, 3.0f);
}

TEST_F(CudaStreams, two_streams_come_in_both_orders) {
  float *x = take();
  EXPECT_THAT(over_seeds([&] {
                *x = 1;
                put(x, x, 3, 0, streams[0]);
                put(x, x, 1, 1, streams[1]);
                cudaDeviceSynchronize();
                return *x;
              }),
              AllOf(Contains(4.0f), Contains(6.0f)));
}

TEST_F(CudaStreams, a_stream_is_in_order_and_an_event_orders_two) {
  float *x = take();
  EXPECT_THAT(over_seeds([&] {
                *x = 1;
                put(x, x, 3, 0, streams[0]);
                put(x, x, 1, 5, streams[0]);
                cudaEventRecord(events[0], streams[0]);
                cudaStreamWaitEvent(streams[1], events[0], 0);
                put(x, x, 10, 0, streams[1]);
                cudaStreamSynchronize(streams[1]);
                return *x;
              }),
              Each(80.0f));
}

TEST_F(CudaStreams, synchronizing_one_stream_says_nothing_of_another) {
  float *x = take();
  EXPECT_THAT(over_seeds([&] {
                cuda_on_cpu::settle();
                *x = 1;
                put(x, x, 1, 1, streams[0]);
                cudaStreamSynchronize(streams[1]);
                put(x, x, 1, 0, streams[1]);
                cudaStreamSynchronize(streams[1]);
                const float value = *x;
                cudaStreamSynchronize(streams[0]);
                return value;
              }),
              AllOf(Contains(1.0f), Contains(2.0f)));
}

TEST_F(CudaStreams, legacy_stream_waits_for_blocking_ones_only) {
  float *x = take();
  const auto over = [&](cudaStream_t first, cudaStream_t second) {
    return over_seeds([&] {
      *x = 1;
      put(x, x, 3, 0, first);
      put(x, x, 1, 1, second);
      cudaDeviceSynchronize();
      return *x;
    });
  };
  EXPECT_THAT(over(blocking[0], nullptr), Each(4.0f));
  EXPECT_THAT(over(nullptr, blocking[0]), Each(4.0f));
  EXPECT_THAT(over(cudaStreamPerThread, nullptr), Each(4.0f));
  EXPECT_THAT(over(streams[0], nullptr), AllOf(Contains(4.0f), Contains(6.0f)));
  EXPECT_THAT(over(nullptr, streams[0]), AllOf(Contains(4.0f), Contains(6.0f)));
  EXPECT_THAT(over(blocking[0], blocking[1]), AllOf(Contains(4.0f), Contains(6.0f)));
  EXPECT_THAT(over(blocking[0], cudaStreamPerThread), AllOf(Contains(4.0f), Contains(6.0f)));
}

TEST_F(CudaStreams, an_event_that_is_asked_comes_sometime) {
  be_lazy(3);
  float *x = take();
  for (int i = 0; i < 20; ++i) put(x, x, 1, 1, streams[0]);
  ASSERT_EQ(cudaEventRecord(events[0], streams[0]), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(events[0]), cudaErrorNotReady);
  int questions = 0;
  while (cudaEventQuery(events[0]) == cudaErrorNotReady) ASSERT_LT(++questions, 100);
  EXPECT_EQ(*x, 21.0f);
  EXPECT_EQ(cudaEventSynchronize(events[0]), cudaSuccess);
}

/* What a stream holds runs though it is destroyed, and its handle comes again. */
TEST_F(CudaStreams, a_handle_that_comes_again_is_another_stream) {
  float *x = take();
  EXPECT_THAT(over_seeds([&] {
                cudaStream_t first = nullptr;
                cudaStream_t second = nullptr;
                cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
                *x = 1;
                put(x, x, 3, 0, first);
                cudaStreamDestroy(first);
                cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
                EXPECT_EQ(second, first);
                put(x, x, 1, 1, second);
                cudaDeviceSynchronize();
                cudaStreamDestroy(second);
                return *x;
              }),
              AllOf(Contains(4.0f), Contains(6.0f)));
  EXPECT_EQ(put(x, x, 1, 0, reinterpret_cast<cudaStream_t>(x)), cudaErrorInvalidResourceHandle);
}

TEST_F(CudaStreams, pageable_memory_is_read_in_the_call_and_pinned_memory_later) {
  be_lazy(1);
  float *x = take(), *y = take();
  void *pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, sizeof(float)), cudaSuccess);
  float pageable = 5;
  *static_cast<float *>(pinned) = 5;
  ASSERT_EQ(cudaMemcpyAsync(x, &pageable, 4, cudaMemcpyDefault, streams[0]), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(y, pinned, 4, cudaMemcpyDefault, streams[0]), cudaSuccess);
  pageable = *static_cast<float *>(pinned) = 7;
  ASSERT_EQ(cudaStreamSynchronize(streams[0]), cudaSuccess);
  EXPECT_EQ(*x, 5.0f);
  EXPECT_EQ(*y, 7.0f);
  ASSERT_EQ(cudaMemcpyAsync(&pageable, x, 4, cudaMemcpyDefault, streams[0]), cudaSuccess);
  EXPECT_EQ(pageable, 5.0f);
  ASSERT_EQ(cudaMemcpyAsync(pinned, x, 4, cudaMemcpyDefault, streams[0]), cudaSuccess);
  EXPECT_EQ(*static_cast<float *>(pinned), 7.0f);
  EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(CudaStreams, freed_memory_is_poison) {
  float *x = take(), *y = take();
  const auto values = over_seeds([&] {
    void *freed = nullptr;
    cudaMallocAsync(&freed, sizeof(float), streams[0]);
    put(static_cast<float *>(freed), x, 1, 0, streams[0]);
    cudaEventRecord(events[0], streams[0]);
    cudaStreamWaitEvent(streams[1], events[0], 0);
    put(y, static_cast<float *>(freed), 1, 0, streams[1]); /* nothing says that it is over */
    cudaFreeAsync(freed, streams[0]);
    cudaDeviceSynchronize();
    return *y;
  });
  EXPECT_THAT(values, AllOf(Contains(1.0f), Contains(testing::Truly(is_poison))));
  cuda_on_cpu::script().lazy = 0;
  void *fresh = nullptr;
  ASSERT_EQ(cudaMalloc(&fresh, sizeof(float)), cudaSuccess);
  EXPECT_TRUE(is_poison(*static_cast<float *>(fresh))) << "fresh memory";
  EXPECT_EQ(cudaFree(fresh), cudaSuccess);
  EXPECT_EQ(cudaFree(fresh), cudaErrorInvalidValue);
}

/* cudaFree waits for all that may still use the memory. */
TEST_F(CudaStreams, free_waits) {
  be_lazy(2);
  float *x = take();
  void *data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, sizeof(float)), cudaSuccess);
  put(static_cast<float *>(data), x, 4, 0, streams[0]);
  put(x, static_cast<float *>(data), 1, 0, streams[0]);
  ASSERT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(*x, 4.0f);
}

TEST(CudaStreamsDeathTest, freed_memory_that_is_written) {
  cuda_on_cpu::reset();
  EXPECT_DEATH(
      {
        void *data = nullptr;
        cudaMalloc(&data, sizeof(float));
        cudaFree(data);
        put(static_cast<float *>(data), static_cast<float *>(data), 0, 1, nullptr);
        *static_cast<float *>(data) = 3;
        cuda_on_cpu::reset();
      },
      "freed ones at .* was written");
}

}  // namespace
}  // namespace octavo::test
