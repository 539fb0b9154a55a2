// Says what it runs on; exit code 77 with the reason where there is no GPU to run on.
#include <cuda_runtime.h>
#include <gmock/gmock.h>

#include <cstdio>

int main(int argc, char **argv) {
  testing::InitGoogleMock(&argc, argv);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    std::printf("skipped: no GPU: %s\n",
                error == cudaSuccess ? "the driver offers none" : cudaGetErrorString(error));
    return 77;
  }
  cudaDeviceProp p = {};
  if (cudaGetDeviceProperties(&p, 0) != cudaSuccess) return 1;
  int driver = 0;
  cudaDriverGetVersion(&driver);
  std::printf("%s, compute capability %d.%d, %d multiprocessors, driver for CUDA %d.%d\n", p.name,
              p.major, p.minor, p.multiProcessorCount, driver / 1000, driver % 1000 / 10);
  return RUN_ALL_TESTS();
}
