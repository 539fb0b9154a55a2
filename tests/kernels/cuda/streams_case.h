/* tests/kernels/cuda/streams_case.h: small kernels and streams for tests of the executor itself.
 */
#ifndef OCTAVO_TESTS_KERNELS_CUDA_STREAMS_CASE_H
#define OCTAVO_TESTS_KERNELS_CUDA_STREAMS_CASE_H

#include <gmock/gmock.h>

#include <vector>

#include "tests/support/cuda_on_cpu/runtime.h"
#include "tests/support/cuda_on_cpu/streams.h"

namespace octavo::test {

constexpr uint64_t kSeeds = 40;

/* *to = *from * factor + step. */
inline void put_kernel(float *to, const float *from, float factor, float step) {
  *to = *from * factor + step;
}

inline cudaError_t put(float *to, const float *from, float factor, float step,
                       cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = config.blockDim = dim3(1);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, put_kernel, to, from, factor, step);
}

class StreamsTest : public testing::Test {
 protected:
  StreamsTest() {
    cuda_on_cpu::reset();
    for (cudaStream_t &s : streams) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    for (cudaStream_t &s : blocking) cudaStreamCreateWithFlags(&s, 0);
    for (cudaEvent_t &e : events) cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
    EXPECT_EQ(put(take(), take(), 1, 0, nullptr), cudaSuccess); /* its code is loaded */
  }
  ~StreamsTest() override {
    cuda_on_cpu::script() = {};
    cuda_on_cpu::settle();
    for (float *data : taken) cudaFree(data);
    for (const cudaEvent_t e : events) cudaEventDestroy(e);
    for (const cudaStream_t s : streams) cudaStreamDestroy(s);
    for (const cudaStream_t s : blocking) cudaStreamDestroy(s);
    cuda_on_cpu::reset();
  }
  /* A float of the device. */
  float *take(float value = 1.0f) {
    void *data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, sizeof(float)), cudaSuccess);
    taken.push_back(static_cast<float *>(data));
    *taken.back() = value;
    return taken.back();
  }
  static void be_lazy(uint64_t seed) { cuda_on_cpu::script().lazy = seed; }
  /* What `body(seed)` gives, over all seeds. */
  template <typename Body>
  static std::vector<float> over_seeds(Body &&body) {
    std::vector<float> all;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      be_lazy(seed);
      all.push_back(body());
      cuda_on_cpu::settle();
    }
    return all;
  }

  cudaStream_t streams[3] = {}; /* that the legacy stream does not wait for */
  cudaStream_t blocking[2] = {};
  cudaEvent_t events[2] = {};
  std::vector<float *> taken;
};

}  // namespace octavo::test

#endif
