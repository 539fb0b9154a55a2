/* kernels/cuda/plan.h: one kind of product as cuBLASLt wants it described, and how it computes it.
 *
 * Everything that the choice of an algorithm looks at is in the key; addresses are not. cuBLASLt
 * thinks in columns: a matrix of rows is its transpose there, so d^T = b a^T, and its first operand
 * is our b.
 */
#pragma once

#include <cstdint>

#include "kernels/cuda/blas.h"

namespace octavo::cuda {

/* Of addresses: 16 bytes are what the widest loads need. More would let the bits of a product
 * depend on where its tensors are. */
constexpr int kMostAlignment = 4;

struct PlanKey {
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t a_stride;
  int64_t b_stride;
  int64_t d_stride;
  uint64_t workspace; /* bytes that the algorithm may use */
  uint32_t a_dtype;   /* OCTAVO_... */
  uint32_t b_dtype;
  uint32_t d_dtype;
  uint32_t bias_dtype; /* 0: no bias */
  int32_t a_scaling;   /* cublasLtMatmulMatrixScale_t */
  int32_t b_scaling;
  int32_t sm_target; /* multiprocessors to plan for; 0: all */
  uint32_t layout;   /* OCTAVO_GEMM_... */
  uint8_t accumulates;
  uint8_t is_fast;
  uint8_t a_alignment; /* the address is a multiple of 2^this; see kMostAlignment */
  uint8_t b_alignment;
  uint8_t d_alignment;
  uint8_t bias_alignment; /* 0: no bias */

  bool operator==(const PlanKey &) const = default;
};

struct PlanHash {
  size_t operator()(const PlanKey &key) const;
};

/* Where one call's operands are; nothing of it outlives the call. */
struct Operands {
  const void *a;
  const void *b;
  const void *c; /* what is added to the product; d where nothing is */
  void *d;
  const void *a_scale; /* null: 1 */
  const void *b_scale;
  const void *bias;
  void *workspace;
  cudaStream_t stream;
};

struct Plan {
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t b = nullptr;
  cublasLtMatrixLayout_t d = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
  bool is_possible = false; /* cuBLASLt has an algorithm */
};

/* What a tuned plan times: the first `count` algorithms, with these operands. */
struct Tuning {
  int count = 0; /* 0: the first algorithm is taken unseen */
  Operands operands = {};
};

/* cuBLASLt's answer. That it has no algorithm is a plan that is not possible, and no failure; a
 * question that it calls malformed is one. The plan is to be destroyed whatever the answer. */
cublasStatus_t make_plan(const Blas &blas, const PlanKey &key, const Tuning &tuning, Plan *plan);
void destroy_plan(const Blas &blas, Plan *plan);

/* A descriptor with all of the key but the addresses. */
cublasStatus_t make_descriptor(const Blas &blas, const PlanKey &key, cublasLtMatmulDesc_t *out);

/* One product on the stream; `descriptor` is for this call alone. */
cublasStatus_t multiply(const Blas &blas, const PlanKey &key, const Plan &plan,
                        cublasLtMatmulDesc_t descriptor, const Operands &operands);

/* The shortest time of `algorithm` in milliseconds, negative where it failed; waits for the stream.
 */
float time_algorithm(const Blas &blas, const PlanKey &key, const Plan &plan,
                     cublasLtMatmulDesc_t descriptor, const Operands &operands,
                     const cublasLtMatmulAlgo_t &algorithm);

}  // namespace octavo::cuda
