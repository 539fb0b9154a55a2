/* Opening cuBLASLt, and what its answers mean. */
#include "kernels/cuda/blas.h"

#include <dlfcn.h>

#include <cstdlib>

namespace octavo::cuda {
namespace {

constexpr char kRemedy[] =
    "install cuBLAS of CUDA 13 (package libcublas-13-0, or nvidia-cublas of pip), add its folder "
    "to LD_LIBRARY_PATH, or set OCTAVO_CUBLASLT to the file";

octavo_status status_of(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return OCTAVO_OK;
    case CUBLAS_STATUS_ALLOC_FAILED: return OCTAVO_NO_RESOURCE;
    case CUBLAS_STATUS_INVALID_VALUE: return OCTAVO_INVALID;
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_NOT_SUPPORTED: return OCTAVO_UNSUPPORTED;
    default: return OCTAVO_FAILED_DEVICE;
  }
}

/* What a reader of the text can do about it. */
const char *remedy_of(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the CUDA runtime or the driver did not start, see nvidia-smi";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "memory of the device or the host is full, use a smaller batch";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "the library has no code for this device, install a newer one";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "set OCTAVO_CUDA_GEMM=reference to compute it without the library";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "expected a question that it understands: report this line, and set "
             "OCTAVO_CUDA_GEMM=reference to go on without the library";
    default: return "run the process with CUDA_LAUNCH_BLOCKING=1 to find the call that failed";
  }
}

}  // namespace

octavo_status open_blas(Context &context, Blas *out) {
  const char *chosen = secure_getenv(kBlasVariable);
  const char *path = chosen == nullptr || *chosen == '\0' ? kBlasName : chosen;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char *why = dlerror();
    return report_error(context.caller, OCTAVO_NO_RESOURCE,
                        "gemm: expected the library %s, which multiplies on CUDA devices, but it "
                        "does not open: %s; %s",
                        path, why == nullptr ? "no reason given" : why, kRemedy);
  }
  const char *missing = nullptr;
  const auto find = [&](const char *name) {
    void *symbol = dlsym(library, name);
    if (symbol == nullptr && missing == nullptr) missing = name;
    return symbol;
  };
#define OCTAVO_BLAS_FIND(name) \
  out->name = reinterpret_cast<decltype(out->name)>(find("cublasLt" #name));
  OCTAVO_BLAS_FUNCTIONS(OCTAVO_BLAS_FIND)
#undef OCTAVO_BLAS_FIND
  const size_t version = out->GetVersion == nullptr ? 0 : out->GetVersion();
  if (version < kOldestBlas) {
    dlclose(library);
    return report_error(context.caller, OCTAVO_INCOMPATIBLE,
                        "gemm: expected cuBLASLt %zu or later, found version %zu in %s; %s",
                        kOldestBlas, version, path, kRemedy);
  }
  if (missing != nullptr) {
    dlclose(library);
    return report_error(context.caller, OCTAVO_INCOMPATIBLE,
                        "gemm: expected the function %s in %s, version %zu, found none; %s",
                        missing, path, version, kRemedy);
  }
  return checked(context, *out, "opening cuBLASLt", out->Create(&out->handle));
}

void close_blas(Blas *blas) {
  if (blas->handle != nullptr) blas->Destroy(blas->handle);
  blas->handle = nullptr;
}

octavo_status checked(Context &context, const Blas &blas, const char *what, cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return OCTAVO_OK;
  octavo_status result = report_error(
      context.caller, status_of(status), "gemm: %s: cuBLASLt answered %s: %s; %s", what,
      blas.GetStatusName(status), blas.GetStatusString(status), remedy_of(status));
  const cudaError_t later = cudaPeekAtLastError();
  if (status_of(status) == OCTAVO_FAILED_DEVICE && later != cudaSuccess)
    result = checked(context, "gemm", later);
  return result;
}

}  // namespace octavo::cuda
