/* tests/kernels/cuda/gemm_expect.h: products whose bits and calls of the library are expected. */
#ifndef OCTAVO_TESTS_KERNELS_CUDA_GEMM_EXPECT_H
#define OCTAVO_TESTS_KERNELS_CUDA_GEMM_EXPECT_H

#include "tests/kernels/cuda/gemm_case.h"

namespace octavo::test {

constexpr uint32_t kPlain[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16};

/* Equal bits, by so many calls of the library: 0 is the reference kernel. */
inline void expect_gemm(GemmDevices &devices, const GemmCase &g, size_t calls = 1) {
  fake_library().calls.clear();
  EXPECT_EQ(run_gemm(devices, g), OCTAVO_OK)
      << g.text() << ": " << devices.host().last_text() << " / " << fake_library().refusal;
  EXPECT_EQ(fake_library().calls.size(), calls) << g.text();
}

/* Biases, outputs and sums of every kind for one pair of operands. */
inline void expect_outputs(GemmDevices &devices, const GemmCase &base, size_t calls = 1) {
  for (const uint32_t d : kPlain) {
    for (const uint32_t bias : {uint32_t{0}, kPlain[0], kPlain[1], kPlain[2]}) {
      for (int flags = 0; flags < 4; ++flags) {
        GemmCase g = base;
        g.d = d;
        g.bias = bias;
        g.accumulates = (flags & 1) != 0;
        g.bias_after = (flags & 2) != 0;
        expect_gemm(devices, g, calls);
      }
    }
  }
}

}  // namespace octavo::test

#endif
