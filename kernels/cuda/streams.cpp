/* Streams and graphs for hosts without a library of CUDA's; see octavo/draft/streams.h. */
#include "octavo/draft/streams.h"

#include "kernels/cuda/context.h"
#include "kernels/cuda/verbs.h"

namespace octavo::cuda {
namespace {

cudaStream_t stream_of(void *stream) {
  return static_cast<cudaStream_t>(stream);
}

}  // namespace

octavo_status make_stream(void *ctx, void **out) {
  Context &context = context_of(ctx);
  const DeviceScope scope(context.device);
  cudaStream_t stream = nullptr;
  const octavo_status status =
      checked(context, "make_stream", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  *out = stream;
  return status;
}

void destroy_stream(void *ctx, void *stream) {
  const DeviceScope scope(context_of(ctx).device);
  if (stream != nullptr && cudaStreamDestroy(stream_of(stream)) != cudaSuccess) cudaGetLastError();
}

octavo_status order(void *ctx, void *stream, void *before) {
  Context &context = context_of(ctx);
  const DeviceScope scope(context.device);
  cudaEvent_t event = nullptr;
  cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  if (error != cudaSuccess) return checked(context, "order", error);
  error = cudaEventRecord(event, stream_of(before));
  if (error == cudaSuccess) error = cudaStreamWaitEvent(stream_of(stream), event, 0);
  const cudaError_t destroyed = cudaEventDestroy(event); /* once it has been reached */
  return checked(context, "order", error != cudaSuccess ? error : destroyed);
}

octavo_status wait(void *ctx, void *stream) {
  Context &context = context_of(ctx);
  const DeviceScope scope(context.device);
  return checked(context, "wait", cudaStreamSynchronize(stream_of(stream)));
}

octavo_status call_host(void *ctx, void *stream, void (*run)(void *arg), void *arg) {
  Context &context = context_of(ctx);
  const DeviceScope scope(context.device);
  return checked(context, "call_host", cudaLaunchHostFunc(stream_of(stream), run, arg));
}

octavo_status begin_capture(void *ctx, void *stream) {
  Context &context = context_of(ctx);
  const DeviceScope scope(context.device);
  return checked(context, "begin_capture",
                 cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal));
}

octavo_status end_capture(void *ctx, void *stream, void **graph) {
  Context &context = context_of(ctx);
  const DeviceScope scope(context.device);
  *graph = nullptr;
  cudaGraph_t recorded = nullptr;
  cudaError_t error = cudaStreamEndCapture(stream_of(stream), &recorded);
  if (error != cudaSuccess) return checked(context, "end_capture", error);
  cudaGraphExec_t replay = nullptr;
  error = cudaGraphInstantiate(&replay, recorded, 0);
  const cudaError_t destroyed = cudaGraphDestroy(recorded);
  *graph = replay;
  return checked(context, "end_capture", error != cudaSuccess ? error : destroyed);
}

octavo_status launch(void *ctx, void *graph, void *stream) {
  Context &context = context_of(ctx);
  const DeviceScope scope(context.device);
  return checked(context, "launch",
                 cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(stream)));
}

void destroy_graph(void *ctx, void *graph) {
  const DeviceScope scope(context_of(ctx).device);
  if (graph != nullptr && cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)) != cudaSuccess)
    cudaGetLastError();
}

octavo_status current_device(void *ctx, int32_t *index) {
  int device = 0;
  const octavo_status status = checked(context_of(ctx), "current_device", cudaGetDevice(&device));
  *index = device;
  return status;
}

octavo_status set_current_device(void *ctx, int32_t index) {
  int count = 0;
  const octavo_status status =
      checked(context_of(ctx), "set_current_device", cudaGetDeviceCount(&count));
  if (status != OCTAVO_OK) return status;
  if (index < 0 || index >= count) return OCTAVO_UNSUPPORTED;
  return checked(context_of(ctx), "set_current_device", cudaSetDevice(index));
}

}  // namespace octavo::cuda
