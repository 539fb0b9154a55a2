/* Opening a CUDA device, and what its runtime's errors mean. */
#include "kernels/cuda/context.h"

#include <cstring>
#include <new>

#include "kernels/check/granularity.h"
#include "kernels/cuda/verbs.h"

namespace octavo::cuda {
namespace {

constexpr int kOldest = 89; /* sm_89: the first with FP8 units */

/* Whether the runtime finds code for the current device, of this and so of every kernel. */
__global__ void any_kernel() {}
cudaError_t find_code() {
  cudaFuncAttributes unused;
  return cudaFuncGetAttributes(&unused, reinterpret_cast<const void *>(any_kernel));
}

/* Errors after which "any further CUDA work will return the same error", by the manual of the
 * runtime (enum cudaError). A failed capture is none of them. */
bool is_lasting(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice: return true;
    default: return false;
  }
}

octavo_status status_of(cudaError_t error) {
  if (error == cudaErrorMemoryAllocation) return OCTAVO_NO_RESOURCE;
  return error == cudaErrorInvalidValue ? OCTAVO_INVALID : OCTAVO_FAILED_DEVICE;
}

octavo_status capability_of(int device, int *capability) {
  int major = 0;
  int minor = 0;
  cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  *capability = major * 10 + minor;
  return error == cudaSuccess ? OCTAVO_OK : OCTAVO_FAILED_DEVICE;
}

}  // namespace

octavo_status checked(Context &context, const char *verb, cudaError_t error) {
  if (error == cudaSuccess) return OCTAVO_OK;
  cudaGetLastError(); /* one that is not lasting is forgotten */
  if (is_lasting(error)) {
    int expected = cudaSuccess;
    context.failed.compare_exchange_strong(expected, error);
  }
  return report_error(context.caller, status_of(error), "%s: CUDA answered %s: %s%s", verb,
                      cudaGetErrorName(error), cudaGetErrorString(error),
                      is_lasting(error) ? "; the device is lost to this process, restart it from a "
                                          "checkpoint"
                                        : "");
}

octavo_status refuse_after_failure(Context &context, const char *verb) {
  const auto error = static_cast<cudaError_t>(context.failed.load(std::memory_order_relaxed));
  if (error == cudaSuccess) return OCTAVO_OK;
  return report_error(context.caller, OCTAVO_FAILED_DEVICE,
                      "%s: not started, since the device failed before with %s: %s; restart the "
                      "process from a checkpoint",
                      verb, cudaGetErrorName(error), cudaGetErrorString(error));
}

octavo_status probe_device(octavo_device device, const octavo_verdict_sink *sink) {
  if (sink == nullptr || sink->verdict == nullptr) return OCTAVO_INVALID;
  octavo_verdict v = {};
  v.size = sizeof(v);
  v.kind = OCTAVO_KIND_VERDICT;
  v.level = OCTAVO_LEVEL_DEVICE;
  v.decision = OCTAVO_DECLINE;
  v.reason = OCTAVO_REASON_DEVICE;
  int count = 0;
  int capability = 0;
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (device.type != OCTAVO_DEVICE_CUDA && device.type != OCTAVO_DEVICE_AUTO) {
    v.text = OCTAVO_STR("These kernels run on CUDA devices only.");
    v.remedy = OCTAVO_STR("Use device type CUDA, or use the kernels of that device.");
  } else if (error == cudaErrorInsufficientDriver) {
    v.text = OCTAVO_STR("The driver is older than CUDA 13.0.");
    v.remedy = OCTAVO_STR("Install a driver of version 580 or later.");
  } else if (error != cudaSuccess || count == 0) {
    v.text = OCTAVO_STR("CUDA finds no device.");
    v.remedy =
        OCTAVO_STR("Run nvidia-smi to see the driver's error, or set device.kind = \"cpu\".");
  } else if (device.index < 0 || device.index >= count) {
    v.text = OCTAVO_STR("There is no CUDA device with that index.");
    v.remedy = OCTAVO_STR("Set device.index to one that nvidia-smi lists.");
  } else if (capability_of(device.index, &capability) != OCTAVO_OK || capability < kOldest) {
    v.text = OCTAVO_STR("The device has no FP8 units.");
    v.evidence = OCTAVO_STR("they start with compute capability 8.9");
    v.remedy = OCTAVO_STR("Use an Ada, Hopper or Blackwell GPU, or set device.kind = \"cpu\".");
  } else {
    v.decision = OCTAVO_ACCEPT;
    v.reason = OCTAVO_REASON_NONE;
    v.text = OCTAVO_STR("The device multiplies FP8.");
    if (cudaGetDeviceProperties(&properties, device.index) == cudaSuccess)
      v.evidence = {properties.name, std::strlen(properties.name)};
    else
      cudaGetLastError();
  }
  if (error != cudaSuccess) cudaGetLastError();
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

octavo_status open_device(octavo_device device, const octavo_host *host, void **ctx) {
  if (host == nullptr || host->diagnose == nullptr) return OCTAVO_INVALID; /* nobody to tell */
  const Caller caller = {host, "octavo.kernels.cuda"};
  if (ctx == nullptr)
    return report_error(caller, OCTAVO_INVALID, "open_device: ctx is null; expected an address");
  *ctx = nullptr;
  if (device.type != OCTAVO_DEVICE_CUDA)
    return report_error(caller, OCTAVO_UNSUPPORTED,
                        "open_device: device type %u; expected type %d (CUDA)", device.type,
                        OCTAVO_DEVICE_CUDA);
  auto *context = new (std::nothrow) Context;
  if (context == nullptr)
    return report_error(caller, OCTAVO_NO_RESOURCE, "open_device: out of memory for %zu bytes",
                        sizeof(Context));
  context->caller = caller;
  context->device = device.index;
  context->limits = {"cuda", 0, false, context, gemm_workspace, prologue_workspace};
  octavo_status status = capability_of(device.index, &context->capability);
  const DeviceScope scope(device.index);
  cudaError_t error = scope.error();
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&context->multiprocessors, cudaDevAttrMultiProcessorCount,
                                   device.index);
  status = checked(*context, "open_device", error);
  if (status == OCTAVO_OK && context->capability < kOldest) {
    status = report_error(caller, OCTAVO_UNSUPPORTED,
                          "open_device: device %d has compute capability %d.%d; expected at least "
                          "8.9, the first with FP8 units",
                          device.index, context->capability / 10, context->capability % 10);
  }
  if (status == OCTAVO_OK) {
    const cudaError_t found = find_code();
    const bool has_none =
        found == cudaErrorNoKernelImageForDevice || found == cudaErrorInvalidDeviceFunction;
    if (has_none) {
      cudaGetLastError();
      status = report_error(caller, OCTAVO_UNSUPPORTED,
                            "open_device: device %d has compute capability %d.%d, but these "
                            "kernels have no code for it; build them with "
                            "OCTAVO_CUDA_ARCHITECTURES=%d",
                            device.index, context->capability / 10, context->capability % 10,
                            context->capability);
    } else {
      status = checked(*context, "open_device", found);
    }
  }
  if (status == OCTAVO_OK) status = open_gemm(*context);
  if (status != OCTAVO_OK) {
    close_device(context);
    return status;
  }
  *ctx = context;
  return OCTAVO_OK;
}

void close_device(void *ctx) {
  auto *context = static_cast<Context *>(ctx);
  if (context == nullptr) return;
  close_gemm(*context);
  delete context;
}

/* Why tensor cores do not multiply such operands as they are; null: they do. By the manual of
 * cuBLAS, "Narrow Precision Data Types Usage". */
static const char *emulation_of(const Context &context, const octavo_ability &q) {
  if (context.gemm.is_reference) return "OCTAVO_CUDA_GEMM=reference uses no tensor cores";
  const bool codes[2] = {OCTAVO_DTYPE_BITS(q.dtype) == 8, OCTAVO_DTYPE_BITS(q.b_dtype) == 8};
  if (codes[0] != codes[1]) return "one operand is converted to the dtype of the other";
  if (!codes[0]) return nullptr;
  if (q.dtype == OCTAVO_E5M2 && q.b_dtype == OCTAVO_E5M2)
    return "two operands in float8_e5m2 are converted to bf16";
  if (is_mx_granularity(q.granularity))
    return context.capability >= 100
               ? nullptr
               : "tensor cores read blocks of 32 from compute capability 10.0 on";
  if (!is_block_granularity(q.granularity)) return nullptr;
  if (context.capability != 90)
    return "tensor cores read blocks of 128 with compute capability 9.0 only";
  return q.granularity == OCTAVO_BLOCK_128X128 && q.b_granularity == OCTAVO_BLOCK_128X128
             ? "tensor cores need one operand in blocks of 1x128"
             : nullptr;
}

octavo_status ability(void *ctx, octavo_ability *question) {
  const Context &context = context_of(ctx);
  const octavo_status status = begin_ability(context.caller, context.limits, question);
  if (status != OCTAVO_OK || question->decision == OCTAVO_DECLINE) return status;
  if (question->call != OCTAVO_KIND_GEMM) return OCTAVO_OK;
  const char *reason = emulation_of(context, *question);
  if (reason == nullptr) return OCTAVO_OK;
  question->decision = OCTAVO_ACCEPT_EMULATED;
  question->evidence = {reason, std::strlen(reason)};
  return OCTAVO_OK;
}

octavo_status describe(void *ctx, octavo_kernels_caps *out) {
  const Context &context = context_of(ctx);
  const octavo_status status = begin_describe(context.caller, context.limits.id, out);
  if (status != OCTAVO_OK) return status;
  out->flags = OCTAVO_CAPS_CAPTURE_SAFE | OCTAVO_CAPS_DETERMINISTIC;
  /* Which algorithm is the fastest may differ from run to run. */
  if (context.gemm.tune_count > 0) out->flags &= ~uint64_t{OCTAVO_CAPS_DETERMINISTIC};
  if (context.gemm.is_reference) out->flags |= OCTAVO_CAPS_EMULATED | OCTAVO_CAPS_EXACT_GEMM;
  out->alignment = 16;
  if (OCTAVO_HAS(out, octavo_kernels_caps, pack_rows)) out->pack_rows = 0;
  return OCTAVO_OK;
}

}  // namespace octavo::cuda
