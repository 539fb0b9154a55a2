/* Describing a product to cuBLASLt, and choosing its algorithm. */
#include "kernels/cuda/plan.h"

#include <algorithm>

#include "kernels/check/calls.h"

namespace octavo::cuda {
namespace {

cudaDataType type_of(uint32_t dtype) {
  switch (dtype) {
    case OCTAVO_F32: return CUDA_R_32F;
    case OCTAVO_BF16: return CUDA_R_16BF;
    case OCTAVO_F16: return CUDA_R_16F;
    case OCTAVO_E4M3FN: return CUDA_R_8F_E4M3;
    default: return CUDA_R_8F_E5M2;
  }
}

/* The first failure of a sequence of calls; later ones are not made. */
class Steps {
 public:
  template <typename Function, typename... Arguments>
  void operator()(Function function, Arguments... arguments) {
    if (status_ == CUBLAS_STATUS_SUCCESS) status_ = function(arguments...);
  }
  cublasStatus_t status() const { return status_; }

 private:
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
};

/* A row-major [rows, cols] of stride elements is column-major [cols, rows]. */
void describe_matrix(const Blas &blas, Steps &step, uint32_t dtype, int64_t rows, int64_t cols,
                     int64_t stride, cublasLtMatrixLayout_t *out) {
  step(blas.MatrixLayoutCreate, out, type_of(dtype), static_cast<uint64_t>(cols),
       static_cast<uint64_t>(rows), stride);
}

template <typename Value>
void set(const Blas &blas, Steps &step, cublasLtMatmulDesc_t descriptor,
         cublasLtMatmulDescAttributes_t attribute, const Value &value) {
  step(blas.MatmulDescSetAttribute, descriptor, attribute, static_cast<const void *>(&value),
       sizeof(value));
}

template <typename Value>
void prefer(const Blas &blas, Steps &step, cublasLtMatmulPreference_t preference,
            cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
  step(blas.MatmulPreferenceSetAttribute, preference, attribute, static_cast<const void *>(&value),
       sizeof(value));
}

/* The addresses of one call; the heuristics, too, look at how they are aligned. */
void set_addresses(const Blas &blas, Steps &step, const PlanKey &key,
                   cublasLtMatmulDesc_t descriptor, const Operands &o) {
  if (OCTAVO_DTYPE_BITS(key.a_dtype) == 8) {
    set(blas, step, descriptor, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, o.b_scale);
    set(blas, step, descriptor, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, o.a_scale);
  }
  if (key.bias_dtype != 0) set(blas, step, descriptor, CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias);
}

bool is_k_major(const PlanKey &key, uint32_t operand) {
  return (key.layout & operand) != 0;
}

constexpr int kMostAlgorithms = 8;

/* The algorithms that the heuristics name, the best guess first. */
cublasStatus_t ask(const Blas &blas, const PlanKey &key, const Plan &plan,
                   cublasLtMatmulDesc_t descriptor, int count,
                   cublasLtMatmulHeuristicResult_t *results, int *found) {
  cublasLtMatmulPreference_t preference = nullptr;
  Steps step;
  step(blas.MatmulPreferenceCreate, &preference);
  prefer(blas, step, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, key.workspace);
  prefer(blas, step, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
         uint32_t{1} << key.b_alignment);
  prefer(blas, step, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
         uint32_t{1} << key.a_alignment);
  prefer(blas, step, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
         uint32_t{1} << key.d_alignment);
  prefer(blas, step, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
         uint32_t{1} << key.d_alignment);
  step(blas.MatmulAlgoGetHeuristic, blas.handle, descriptor, plan.b, plan.a, plan.d, plan.d,
       preference, count, results, found);
  if (preference != nullptr) blas.MatmulPreferenceDestroy(preference);
  return step.status();
}

}  // namespace

size_t PlanHash::operator()(const PlanKey &key) const {
  uint64_t hash = 0;
  const auto mix = [&hash](uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    hash ^= hash >> 29;
  };
  for (const int64_t size : {key.m, key.n, key.k, key.a_stride, key.b_stride, key.d_stride})
    mix(static_cast<uint64_t>(size));
  mix(key.workspace);
  for (const uint32_t dtype : {key.a_dtype, key.b_dtype, key.d_dtype, key.bias_dtype}) mix(dtype);
  mix(static_cast<uint64_t>(key.a_scaling) << 8 | static_cast<uint64_t>(key.b_scaling));
  mix(static_cast<uint64_t>(key.sm_target) << 32 | key.layout);
  mix(uint64_t{key.accumulates} << 32 | uint64_t{key.is_fast} << 24 |
      uint64_t{key.a_alignment} << 12 | uint64_t{key.b_alignment} << 8 |
      uint64_t{key.d_alignment} << 4 | key.bias_alignment);
  return hash;
}

cublasStatus_t make_descriptor(const Blas &blas, const PlanKey &key, cublasLtMatmulDesc_t *out) {
  Steps step;
  step(blas.MatmulDescCreate, out, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const int32_t first = is_k_major(key, OCTAVO_GEMM_B_KN) ? CUBLAS_OP_N : CUBLAS_OP_T;
  const int32_t second = is_k_major(key, OCTAVO_GEMM_A_KM) ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(blas, step, *out, CUBLASLT_MATMUL_DESC_TRANSA, first);
  set(blas, step, *out, CUBLASLT_MATMUL_DESC_TRANSB, second);
  if (OCTAVO_DTYPE_BITS(key.a_dtype) == 8) {
    set(blas, step, *out, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, key.b_scaling);
    set(blas, step, *out, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, key.a_scaling);
    set(blas, step, *out, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(key.is_fast));
  }
  if (key.bias_dtype != 0) {
    const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    set(blas, step, *out, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set(blas, step, *out, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
        static_cast<int32_t>(type_of(key.bias_dtype)));
  }
  if (key.sm_target != 0)
    set(blas, step, *out, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, key.sm_target);
  return step.status();
}

cublasStatus_t multiply(const Blas &blas, const PlanKey &key, const Plan &plan,
                        cublasLtMatmulDesc_t descriptor, const Operands &o) {
  static constexpr float kOne = 1.0f; /* on the host, and there as long as a captured graph */
  static constexpr float kZero = 0.0f;
  Steps step;
  set_addresses(blas, step, key, descriptor, o);
  step(blas.Matmul, blas.handle, descriptor, static_cast<const void *>(&kOne), o.b, plan.b, o.a,
       plan.a, static_cast<const void *>(key.accumulates != 0 ? &kOne : &kZero), o.c, plan.d, o.d,
       plan.d, &plan.algorithm, o.workspace, static_cast<size_t>(key.workspace), o.stream);
  return step.status();
}

cublasStatus_t make_plan(const Blas &blas, const PlanKey &key, const Tuning &tuning, Plan *plan) {
  const bool a_km = is_k_major(key, OCTAVO_GEMM_A_KM);
  const bool b_kn = is_k_major(key, OCTAVO_GEMM_B_KN);
  cublasLtMatmulDesc_t descriptor = nullptr;
  Steps step;
  step(make_descriptor, blas, key, &descriptor);
  describe_matrix(blas, step, key.a_dtype, a_km ? key.k : key.m, a_km ? key.m : key.k, key.a_stride,
                  &plan->a);
  describe_matrix(blas, step, key.b_dtype, b_kn ? key.k : key.n, b_kn ? key.n : key.k, key.b_stride,
                  &plan->b);
  describe_matrix(blas, step, key.d_dtype, key.m, key.n, key.d_stride, &plan->d);
  cublasStatus_t status = step.status();
  cublasLtMatmulHeuristicResult_t results[kMostAlgorithms] = {};
  int found = 0;
  const int wanted = std::clamp(tuning.count, 1, kMostAlgorithms);
  if (status == CUBLAS_STATUS_SUCCESS) {
    set_addresses(blas, step, key, descriptor, tuning.operands);
    status = step.status();
    if (status == CUBLAS_STATUS_SUCCESS)
      status = ask(blas, key, *plan, descriptor, wanted, results, &found);
    if (is_refusal(status)) found = 0, status = CUBLAS_STATUS_SUCCESS;
  }
  float best = -1.0f;
  for (int i = 0; i < found && status == CUBLAS_STATUS_SUCCESS; ++i) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
    if (results[i].workspaceSize > key.workspace) continue;
    if (tuning.count == 0) {
      plan->algorithm = results[i].algo;
      plan->is_possible = true;
      break;
    }
    const float time =
        time_algorithm(blas, key, *plan, descriptor, tuning.operands, results[i].algo);
    if (time < 0.0f || (plan->is_possible && time >= best)) continue;
    plan->algorithm = results[i].algo;
    plan->is_possible = true;
    best = time;
  }
  if (descriptor != nullptr) blas.MatmulDescDestroy(descriptor);
  return status;
}

void destroy_plan(const Blas &blas, Plan *plan) {
  for (cublasLtMatrixLayout_t *layout : {&plan->a, &plan->b, &plan->d}) {
    if (*layout != nullptr) blas.MatrixLayoutDestroy(*layout);
    *layout = nullptr;
  }
}

}  // namespace octavo::cuda
