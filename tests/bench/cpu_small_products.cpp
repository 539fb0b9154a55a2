// A linear layer on 1, 8 and 16 rows, weights [16384, 4096]: 64 MiB as FP8, 128 MiB as bf16, so
// reading them is most of the work. Rate: FLOP.
//
// The FP8 operand x is given; its cast is 4096 elements a row, nothing beside 64 Mi of weights.
#include "tests/bench/products.h"

namespace octavo::bench {
namespace {

constexpr int64_t kN = 16384;
constexpr int64_t kK = 4096;
constexpr int64_t kMostRows = 16;

void fp8_row(benchmark::State &state, int64_t m, bool packed) {
  const Codes x = codes("small.x" + std::to_string(m), m, kK);
  Codes weights = codes("small.weights", kN, kK);
  if (packed && !pack(state, "small.weights_packed", &weights)) return;
  octavo_tensor d = tensor(memory_of<float>("small.d", m * kN), m, kN, OCTAVO_F32);
  auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
  c.a = &x.tensor;
  c.b = &weights.tensor;
  c.d = &d;
  c.a_scale_inv = &x.scale_inv;
  c.b_scale_inv = &weights.scale_inv;
  if (packed) c.layout = OCTAVO_GEMM_B_PACKED;
  run_gemm(state, c);
  count_items(state, 2 * m * kN * kK);
}

void bf16_row(benchmark::State &state, int64_t m) {
  const octavo_tensor x = tensor(normals_bf16("small.x_bf16", kMostRows * kK), m, kK, OCTAVO_BF16);
  const octavo_tensor weights =
      tensor(normals_bf16("small.weights_bf16", kN * kK), kN, kK, OCTAVO_BF16);
  octavo_tensor d = tensor(memory_of<float>("small.d", m * kN), m, kN, OCTAVO_F32);
  auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
  c.a = &x;
  c.b = &weights;
  c.d = &d;
  run_gemm(state, c);
  count_items(state, 2 * m * kN * kK);
}

#ifdef OCTAVO_BENCH_DNNL
void dnnl_row(benchmark::State &state, int64_t m, bool packed) {
  dnnl_small_product(state, m, kN, kK, normals_bf16("small.x_bf16", kMostRows * kK),
                     normals_bf16("small.weights_bf16", kN * kK),
                     memory_of<float>("small.d", m * kN), packed);
  count_items(state, 2 * m * kN * kK);
}
#endif

}  // namespace

void add_small_products() {
  for (const int64_t m : {16, 8, 1}) {
    const std::string suffix = "/M" + std::to_string(m);
    benchmark::RegisterBenchmark(("SmallM/fp8" + suffix).c_str(), fp8_row, m, false);
    benchmark::RegisterBenchmark(("SmallM/fp8_packed" + suffix).c_str(), fp8_row, m, true);
    benchmark::RegisterBenchmark(("SmallM/ours_bf16" + suffix).c_str(), bf16_row, m);
#ifdef OCTAVO_BENCH_DNNL
    benchmark::RegisterBenchmark(("SmallM/dnnl_bf16" + suffix).c_str(), dnnl_row, m, false);
    benchmark::RegisterBenchmark(("SmallM/dnnl_bf16_packed" + suffix).c_str(), dnnl_row, m, true);
#endif
  }
}

}  // namespace octavo::bench
