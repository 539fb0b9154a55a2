// The functions of the fake cuBLASLt.
#include "fake_blas.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "fake_blas_objects.h"
#include "sealed.h"

namespace fake_blas {

State &state() {
  static State s;
  return s;
}

const cuda_on_cpu::Graphs *runtime() {
  const char *place = std::getenv(cuda_on_cpu::kRuntimePlace);
  long process = 0;
  void *address = nullptr;
  const bool is_ours = place != nullptr && std::sscanf(place, "%ld:%p", &process, &address) == 2 &&
                       process == getpid();
  return is_ours ? static_cast<const cuda_on_cpu::Graphs *>(address) : nullptr;
}

namespace {

// A library that is opened loads modules.
__attribute__((constructor)) void open() {
  if (runtime() != nullptr) runtime()->refuse_in_capture();
}

int current_device() {
  return runtime() == nullptr ? 0 : runtime()->current_device();
}

// Products of several threads are calls at once, as with cuBLASLt itself; tests look at the state
// in between.
std::mutex state_mutex;

template <typename Object, typename... Values>
Object *make(Values... values) {
  const std::lock_guard<std::mutex> lock(state_mutex);
  ++state().objects;
  ++state().objects_made;
  return new Object{values...};
}

template <typename Object>
cublasStatus_t drop(Object *object) {
  if (object == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(state_mutex);
  --state().objects;
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t refuse(cublasStatus_t status, const char *why) {
  const std::lock_guard<std::mutex> lock(state_mutex);
  state().refusal = why;
  return status;
}

template <typename Value>
cublasStatus_t take(Value *to, const void *value, size_t bytes) {
  if (value == nullptr || bytes != sizeof(Value))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute of another size");
  std::memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// What an algorithm holds.
enum { kMagic = 0xB1A5, kAlignments = 4 };
struct Chosen {
  uint64_t magic;
  uint64_t fingerprint;
  uint64_t workspace;
  uint64_t number;
  uint64_t alignments;  // of A, B, C, D, 16 bits each
};
static_assert(sizeof(Chosen) <= sizeof(cublasLtMatmulAlgo_t));

const char *refuse_algorithm(const Problem &p, const Chosen &chosen, const Addresses &at,
                             const void *workspace, size_t bytes) {
  if (chosen.magic != kMagic) return "an algorithm that no heuristic gave";
  if (chosen.fingerprint != p.fingerprint()) return "an algorithm of another problem";
  const void *data[kAlignments] = {at.a, at.b, at.c, at.d};
  for (int i = 0; i < kAlignments; ++i) {
    if (reinterpret_cast<uintptr_t>(data[i]) % (chosen.alignments >> (16 * i) & 0xFFFF) != 0)
      return "an address that is less aligned than the preference said";
  }
  if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0) return "a workspace that is not aligned";
  if (chosen.workspace == 0) return nullptr;
  if (workspace == nullptr || bytes < chosen.workspace) return "too little workspace";
  if (state().is_device != nullptr && !state().is_device(workspace, bytes))
    return "a workspace that the device cannot write";
  return nullptr;
}

}  // namespace
}  // namespace fake_blas

using fake_blas::Addresses;
using fake_blas::Chosen;
using fake_blas::drop;
using fake_blas::make;
using fake_blas::Problem;
using fake_blas::refuse;
using fake_blas::state;
using fake_blas::take;

fake_blas::State *fake_blas_state() {
  return &state();
}

extern "C" {

size_t cublasLtGetVersion(void) {
  return 130100;
}
const char *cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR: return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "unknown";
}
const char *cublasLtGetStatusString(cublasStatus_t) {
  return "what the library says of it";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  if (state().create != CUBLAS_STATUS_SUCCESS) return state().create;
  if (fake_blas::runtime() != nullptr && fake_blas::runtime()->refuse_in_capture() != 0)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  ++state().handles;
  *handle = new cublasLtContext{fake_blas::current_device()};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  --state().handles;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *descriptor,
                                        cublasComputeType_t compute, cudaDataType scale) {
  if (state().describe != CUBLAS_STATUS_SUCCESS) return state().describe;
  *descriptor = make<cublasLtMatmulDescOpaque_t>(compute, scale);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
  return drop(descriptor);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(&d->transa, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(&d->transb, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(&d->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(&d->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET: return take(&d->sm_target, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return take(&d->a_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return take(&d->b_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return take(&d->fast, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return take(&d->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE: return take(&d->a_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE: return take(&d->b_mode, value, bytes);
  }
  return refuse(CUBLAS_STATUS_INVALID_VALUE, "an unknown attribute");
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  *layout = make<cublasLtMatrixLayoutOpaque_t>(type, rows, cols, ld);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return drop(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
  *preference = make<cublasLtMatmulPreferenceOpaque_t>();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return drop(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    return take(&preference->workspace, value, bytes);
  const int matrix = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  if (matrix < 0 || matrix >= fake_blas::kAlignments)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "an unknown preference");
  return take(&preference->alignment[matrix], value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *found) {
  ++state().heuristics;
  *found = 0;
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (handle->device != fake_blas::current_device())
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the handle of another device");
  if (state().heuristic != CUBLAS_STATUS_SUCCESS) return state().heuristic;
  const Problem p = {*descriptor, *a, *b, *c, *d};
  if (const char *why = fake_blas::refusal_of(p)) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, why);
  if (state().workspace > preference->workspace || state().algorithms == 0)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "no algorithm with so little workspace");
  Chosen chosen = {fake_blas::kMagic, p.fingerprint(), state().workspace, 0, 0};
  for (int i = fake_blas::kAlignments; i-- > 0;)
    chosen.alignments = chosen.alignments << 16 | preference->alignment[i];
  for (; *found < wanted && *found < state().algorithms; ++*found) {
    chosen.number = static_cast<uint64_t>(*found);
    results[*found] = {};
    std::memcpy(&results[*found].algo, &chosen, sizeof(chosen));
    results[*found].workspaceSize = state().workspace;
    results[*found].state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (handle->device != fake_blas::current_device())
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the handle of another device");
  if (state().matmul != CUBLAS_STATUS_SUCCESS) return state().matmul;
  const Problem p = {*descriptor, *a_layout, *b_layout, *c_layout, *d_layout};
  const float sum_factor = *static_cast<const float *>(beta);
  Chosen chosen = {};
  std::memcpy(&chosen, algo, sizeof(chosen));
  const Addresses at = {a, b, c, d, sum_factor == 1.0f, workspace, chosen.workspace};
  const char *why = fake_blas::refusal_of(p);
  if (why == nullptr) why = fake_blas::refusal_of(p, at);
  if (why == nullptr) why = fake_blas::refuse_algorithm(p, chosen, at, workspace, workspace_bytes);
  if (why == nullptr && *static_cast<const float *>(alpha) != 1.0f) why = "alpha is not 1";
  if (why == nullptr && sum_factor != 0.0f && sum_factor != 1.0f) why = "beta is not 0 or 1";
  if (why != nullptr) return refuse(CUBLAS_STATUS_INVALID_VALUE, why);
  const cuda_on_cpu::Graphs *device = fake_blas::runtime();
  if (const char *failure = fake_blas::misalignment_of(p)) {
    if (device == nullptr) return refuse(CUBLAS_STATUS_EXECUTION_FAILED, failure);
    refuse(CUBLAS_STATUS_SUCCESS, failure);
    device->fail_later(cudaErrorMisalignedAddress);
    return CUBLAS_STATUS_SUCCESS;
  }
  if (device != nullptr) {
    for (const void *data :
         {a, b, c, static_cast<const void *>(d), descriptor->bias, descriptor->a_scale,
          descriptor->b_scale, static_cast<const void *>(workspace)}) {
      if (!device->is_foreign(data)) continue;
      refuse(CUBLAS_STATUS_SUCCESS, "memory of another device");
      device->fail_later(cudaErrorIllegalAddress);
      return CUBLAS_STATUS_SUCCESS;
    }
  }
  const auto number = static_cast<int>(chosen.number);
  if (state().on_matmul != nullptr) state().on_matmul(number);
  std::unique_lock<std::mutex> lock(fake_blas::state_mutex);
  state().calls.push_back({p.m(), p.n(), p.k(), p.a.type, p.b.type, p.d.type,
                           static_cast<cublasOperation_t>(descriptor->transa),
                           static_cast<cublasOperation_t>(descriptor->transb), descriptor->a_mode,
                           descriptor->b_mode, p.has_bias(), descriptor->fast != 0, at.accumulates,
                           descriptor->sm_target, number, workspace_bytes, stream});
  lock.unlock();
  const auto product = [desc = *descriptor, a_layout = *a_layout, b_layout = *b_layout,
                        c_layout = *c_layout, d_layout = *d_layout, at, workspace,
                        bytes = chosen.workspace] {
    const cuda_on_cpu::DeviceAccess access;
    /* All of it may be written by an algorithm. */
    if (bytes > 0) std::memset(workspace, 0xA5, bytes);
    fake_blas::compute({desc, a_layout, b_layout, c_layout, d_layout}, at);
  };
  if (device == nullptr || !device->is_deferred(stream)) {
    product();
  } else if (device->enqueue(stream, product) != 0) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
