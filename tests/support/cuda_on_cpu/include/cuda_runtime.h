/* The part of the CUDA runtime API that kernels/cuda uses, executed by the CPU.
 *
 * Found instead of the toolkit's header when device code is compiled as C++: kernels run block
 * after block or at once, each thread of a block as a fiber (fibers.h), so barriers, shuffles,
 * shared memory and atomics do what they do on a device, in an order that a test can change.
 * Streams run at once or lazily (streams.h), captures record (graph.h), and memory knows its device
 * (memory.h). runtime.h says what a test may count and script. Names, types and values are those of
 * CUDA 13.0.
 */
#ifndef OCTAVO_TESTS_CUDA_ON_CPU_CUDA_RUNTIME_H
#define OCTAVO_TESTS_CUDA_ON_CPU_CUDA_RUNTIME_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__ __restrict
/* All threads of a block are in one thread of the CPU, which runs one block at a time. */
#define __shared__ static thread_local

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInitializationError = 3,
  cudaErrorInsufficientDriver = 35,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorECCUncorrectable = 214,
  cudaErrorContained = 226,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalState = 401,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorLaunchTimeout = 702,
  cudaErrorAssert = 710,
  cudaErrorHardwareStackError = 714,
  cudaErrorIllegalInstruction = 715,
  cudaErrorMisalignedAddress = 716,
  cudaErrorInvalidAddressSpace = 717,
  cudaErrorInvalidPc = 718,
  cudaErrorLaunchFailure = 719,
  cudaErrorTensorMemoryLeak = 721,
  cudaErrorNotSupported = 801,
  cudaErrorMpsClientTerminated = 810,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureMerge = 902,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorStreamCaptureImplicit = 906,
  cudaErrorCapturedEvent = 907,
  cudaErrorStreamCaptureWrongThread = 908,
  cudaErrorExternalDevice = 911
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76
};
struct CUstream_st;
typedef CUstream_st *cudaStream_t;
#define cudaStreamLegacy (reinterpret_cast<cudaStream_t>(uintptr_t{1}))
#define cudaStreamPerThread (reinterpret_cast<cudaStream_t>(uintptr_t{2}))
struct cudaLaunchAttribute;
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute *attrs;
  unsigned numAttrs;
};

struct cudaFuncAttributes {
  int numRegs;
};
/* cudaErrorNoKernelImageForDevice for a device that the script gives no code. */
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *kernel);

struct CUevent_st;
typedef CUevent_st *cudaEvent_t;
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2
};

struct cudaDeviceProp {
  char name[256];
};
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaMemGetInfo(size_t *free, size_t *total);
cudaError_t cudaMalloc(void **pointer, size_t bytes);
cudaError_t cudaFree(void *pointer);
cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream);
cudaError_t cudaMallocHost(void **pointer, size_t bytes);
cudaError_t cudaFreeHost(void *pointer);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);

/* Events and further streams: events.h says how a test keeps a stream from getting on. */
enum { cudaEventDisableTiming = 2, cudaStreamNonBlocking = 1 };
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end);
typedef void (*cudaHostFn_t)(void *arg);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t run, void *arg);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status);

struct CUgraph_st;
typedef CUgraph_st *cudaGraph_t;
struct CUgraphExec_st;
typedef CUgraphExec_st *cudaGraphExec_t;
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2
};
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *replay, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t replay, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t replay);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode);

namespace cuda_on_cpu {

cudaError_t launch(const cudaLaunchConfig_t &config, const void *function,
                   const std::function<void()> &kernel);
/* Whether memory is sealed (sealed.h) and the argument points to that of the host, or it points to
 * that of another device; and the error of a kernel, which every later call answers. */
bool refuses_argument(const void *argument, size_t bytes);
cudaError_t fail_later(cudaError_t error);

/* Ends the running kernel. */
[[noreturn]] void fail_in_kernel(cudaError_t error);

/* Whether this run leaves out the call of a barrier or shuffle there: sites.cpp. */
bool is_left_out(const char *file, int line);
void block_barrier();
void warp_barrier(unsigned mask);
void thread_fence();
/* All lanes of `mask` give a value; each gets that of `lane`, its own when lane is not of the warp.
 */
uint64_t exchange(unsigned mask, uint64_t value, unsigned lane);
unsigned lane_id();
unsigned ballot(unsigned mask, bool vote);

/* Memory that plain stores cannot write (accumulators.h), and where it can be written; 0: none. */
inline uintptr_t accumulators = 0;
inline uintptr_t accumulators_written = 0;
constexpr size_t kAccumulatorBytes = 4096;
template <typename Value>
std::atomic_ref<Value> atomic(Value *target) {
  const uintptr_t offset = reinterpret_cast<uintptr_t>(target) - accumulators;
  if (accumulators != 0 && offset < kAccumulatorBytes)
    target = reinterpret_cast<Value *>(accumulators_written + offset);
  return std::atomic_ref<Value>(*target);
}

template <typename Value>
Value shuffle(unsigned mask, Value value, unsigned lane) {
  static_assert(sizeof(Value) <= sizeof(uint64_t));
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(value));
  bits = exchange(mask, bits, lane);
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

/* Without what padding holds: remains of other objects. */
template <typename Value>
bool refuses_copy_of(Value value) {
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&value);
#endif
  return refuses_argument(&value, sizeof value);
}

}  // namespace cuda_on_cpu

/* The kernel's arguments are copied, as a launch does. */
template <typename... Wanted, typename... Given>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Wanted...),
                               Given &&...given) {
  if ((cuda_on_cpu::refuses_copy_of(given) || ...))
    return cuda_on_cpu::fail_later(cudaErrorIllegalAddress);
  return cuda_on_cpu::launch(*config, reinterpret_cast<const void *>(kernel),
                             [=] { kernel(Wanted(given)...); });
}

/* Of the running fiber. */
extern constinit thread_local dim3 threadIdx;
extern constinit thread_local dim3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;

/* The last two parameters of each are those of the place that calls it. */
#define OCTAVO_CALL_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()
inline void __syncthreads(OCTAVO_CALL_SITE) {
  if (!::cuda_on_cpu::is_left_out(file, line)) ::cuda_on_cpu::block_barrier();
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, OCTAVO_CALL_SITE) {
  if (!::cuda_on_cpu::is_left_out(file, line)) ::cuda_on_cpu::warp_barrier(mask);
}
inline void __threadfence() {
  ::cuda_on_cpu::thread_fence();
}
/* `width`: lanes of a part of the warp; a lane beyond its part gets its own value. */
template <typename Value>
Value __shfl_sync(unsigned mask, Value value, int lane, int width = 32, OCTAVO_CALL_SITE) {
  const unsigned w = static_cast<unsigned>(width);
  const unsigned first = ::cuda_on_cpu::lane_id() / w * w;
  if (::cuda_on_cpu::is_left_out(file, line)) return value;
  return ::cuda_on_cpu::shuffle(mask, value, first + static_cast<unsigned>(lane) % w);
}
template <typename Value>
Value __shfl_xor_sync(unsigned mask, Value value, int bits, int width = 32, OCTAVO_CALL_SITE) {
  const unsigned w = static_cast<unsigned>(width);
  const unsigned me = ::cuda_on_cpu::lane_id();
  const unsigned from = me ^ static_cast<unsigned>(bits);
  if (::cuda_on_cpu::is_left_out(file, line)) return value;
  return ::cuda_on_cpu::shuffle(mask, value, from / w <= me / w ? from : me);
}
template <typename Value>
Value __shfl_down_sync(unsigned mask, Value value, unsigned lanes, int width = 32,
                       OCTAVO_CALL_SITE) {
  const unsigned w = static_cast<unsigned>(width);
  const unsigned me = ::cuda_on_cpu::lane_id();
  if (::cuda_on_cpu::is_left_out(file, line)) return value;
  return ::cuda_on_cpu::shuffle(mask, value, me % w + lanes < w ? me + lanes : me);
}
inline unsigned __ballot_sync(unsigned mask, int vote, OCTAVO_CALL_SITE) {
  if (::cuda_on_cpu::is_left_out(file, line)) return vote != 0 ? mask : 0;
  return ::cuda_on_cpu::ballot(mask, vote != 0);
}
inline int __any_sync(unsigned mask, int vote, OCTAVO_CALL_SITE) {
  return __ballot_sync(mask, vote, file, line) != 0;
}

/* Byte i of the result is byte number `selector` hexadecimal digit i of x, then y. */
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t bytes = uint64_t{y} << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(bytes >> (selector >> 4 * i & 7) * 8 & 0xFF) << 8 * i;
  return result;
}

/* Atomic for other blocks, too, which may run in other threads of the CPU; they order nothing. */
template <typename Value>
Value atomicMax(Value *target, Value value) {
  const std::atomic_ref<Value> shared = ::cuda_on_cpu::atomic(target);
  Value old = shared.load(std::memory_order_relaxed);
  while (value > old && !shared.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
  return old;
}
template <typename Value>
Value atomicAdd(Value *target, Value value) {
  return ::cuda_on_cpu::atomic(target).fetch_add(value, std::memory_order_relaxed);
}
template <typename Value>
Value atomicExch(Value *target, Value value) {
  return ::cuda_on_cpu::atomic(target).exchange(value, std::memory_order_relaxed);
}

#endif
