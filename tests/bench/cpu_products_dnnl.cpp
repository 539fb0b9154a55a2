// The same products by oneDNN: bf16 as it comes, bf16 with packed weights, fp32 with and without
// the conversion of FP8 operands. Rate: FLOP.
//
// oneDNN has no FP8 matmul for CPUs without AMX or AVX10.2, so this is what a host would call.
#include "tests/bench/products.h"

#ifdef OCTAVO_BENCH_DNNL

#include <oneapi/dnnl/dnnl.hpp>

namespace octavo::bench {
namespace {

using dnnl::memory;
using Type = memory::data_type;
using Tag = memory::format_tag;

const dnnl::engine &cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

class Product {
 public:
  // weights: b [N, K] as it lies in memory, or the layout that oneDNN likes best.
  Product(const ProductShape &s, Type type, bool packed, void *a, void *b, void *d)
      : stream_(cpu()),
        primitive_(describe(s, type, packed)),
        a_(memory::desc({s.m, s.k}, type, Tag::ab), cpu(), a),
        b_(memory::desc({s.k, s.n}, type, Tag::ba), cpu(), b),
        d_(memory::desc({s.m, s.n}, Type::f32, Tag::ab), cpu(), d) {
    if (!packed) return;
    const memory plain = b_;
    b_ = memory(description_.weights_desc(), cpu());
    dnnl::reorder(plain, b_).execute(stream_, const_cast<memory &>(plain), b_);
    stream_.wait();
  }

  void run() {
    primitive_.execute(stream_, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, d_}});
    stream_.wait();
  }

 private:
  dnnl::matmul describe(const ProductShape &s, Type type, bool packed) {
    const memory::desc a({s.m, s.k}, type, Tag::ab);
    const memory::desc b({s.k, s.n}, type, packed ? Tag::any : Tag::ba);
    const memory::desc d({s.m, s.n}, Type::f32, Tag::ab);
#if DNNL_VERSION_MAJOR >= 3
    description_ = dnnl::matmul::primitive_desc(cpu(), a, b, d);
#else
    description_ = dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, d), cpu());
#endif
    return dnnl::matmul(description_);
  }

  dnnl::stream stream_;
  dnnl::matmul::primitive_desc description_;
  dnnl::matmul primitive_;
  memory a_;
  memory b_;
  memory d_;
};

// oneDNN has no bf16 product for a CPU without AVX-512.
void bf16_rows(benchmark::State &state, const ProductShape &s, bool packed, void *a, void *b,
               float *d) {
  try {
    Product product(s, Type::bf16, packed, a, b, d);
    for (auto _ : state) {
      product.run();
      benchmark::ClobberMemory();
    }
  } catch (const dnnl::error &e) {
    if (e.status != dnnl_unimplemented) throw;
    state.SkipWithError("oneDNN has no such product for this CPU");
  }
}

void bf16_row(benchmark::State &state, const ProductShape &s, bool packed) {
  bf16_rows(state, s, packed, normals_bf16("gemm.bf16.a", s.m * s.k),
            normals_bf16("gemm.bf16.b", s.n * s.k), memory_of<float>("gemm.d", s.m * s.n));
}

void f32_row(benchmark::State &state, const ProductShape &s, bool decodes) {
  const std::string name = std::string("gemm.") + s.name;
  const Codes a = codes(name + ".a", s.m, s.k);
  const Codes b = codes(name + ".b", s.n, s.k);
  auto *plain_a = memory_of<float>("gemm.f32.a", s.m * s.k);
  auto *plain_b = memory_of<float>("gemm.f32.b", s.n * s.k);
  Product product(s, Type::f32, false, plain_a, plain_b, memory_of<float>("gemm.d", s.m * s.n));
  decode_operand(a, plain_a);
  decode_operand(b, plain_b);
  for (auto _ : state) {
    if (decodes) {
      decode_operand(a, plain_a);
      decode_operand(b, plain_b);
    }
    product.run();
    benchmark::ClobberMemory();
  }
}

}  // namespace

void add_dnnl_products() {
  const dnnl_version_t *v = dnnl_version();
  benchmark::AddCustomContext("onednn", std::to_string(v->major) + "." + std::to_string(v->minor) +
                                            "." + std::to_string(v->patch));
  const auto bf16 = [](benchmark::State &state, const ProductShape &s) {
    bf16_row(state, s, false);
  };
  add_for_products("Gemm/dnnl_bf16", bf16);
  add_for_products_on_two_threads("Gemm/dnnl_bf16", bf16);
  add_for_products("Gemm/dnnl_bf16_packed", [](benchmark::State &state, const ProductShape &s) {
    bf16_row(state, s, true);
  });
  add_for_products("Gemm/dnnl_f32_decode",
                   [](benchmark::State &state, const ProductShape &s) { f32_row(state, s, true); });
  const auto f32 = [](benchmark::State &state, const ProductShape &s) { f32_row(state, s, false); };
  add_for_products("Gemm/dnnl_f32", f32);
  add_for_products_on_two_threads("Gemm/dnnl_f32", f32);
}

void dnnl_small_product(benchmark::State &state, int64_t m, int64_t n, int64_t k, void *x,
                        void *weights, float *d, bool packed) {
  bf16_rows(state, {"small", m, n, k}, packed, x, weights, d);
}

}  // namespace octavo::bench

#else

namespace octavo::bench {

void add_dnnl_products() {}

}  // namespace octavo::bench

#endif
