/* Captures of the executor, as the manual of the CUDA runtime has them. */
#include <functional>
#include <thread>

#include "tests/kernels/cuda/streams_case.h"

namespace octavo::test {
namespace {

using CudaCapture = StreamsTest;

void never_launched_kernel(float *) {}

cudaError_t load_code(float *x, cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = config.blockDim = dim3(1);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, never_launched_kernel, x);
}

/* Two inputs and fresh ones for each replay; one branch of another stream. */
TEST_F(CudaCapture, replays_compute_with_fresh_inputs) {
  float *x = take(), *y = take(), *z = take();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal), cudaSuccess);
  put(y, x, 2, 0, streams[0]);
  ASSERT_EQ(cudaEventRecord(events[0], streams[0]), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(streams[1], events[0], 0), cudaSuccess);
  put(z, y, 1, 5, streams[1]);
  put(y, y, 1, 0, streams[0]);
  ASSERT_EQ(cudaEventRecord(events[1], streams[1]), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(streams[0], events[1], 0), cudaSuccess);
  put(z, z, 10, 0, streams[0]);
  ASSERT_EQ(cudaStreamEndCapture(streams[0], &graph), cudaSuccess);
  EXPECT_EQ(*z, 1.0f) << "captured work ran";
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    be_lazy(seed);
    *x = static_cast<float>(seed);
    ASSERT_EQ(cudaGraphLaunch(replay, streams[2]), cudaSuccess);
    put(x, x, 1, 1, streams[2]);
    ASSERT_EQ(cudaGraphLaunch(replay, streams[2]), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(streams[2]), cudaSuccess);
    EXPECT_EQ(*z, 10 * (2 * static_cast<float>(seed + 1) + 5)) << seed;
  }
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
}

/* Branches that nothing orders come in both orders. */
TEST_F(CudaCapture, branches_are_unordered) {
  float *x = take();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(events[0], streams[0]), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(streams[1], events[0], 0), cudaSuccess);
  put(x, x, 3, 0, streams[0]);
  put(x, x, 1, 1, streams[1]);
  ASSERT_EQ(cudaEventRecord(events[1], streams[1]), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(streams[0], events[1], 0), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(streams[0], &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  EXPECT_THAT(over_seeds([&] {
                *x = 1;
                cudaGraphLaunch(replay, streams[0]);
                cudaStreamSynchronize(streams[0]);
                return *x;
              }),
              testing::AllOf(testing::Contains(4.0f), testing::Contains(6.0f)));
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
}

struct Forbidden {
  const char *name;
  bool depends_on_mode; /* else it names the captured stream, or all of them */
  std::function<cudaError_t(float *x, cudaStream_t captured, cudaEvent_t event)> call;
};

const Forbidden kForbidden[] = {
    {"cudaMalloc", true,
     [](float *, cudaStream_t, cudaEvent_t) {
       void *data = nullptr;
       return cudaMalloc(&data, 4);
     }},
    {"cudaMallocHost", true,
     [](float *, cudaStream_t, cudaEvent_t) {
       void *data = nullptr;
       return cudaMallocHost(&data, 4);
     }},
    {"cudaFree", true, [](float *, cudaStream_t, cudaEvent_t) { return cudaFree(nullptr); }},
    {"cudaEventQuery", true,
     [](float *, cudaStream_t, cudaEvent_t event) { return cudaEventQuery(event); }},
    {"cudaEventSynchronize", true,
     [](float *, cudaStream_t, cudaEvent_t event) { return cudaEventSynchronize(event); }},
    {"cudaFuncGetAttributes", true,
     [](float *, cudaStream_t, cudaEvent_t) {
       cudaFuncAttributes attributes;
       return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(put_kernel));
     }},
    {"a first launch", true,
     [](float *x, cudaStream_t, cudaEvent_t) {
       cudaStream_t other = nullptr;
       cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
       const cudaError_t error = load_code(x, other);
       cudaStreamDestroy(other);
       return error;
     }},
    {"cudaStreamSynchronize", false,
     [](float *, cudaStream_t captured, cudaEvent_t) { return cudaStreamSynchronize(captured); }},
    {"cudaDeviceSynchronize", false,
     [](float *, cudaStream_t, cudaEvent_t) { return cudaDeviceSynchronize(); }},
    {"a copy of pageable memory", false,
     [](float *x, cudaStream_t captured, cudaEvent_t) {
       const float value = 1;
       return cudaMemcpyAsync(x, &value, 4, cudaMemcpyDefault, captured);
     }},
};

/* Whether it ends a capture of `mode` when a thread of `thread_mode` makes the call: the capturing
 * one, or another. */
bool is_refused(const Forbidden &f, cudaStreamCaptureMode mode, cudaStreamCaptureMode thread_mode,
                bool is_own) {
  if (!f.depends_on_mode) return true;
  if (thread_mode == cudaStreamCaptureModeRelaxed || mode == cudaStreamCaptureModeRelaxed)
    return false;
  return is_own || (mode == cudaStreamCaptureModeGlobal && thread_mode == mode);
}

TEST_F(CudaCapture, forbidden_calls_end_it_by_the_modes) {
  float *x = take();
  ASSERT_EQ(cudaEventRecord(events[0], streams[1]), cudaSuccess);
  constexpr cudaStreamCaptureMode kModes[] = {
      cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed};
  bool has_loaded = false;
  for (const Forbidden &f : kForbidden) {
    for (const cudaStreamCaptureMode mode : kModes) {
      for (const cudaStreamCaptureMode thread_mode : kModes) {
        for (const bool is_own : {true, false}) {
          const bool is_load = std::string(f.name) == "a first launch";
          if (is_load && has_loaded) continue;
          const bool expected = is_refused(f, mode, thread_mode, is_own);
          has_loaded = has_loaded || (is_load && !expected);
          cudaGraph_t graph = nullptr;
          ASSERT_EQ(cudaStreamBeginCapture(streams[0], mode), cudaSuccess);
          cudaError_t answer = cudaSuccess;
          const auto call = [&] {
            cudaStreamCaptureMode exchanged = thread_mode;
            cudaThreadExchangeStreamCaptureMode(&exchanged);
            answer = f.call(x, streams[0], events[0]);
            cudaThreadExchangeStreamCaptureMode(&exchanged);
          };
          if (is_own)
            call();
          else
            std::thread(call).join();
          EXPECT_EQ(answer, expected ? cudaErrorStreamCaptureUnsupported : cudaSuccess)
              << f.name << " " << mode << " " << thread_mode << " " << is_own;
          EXPECT_EQ(put(x, x, 1, 0, streams[0]),
                    expected ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
          EXPECT_EQ(cudaStreamEndCapture(streams[0], &graph),
                    expected ? cudaErrorStreamCaptureInvalidated : cudaSuccess)
              << f.name;
          cudaGraphDestroy(graph);
          EXPECT_EQ(put(x, x, 1, 0, streams[0]), cudaSuccess) << "the stream is usable again";
        }
      }
    }
  }
}

TEST_F(CudaCapture, what_streams_may_not_do_to_each_other) {
  float *x = take();
  cudaGraph_t graph = nullptr;
  const auto begin = [&](cudaStream_t s) {
    ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  };
  const auto end = [&](cudaStream_t s) {
    const cudaError_t error = cudaStreamEndCapture(s, &graph);
    cudaGraphDestroy(graph);
    return error;
  };
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
            cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(streams[0]), cudaErrorIllegalState);
  const auto fork = [&] {
    begin(streams[0]);
    EXPECT_EQ(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal),
              cudaErrorIllegalState);
    cudaEventRecord(events[0], streams[0]);
    EXPECT_EQ(cudaStreamWaitEvent(streams[1], events[0], 0), cudaSuccess);
    EXPECT_EQ(put(x, x, 1, 0, streams[1]), cudaSuccess);
  };
  fork();
  EXPECT_EQ(end(streams[0]), cudaErrorStreamCaptureUnjoined);
  fork();
  EXPECT_EQ(end(streams[1]), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(end(streams[0]), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(put(x, x, 1, 0, streams[1]), cudaSuccess) << "it has left the capture";
  EXPECT_EQ(cudaStreamWaitEvent(streams[1], events[0], 0), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventQuery(events[0]), cudaErrorCapturedEvent);

  cudaEventRecord(events[1], streams[1]); /* not of the capture */
  begin(streams[0]);
  EXPECT_EQ(cudaStreamWaitEvent(streams[0], events[1], 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(end(streams[0]), cudaErrorStreamCaptureInvalidated);

  begin(streams[0]);
  begin(streams[1]);
  cudaEventRecord(events[0], streams[0]);
  EXPECT_EQ(cudaStreamWaitEvent(streams[1], events[0], 0), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(end(streams[0]), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end(streams[1]), cudaErrorStreamCaptureInvalidated);

  begin(streams[0]);
  std::thread([&] { EXPECT_EQ(end(streams[0]), cudaErrorStreamCaptureWrongThread); }).join();
  EXPECT_EQ(end(streams[0]), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CudaCapture, legacy_stream_while_a_blocking_one_is_captured) {
  float *x = take();
  cudaGraph_t graph = nullptr;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ASSERT_EQ(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(put(x, x, 1, 0, nullptr), cudaSuccess) << "they are not ordered";
  EXPECT_EQ(cudaStreamEndCapture(streams[0], &graph), cudaSuccess);
  cudaGraphDestroy(graph);
  for (const bool is_launch : {true, false}) {
    ASSERT_EQ(cudaStreamBeginCapture(blocking[0], cudaStreamCaptureModeRelaxed), cudaSuccess);
    EXPECT_EQ(cudaStreamIsCapturing(nullptr, &status), cudaErrorStreamCaptureImplicit);
    EXPECT_EQ(cudaStreamIsCapturing(blocking[0], &status), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusActive) << "a question ends nothing";
    EXPECT_EQ(is_launch ? put(x, x, 1, 0, nullptr) : cudaStreamSynchronize(nullptr),
              cudaErrorStreamCaptureImplicit);
    EXPECT_EQ(cudaStreamIsCapturing(blocking[0], &status), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
    EXPECT_EQ(cudaStreamEndCapture(blocking[0], &graph), cudaErrorStreamCaptureInvalidated);
  }
}

}  // namespace
}  // namespace octavo::test
