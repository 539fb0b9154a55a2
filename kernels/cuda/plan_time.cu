/* Timing an algorithm of cuBLASLt on the device. */
#include "kernels/cuda/plan.h"

namespace octavo::cuda {
namespace {

constexpr int kRounds = 3; /* after one that warms up */

struct Event {
  cudaEvent_t event = nullptr;
  Event() {
    if (cudaEventCreate(&event) != cudaSuccess) event = nullptr;
  }
  ~Event() {
    if (event != nullptr) cudaEventDestroy(event);
  }
  Event(const Event &) = delete;
  Event &operator=(const Event &) = delete;
};

}  // namespace

float time_algorithm(const Blas &blas, const PlanKey &key, const Plan &plan,
                     cublasLtMatmulDesc_t descriptor, const Operands &operands,
                     const cublasLtMatmulAlgo_t &algorithm) {
  Plan tried = plan;
  tried.algorithm = algorithm;
  const Event begin;
  const Event end;
  if (begin.event == nullptr || end.event == nullptr) return -1.0f;
  float best = -1.0f;
  for (int round = 0; round <= kRounds; ++round) {
    float time = 0.0f;
    if (cudaEventRecord(begin.event, operands.stream) != cudaSuccess ||
        multiply(blas, key, tried, descriptor, operands) != CUBLAS_STATUS_SUCCESS ||
        cudaEventRecord(end.event, operands.stream) != cudaSuccess ||
        cudaEventSynchronize(end.event) != cudaSuccess ||
        cudaEventElapsedTime(&time, begin.event, end.event) != cudaSuccess)
      return -1.0f;
    if (round > 0 && (best < 0.0f || time < best)) best = time;
  }
  return best;
}

}  // namespace octavo::cuda
