/* tests/kernels/cuda/cuda_table.h: the verbs of kernels/cuda as a kernels table, for backends that
 * run on device code which the CPU executes. It counts products.
 */
#ifndef OCTAVO_TESTS_KERNELS_CUDA_CUDA_TABLE_H
#define OCTAVO_TESTS_KERNELS_CUDA_CUDA_TABLE_H

#include <vector>

#include "kernels/check/calls.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/verbs.h"

namespace octavo::test {

inline std::vector<GemmShape> &products() {
  static std::vector<GemmShape> shapes;
  return shapes;
}

inline octavo_kernels cuda_table() {
  octavo_kernels t = *cuda::table();
  t.gemm = [](void *ctx, const octavo_gemm *c) {
    products().push_back(gemm_shape(*c));
    return cuda::gemm(ctx, c);
  };
  return t;
}

}  // namespace octavo::test

#endif
