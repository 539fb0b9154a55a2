// The same products by OpenBLAS's sgemm, with and without the conversion of FP8 operands. Rate:
// FLOP. OpenBLAS has no narrower type in the builds that distributions ship.
#include "tests/bench/products.h"

#ifdef OCTAVO_BENCH_OPENBLAS

#include <cblas.h>

namespace octavo::bench {
namespace {

void f32_row(benchmark::State &state, const ProductShape &s, bool decodes) {
  const std::string name = std::string("gemm.") + s.name;
  const Codes a = codes(name + ".a", s.m, s.k);
  const Codes b = codes(name + ".b", s.n, s.k);
  auto *plain_a = memory_of<float>("gemm.f32.a", s.m * s.k);
  auto *plain_b = memory_of<float>("gemm.f32.b", s.n * s.k);
  auto *d = memory_of<float>("gemm.d", s.m * s.n);
  decode_operand(a, plain_a);
  decode_operand(b, plain_b);
  const auto m = static_cast<blasint>(s.m);
  const auto n = static_cast<blasint>(s.n);
  const auto k = static_cast<blasint>(s.k);
  for (auto _ : state) {
    if (decodes) {
      decode_operand(a, plain_a);
      decode_operand(b, plain_b);
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1.0f, plain_a, k, plain_b, k,
                0.0f, d, n);
    benchmark::ClobberMemory();
  }
}

}  // namespace

void add_openblas_products() {
  openblas_set_num_threads(1);
  benchmark::AddCustomContext("openblas", openblas_get_config());
  add_for_products("Gemm/openblas_f32_decode",
                   [](benchmark::State &state, const ProductShape &s) { f32_row(state, s, true); });
  const auto f32 = [](benchmark::State &state, const ProductShape &s) { f32_row(state, s, false); };
  add_for_products("Gemm/openblas_f32", f32);
  add_for_products_on_two_threads("Gemm/openblas_f32", f32);
}

}  // namespace octavo::bench

#else

namespace octavo::bench {

void add_openblas_products() {}

}  // namespace octavo::bench

#endif
