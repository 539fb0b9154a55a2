// A file with cuBLASLt's name and too little in it: OCTAVO_FAKE_BLAS_VERSION is what it answers
// when asked for its version, and it has no other function.
#include <cstddef>

extern "C" size_t cublasLtGetVersion(void) {
  return OCTAVO_FAKE_BLAS_VERSION;
}
