// The products that bench_cpu's GEMM rows share: shapes, operands, rates.
#pragma once

#include "tests/bench/bench.h"

namespace octavo::bench {

struct ProductShape {
  const char *name;
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t flops() const { return 2 * m * n * k; }
};

// d[M, N] = a[M, K] b[N, K]^T, both with K contiguous, d in fp32.
inline constexpr ProductShape kProducts[] = {{"576x768x768", 576, 768, 768},
                                             {"1152x1024x1024", 1152, 1024, 1024},
                                             {"2304x2048x2048", 2304, 2048, 2048},
                                             {"144x4096x4096", 144, 4096, 4096}};

// Adds `row(state, shape)` for every shape as "<prefix>/<shape>".
template <typename Row>
void add_for_products(const std::string &prefix, Row row) {
  for (const ProductShape &shape : kProducts) {
    benchmark::RegisterBenchmark((prefix + "/" + shape.name).c_str(),
                                 [row, shape](benchmark::State &state) {
                                   row(state, shape);
                                   count_items(state, shape.flops());
                                 });
  }
}

// The same as "T2/<prefix>/<shape>" on two threads.
template <typename Row>
void add_for_products_on_two_threads(const std::string &prefix, Row row) {
  for (const ProductShape &shape : kProducts) {
    add_two_threads(prefix + "/" + shape.name, [row, shape](benchmark::State &state) {
      row(state, shape);
      count_items(state, shape.flops());
    });
  }
}

// One GEMM through the table, again and again.
inline void run_gemm(benchmark::State &state, octavo_gemm c) {
  c.workspace = workspace_of("gemm.workspace", c);
  for (auto _ : state) {
    if (!passed(state, kernels().gemm(context(), &c), "gemm")) return;
    benchmark::ClobberMemory();
  }
}

// The codes as fp32 values, without their scale: what an fp32 library needs first. PyTorch's
// algorithm where this CPU has AVX-512, else our kernels.
void decode_operand(const Codes &in, float *out);

// d[M, N] = x[M, K] weights[N, K]^T in bf16 by oneDNN, the weights as they are or packed before;
// only with OCTAVO_BENCH_DNNL.
void dnnl_small_product(benchmark::State &state, int64_t m, int64_t n, int64_t k, void *x,
                        void *weights, float *d, bool packed);

}  // namespace octavo::bench
