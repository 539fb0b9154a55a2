/* What holds for every verb of the kernels table: the thread's device stays, memory of another
 * device is none, a capture takes it, and calls on several streams do not touch each other. */
#include "tests/kernels/cuda/every_verb.h"
#include "tests/support/cuda_on_cpu/accumulators.h"

namespace octavo::test {
namespace {

using Kind = EveryVerb::Kind;

class CudaVerbs : public testing::Test {
 protected:
  CudaVerbs() {
    cuda_on_cpu::script().devices = 2;
    for (cudaStream_t &s : streams) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  }
  ~CudaVerbs() override {
    for (const cudaStream_t s : streams) cudaStreamDestroy(s);
  }
  static int current() {
    int device = -1;
    cudaGetDevice(&device);
    return device;
  }

  GemmDevices devices;
  void *ctx = devices.cuda();
  cudaStream_t streams[3] = {};
};

TEST_F(CudaVerbs, none_is_forgotten) {
  const EveryVerb every(ctx);
  EXPECT_EQ(every.verbs().size(), EveryVerb::kEntries)
      << "a new entry of octavo_kernels, or of an extension, belongs into every_verb.h";
}

/* The run's device is 0, the thread's 1: whatever comes of the call. */
TEST_F(CudaVerbs, leave_the_current_device) {
  const EveryVerb every(ctx);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  cuda_on_cpu::Script &script = cuda_on_cpu::script();
  for (const EveryVerb::Verb &v : every.verbs()) {
    EXPECT_EQ(v.run(ctx, streams[0], Kind::kRight), v.right) << v.name;
    EXPECT_EQ(current(), 1) << v.name;
    EXPECT_EQ(v.run(ctx, streams[0], Kind::kWrong), v.wrong) << v.name;
    EXPECT_EQ(current(), 1) << v.name << ", refused";
    script.launch_error = cudaErrorLaunchOutOfResources;
    v.run(ctx, streams[0], Kind::kRight);
    EXPECT_EQ(current(), 1) << v.name << ", not launched";
    script.launch_error = cudaSuccess;
    fake_library().matmul = CUBLAS_STATUS_EXECUTION_FAILED;
    v.run(ctx, streams[0], Kind::kRight);
    EXPECT_EQ(current(), 1) << v.name << ", failed in cuBLASLt";
    fake_library().matmul = CUBLAS_STATUS_SUCCESS;
  }
  void *data = nullptr;
  const octavo_memory &memory = *cuda::memory_table();
  static_assert((sizeof(octavo_memory) - offsetof(octavo_memory, allocate)) / sizeof(void (*)()) ==
                4);
  EXPECT_EQ(memory.allocate(ctx, 64, &data), OCTAVO_OK);
  EXPECT_EQ(current(), 1);
  uint64_t value = 0;
  EXPECT_EQ(memory.copy(ctx, &value, data, sizeof(value)), OCTAVO_OK);
  EXPECT_EQ(current(), 1);
  EXPECT_EQ(memory.synchronize(ctx), OCTAVO_OK);
  EXPECT_EQ(current(), 1);
  memory.release(ctx, data);
  EXPECT_EQ(current(), 1);
  script.free_bytes = 0;
  EXPECT_EQ(memory.allocate(ctx, 64, &data), OCTAVO_NO_RESOURCE);
  EXPECT_EQ(current(), 1);
}

/* cudaSetDevice may fail, as after the device was lost to another process. */
TEST_F(CudaVerbs, launch_nothing_where_the_device_cannot_be_made_current) {
  const EveryVerb every(ctx);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  cuda_on_cpu::script().set_device_error = cudaErrorInitializationError;
  const size_t products = fake_library().calls.size();
  const cuda_on_cpu::Counters before = cuda_on_cpu::counters();
  for (const EveryVerb::Verb &v : every.verbs()) {
    const octavo_status status = v.run(ctx, streams[0], Kind::kRight);
    if (v.launches) {
      EXPECT_EQ(status, OCTAVO_FAILED_DEVICE) << v.name;
    }
  }
  const cuda_on_cpu::Counters &after = cuda_on_cpu::counters();
  EXPECT_EQ(after.launches, before.launches);
  EXPECT_EQ(after.copies + after.memsets, before.copies + before.memsets);
  EXPECT_EQ(after.allocations, before.allocations) << "of open_device, too";
  EXPECT_EQ(fake_library().calls.size(), products);
  cuda_on_cpu::script().set_device_error = cudaSuccess;
}

/* Of calls at once with one accumulator none is lost. A plain store
 * to one ends the process; some memory makes each of them change. */
TEST_F(CudaVerbs, accumulate_by_atomics) {
  const cuda_on_cpu::Accumulators memory;
  std::vector<float> largest;
  for (const uint8_t fill : {0x38, 0x7E, 0xFF}) {
    EveryVerb every(ctx, fill);
    largest.resize(every.accumulate_at(memory.data()));
    every.launch_all(ctx, streams[0]);
    cuda_on_cpu::settle();
    for (size_t i = 0; i < largest.size(); ++i)
      largest[i] = std::fmax(largest[i], memory.data()[i]);
  }
  for (size_t i = 0; i < largest.size(); ++i) EXPECT_GT(largest[i], 0.0f) << "accumulator " << i;
}

/* Memory that was allocated on device 1, in a run on device 0. */
TEST(CudaVerbsAbroad, fail_on_memory_of_another_device) {
  size_t launching = 0;
  for (size_t i = 0; i < EveryVerb::kEntries; ++i) {
    GemmDevices fresh;
    cuda_on_cpu::script().devices = 2;
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    const EveryVerb abroad(fresh.cuda());
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    const EveryVerb::Verb &v = abroad.verbs()[i];
    if (v.launches) {
      ++launching;
      v.run(fresh.cuda(), nullptr, Kind::kRight);
      EXPECT_EQ(cuda::synchronize(fresh.cuda()), OCTAVO_FAILED_DEVICE) << v.name;
      EXPECT_THAT(fresh.host().texts(), testing::Contains(testing::HasSubstr("IllegalAddress")))
          << v.name;
    }
    cuda_on_cpu::reset();
  }
  EXPECT_GE(launching, 17u);
}

/* The first calls of a process may be captured ones, which load the code of their kernels. */
TEST_F(CudaVerbs, may_all_be_captured_first) {
  cuda_on_cpu::forget_code();
  const EveryVerb captured(ctx), called(ctx);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal), cudaSuccess);
  captured.launch_all(ctx, streams[0]);
  ASSERT_EQ(cudaStreamEndCapture(streams[0], &graph), cudaSuccess) << devices.host().last_text();
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(cudaGraphLaunch(replay, streams[1]), cudaSuccess);
    called.launch_all(ctx, streams[0]);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(captured.read(), called.read()) << "replay " << i;
  }
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
}

/* The host spoils its own capture: afterwards the device is as good as before. */
TEST_F(CudaVerbs, work_again_after_a_capture_that_failed) {
  const EveryVerb every(ctx), called(ctx);
  every.launch_all(ctx, streams[0]);
  called.launch_all(ctx, streams[0]);
  ASSERT_EQ(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(streams[0]), cudaErrorStreamCaptureUnsupported);
  for (const EveryVerb::Verb &v : every.verbs()) {
    if (v.launches) {
      EXPECT_EQ(v.run(ctx, streams[0], Kind::kRight), OCTAVO_FAILED_DEVICE) << v.name;
    }
  }
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(streams[0], &graph), cudaErrorStreamCaptureInvalidated);
  every.launch_all(ctx, streams[0]);
  called.launch_all(ctx, streams[0]);
  EXPECT_EQ(every.read(), called.read());
}

/* A graph that was captured on one stream is replayed on another, calls go to the first one and to
 * the stream of each thread: on values of their own, whatever they share they spoil. */
TEST_F(CudaVerbs, on_several_streams_at_once_compute_what_one_computes) {
  EveryVerb replayed(ctx, 0x38), called(ctx, 0x39), of_thread(ctx, 0x3A);
  EveryVerb *const all[] = {&replayed, &called, &of_thread};
  std::vector<std::vector<uint8_t>> start, expected;
  for (EveryVerb *each : all) {
    start.push_back(each->read());
    each->launch_all(ctx, streams[0]);
    cuda_on_cpu::settle();
    expected.push_back(each->read());
  }
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal), cudaSuccess);
  replayed.launch_all(ctx, streams[0]);
  ASSERT_EQ(cudaStreamEndCapture(streams[0], &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    cuda_on_cpu::script().lazy = seed;
    for (size_t i = 0; i < std::size(all); ++i) all[i]->write(start[i]);
    ASSERT_EQ(cudaGraphLaunch(replay, streams[1]), cudaSuccess);
    called.launch_all(ctx, streams[0]);
    of_thread.launch_all(ctx, cudaStreamPerThread);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (size_t i = 0; i < std::size(all); ++i) {
      const std::vector<uint8_t> found = all[i]->read();
      const auto at = std::mismatch(found.begin(), found.end(), expected[i].begin()).first;
      EXPECT_EQ(at, found.end()) << "seed " << seed << ": byte " << at - found.begin();
    }
  }
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
}

}  // namespace
}  // namespace octavo::test
