// What the handles of the fake cuBLASLt point to.
#pragma once

#include "fake_blas.h"
#include "graph.h"

struct cublasLtContext {
  int device;
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType scale;
  int32_t transa = CUBLAS_OP_N;
  int32_t transb = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int32_t bias_type = -1;
  int32_t sm_target = 0;
  int32_t a_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  int32_t b_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  int8_t fast = 0;
  const void *bias = nullptr;
  const void *a_scale = nullptr;
  const void *b_scale = nullptr;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type;
  uint64_t rows;
  uint64_t cols;
  int64_t ld;
};
struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D
};

namespace fake_blas {

State &state();
// Null: there is none in the process, and products run at once.
const cuda_on_cpu::Graphs *runtime();

// A product as its descriptors say.
struct Problem {
  const cublasLtMatmulDescOpaque_t &desc;
  const cublasLtMatrixLayoutOpaque_t &a, &b, &c, &d;

  uint64_t m() const { return d.rows; }
  uint64_t n() const { return d.cols; }
  uint64_t k() const { return desc.transa == CUBLAS_OP_T ? a.rows : a.cols; }
  bool is_float8() const { return a.type == CUDA_R_8F_E4M3 || a.type == CUDA_R_8F_E5M2; }
  bool has_bias() const { return desc.epilogue == CUBLASLT_EPILOGUE_BIAS; }
  // Equal for equal problems: what an algorithm was chosen for.
  uint64_t fingerprint() const;
};

size_t bytes_of(cudaDataType type);
inline bool is_float8(cudaDataType type) {
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

struct Addresses {
  const void *a, *b, *c;
  void *d;
  bool accumulates;
  const void *workspace;
  uint64_t workspace_bytes;
};

// Null, or why the library has no algorithm for it.
const char *refusal_of(const Problem &p);
// Null, or what is wrong about the addresses of a call.
const char *refusal_of(const Problem &p, const Addresses &at);
// Null, or what a kernel of the library would fail at: vectors at addresses that are no multiple of
// their 16 bytes, which no heuristic sees. The device is lost by that.
const char *misalignment_of(const Problem &p);
void compute(const Problem &p, const Addresses &at);

}  // namespace fake_blas
