/* kernels/cuda/blas.h: cuBLASLt, opened when the first product asks for it.
 *
 * The library is half a gigabyte, and its name and place are a machine's own matter: nothing links
 * it, so a machine without it still starts and gets a text that says what is missing. Only version
 * 13 is taken: the enumerators, structs and scale modes used here are those of its header, and a
 * process of CUDA 13 has no other.
 */
#pragma once

#include <cublasLt.h>

#include "kernels/cuda/context.h"

namespace octavo::cuda {

constexpr char kBlasName[] = "libcublasLt.so.13";
constexpr char kBlasVariable[] = "OCTAVO_CUBLASLT"; /* a path instead of the name */
constexpr size_t kOldestBlas = 130000;              /* 13.0.0, as cublasLtGetVersion counts */

#define OCTAVO_BLAS_FUNCTIONS(X)  \
  X(GetVersion)                   \
  X(GetStatusName)                \
  X(GetStatusString)              \
  X(Create)                       \
  X(Destroy)                      \
  X(MatmulDescCreate)             \
  X(MatmulDescDestroy)            \
  X(MatmulDescSetAttribute)       \
  X(MatrixLayoutCreate)           \
  X(MatrixLayoutDestroy)          \
  X(MatmulPreferenceCreate)       \
  X(MatmulPreferenceDestroy)      \
  X(MatmulPreferenceSetAttribute) \
  X(MatmulAlgoGetHeuristic)       \
  X(Matmul)

/* The functions of the library without their prefix: blas.Matmul is cublasLtMatmul. */
struct Blas {
#define OCTAVO_BLAS_MEMBER(name) decltype(&cublasLt##name) name = nullptr;
  OCTAVO_BLAS_FUNCTIONS(OCTAVO_BLAS_MEMBER)
#undef OCTAVO_BLAS_MEMBER
  cublasLtHandle_t handle = nullptr; /* of the context's device */
};

/* Fills *out. A library that is taken stays open until the process ends: it keeps state of its own.
 */
octavo_status open_blas(Context &context, Blas *out);
void close_blas(Blas *blas);

/* What an answer of the library means to a caller; the text, which begins with `what`, has gone to
 * the host. A later error of the device is kept as `checked` keeps it. */
octavo_status checked(Context &context, const Blas &blas, const char *what, cublasStatus_t status);

/* Whether the library says that it has no way to compute this product, rather than that it failed:
 * then another way is taken. CUBLAS_STATUS_INVALID_VALUE is none: it calls the question malformed,
 * which is a defect of ours that a slower way would hide. */
inline bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH;
}

}  // namespace octavo::cuda
