/* Settings and state of gemm, and telling of detours. */
#include "kernels/cuda/gemm_state.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "kernels/check/calls.h"
#include "kernels/cuda/gemm.h"

namespace octavo::cuda {
namespace {

/* A number of the environment from `least` to `most`. */
octavo_status read_number(const Caller &caller, const char *name, int least, int most, int *out) {
  const char *text = std::getenv(name);
  if (text == nullptr || *text == '\0') return OCTAVO_OK;
  char *end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*end != '\0' || value < least || value > most) {
    return report_error(caller, OCTAVO_INVALID,
                        "open_device: %s = \"%s\"; expected a number from %d to %d, or no such "
                        "variable",
                        name, text, least, most);
  }
  *out = static_cast<int>(value);
  return OCTAVO_OK;
}

struct DetourText {
  bool is_wanted; /* somebody asked for it */
  const char *text;
};

DetourText text_of(Detour detour) {
  switch (detour) {
    case Detour::kForced:
      return {true, "computed by the reference kernel, since OCTAVO_CUDA_GEMM selects it"};
    case Detour::kE5m2:
      return {false,
              "converted to bf16 and then multiplied, since cuBLASLt does not multiply E5M2 by "
              "E5M2; use E4M3 for one operand to have its speed"};
    case Detour::kMixed:
      return {true,
              "converted to one dtype and then multiplied, since cuBLASLt does not multiply "
              "these dtypes; bring both operands to one plain dtype, or both to FP8, to have "
              "its speed"};
    case Detour::kAlignment:
      return {
          false,
          "converted to bf16 and then multiplied, since cuBLASLt requires K, rows and addresses "
          "of codes in multiples of 16 bytes; pad to caps.alignment to have its speed"};
    case Detour::kBlocks:
      return {false,
              "computed by the slow reference kernel, since this device multiplies no "
              "blocks of these two granularities; blocks of 128 need compute capability "
              "9.0 and 1x128 on one side, blocks of 32 need 10.0 or more, and both want sizes "
              "and addresses in multiples of 16 bytes"};
    case Detour::kRefused:
      return {false,
              "computed by the slow reference kernel, since cuBLASLt has no algorithm for "
              "it; a newer libcublasLt may have one"};
    default:
      return {true,
              "computed through f32 tiles, since cuBLASLt cannot apply its scales or bias; "
              "scales, bias and rounding are a separate launch"};
  }
}

/* Makes the state and opens its library. */
octavo_status open_state(Context &context) {
  auto *made = new (std::nothrow) GemmState;
  if (made == nullptr)
    return report_error(context.caller, OCTAVO_NO_RESOURCE, "gemm: out of memory for %zu bytes",
                        sizeof(GemmState));
  const octavo_status status =
      context.gemm.is_reference ? octavo_status{OCTAVO_OK} : open_blas(context, &made->blas);
  if (status != OCTAVO_OK) {
    delete made;
    return status;
  }
  context.gemm.state.store(made, std::memory_order_release);
  return OCTAVO_OK;
}

constexpr octavo_host kNobody = {sizeof(octavo_host),
                                 OCTAVO_KIND_HOST,
                                 OCTAVO_ABI_MAJOR,
                                 OCTAVO_ABI_MINOR,
                                 nullptr,
                                 [](void *, const octavo_diagnostic *) {},
                                 nullptr};

}  // namespace

GemmState::~GemmState() {
  plans.clear();
  close_blas(&blas);
}

octavo_status open_gemm(Context &context) {
  GemmSlot &gemm = context.gemm;
  const char *way = std::getenv(kGemmVariable);
  if (way != nullptr && *way != '\0') {
    gemm.is_reference = std::strcmp(way, "reference") == 0;
    if (!gemm.is_reference && std::strcmp(way, "cublaslt") != 0) {
      return report_error(context.caller, OCTAVO_INVALID,
                          "open_device: %s = \"%s\"; expected \"cublaslt\", \"reference\", or no "
                          "such variable",
                          kGemmVariable, way);
    }
  }
  /* What cuBLAS itself sets aside on these devices. */
  int mebibytes = context.capability >= 90 ? 32 : 4;
  octavo_status status = read_number(context.caller, kTuneVariable, 0, 8, &gemm.tune_count);
  if (status == OCTAVO_OK)
    status = read_number(context.caller, kSmVariable, 0, context.multiprocessors, &gemm.sm_target);
  if (status == OCTAVO_OK)
    status = read_number(context.caller, kWorkspaceVariable, 1, 1024, &mebibytes);
  gemm.workspace = static_cast<uint64_t>(mebibytes) << 20;
  if (status != OCTAVO_OK) return status;
  /* A process may open a device and multiply nothing, so the first product says what failed. */
  const Caller caller = context.caller;
  context.caller.host = &kNobody;
  open_state(context);
  context.caller = caller;
  return OCTAVO_OK;
}

octavo_status gemm_state(Context &context, void *stream, GemmState **out) {
  *out = context.gemm.state.load(std::memory_order_acquire);
  if (*out != nullptr) return OCTAVO_OK;
  const std::lock_guard<std::mutex> hold(context.gemm.opening);
  *out = context.gemm.state.load(std::memory_order_acquire);
  if (*out != nullptr) return OCTAVO_OK;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const cudaError_t asked = cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &capture);
  if (asked != cudaSuccess) return checked(context, "gemm", asked);
  if (capture != cudaStreamCaptureStatusNone)
    return report_error(context.caller, OCTAVO_WRONG_STATE,
                        "gemm: cuBLASLt did not open with the device, and cannot be opened while "
                        "the stream is captured; make a product before, whose error has the cause");
  const octavo_status status = open_state(context);
  *out = context.gemm.state.load(std::memory_order_relaxed);
  return status;
}

void close_gemm(Context &context) {
  if (context.gemm.state.load() == nullptr) return;
  const DeviceScope scope(context.device);
  delete context.gemm.state.exchange(nullptr);
}

void tell_detour(const Context &context, GemmState &state, Detour detour, const octavo_gemm &c) {
  const uint32_t bit = UINT32_C(1) << static_cast<unsigned>(detour);
  if ((state.reported.fetch_or(bit, std::memory_order_relaxed) & bit) != 0) return;
  const GemmShape shape = gemm_shape(c);
  const DetourText why = text_of(detour);
  char text[512];
  const int length = std::snprintf(
      text, sizeof(text),
      "gemm: M = %lld, N = %lld, K = %lld, a.dtype = 0x%x, b.dtype = 0x%x, d.dtype = 0x%x: %s. "
      "This is reported once; others may follow.",
      static_cast<long long>(shape.m), static_cast<long long>(shape.n),
      static_cast<long long>(shape.k), c.a->dtype, c.b->dtype, c.d->dtype, why.text);
  octavo_diagnostic d = {};
  d.size = sizeof(d);
  d.kind = OCTAVO_KIND_DIAGNOSTIC;
  d.severity = why.is_wanted ? OCTAVO_SEVERITY_INFO : OCTAVO_SEVERITY_WARNING;
  d.domain = {context.caller.domain, std::strlen(context.caller.domain)};
  const size_t whole = length < 0 ? 0 : static_cast<size_t>(length);
  d.text = {text, whole < sizeof(text) ? whole : sizeof(text) - 1};
  context.caller.host->diagnose(context.caller.host->ctx, &d);
}

}  // namespace octavo::cuda
