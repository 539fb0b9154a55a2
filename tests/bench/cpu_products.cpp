// Our products: FP8 with one scale, with scales for blocks, and bf16. Rate: FLOP.
//
// Decoding and packing are inside the call, as in training, where both operands are new each time;
// in the row of fp8_packed b was brought into panel order before, as weights are.
#include "tests/bench/products.h"

#include "tests/bench/avx512.h"

namespace octavo::bench {
namespace {

octavo_tensor product_out(const ProductShape &s) {
  return tensor(memory_of<float>("gemm.d", s.m * s.n), s.m, s.n, OCTAVO_F32);
}

void fp8_row(benchmark::State &state, const ProductShape &s, bool packed) {
  const std::string name = std::string("gemm.") + s.name;
  const Codes a = codes(name + ".a", s.m, s.k);
  Codes b = codes(name + ".b", s.n, s.k);
  if (packed && !pack(state, name + ".b_packed", &b)) return;
  octavo_tensor d = product_out(s);
  auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
  c.a = &a.tensor;
  c.b = &b.tensor;
  c.d = &d;
  c.a_scale_inv = &a.scale_inv;
  c.b_scale_inv = &b.scale_inv;
  if (packed) c.layout = OCTAVO_GEMM_B_PACKED;
  run_gemm(state, c);
}

void bf16_row(benchmark::State &state, const ProductShape &s) {
  const octavo_tensor a = tensor(normals_bf16("gemm.bf16.a", s.m * s.k), s.m, s.k, OCTAVO_BF16);
  const octavo_tensor b = tensor(normals_bf16("gemm.bf16.b", s.n * s.k), s.n, s.k, OCTAVO_BF16);
  octavo_tensor d = product_out(s);
  auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
  c.a = &a;
  c.b = &b;
  c.d = &d;
  run_gemm(state, c);
}

struct BlockOperand {
  octavo_tensor tensor;
  octavo_scale scale_inv;
};

// A matrix of normals in blocks.
BlockOperand block_operand(benchmark::State &state, const std::string &name, int64_t rows,
                           int64_t cols, uint32_t granularity, uint32_t rule) {
  const bool is_mx = granularity == OCTAVO_BLOCK_1X32;
  const int64_t scale_cols = cols / (is_mx ? 32 : 128);
  const octavo_tensor in = tensor(normals("codes.plain", rows * cols), rows, cols, OCTAVO_F32);
  BlockOperand result = {
      tensor(memory(name, static_cast<uint64_t>(rows * cols)), rows, cols, OCTAVO_E4M3FN),
      OCTAVO_SCALE(memory_of<float>(name + ".scale_inv", rows * scale_cols), scale_cols,
                   is_mx ? OCTAVO_E8M0FNU : OCTAVO_F32, granularity)};
  auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  c.in = &in;
  c.out = &result.tensor;
  c.out_scale_inv = &result.scale_inv;
  c.format_max = 448.0f;
  c.rule = rule;
  c.workspace = workspace_of("block.workspace", c);
  passed(state, kernels().quantize(context(), &c), "quantize");
  return result;
}

void block_row(benchmark::State &state, const ProductShape &s, uint32_t a_blocks, uint32_t b_blocks,
               uint32_t rule) {
  const BlockOperand a = block_operand(state, "gemm.block.a", s.m, s.k, a_blocks, rule);
  const BlockOperand b = block_operand(state, "gemm.block.b", s.n, s.k, b_blocks, rule);
  octavo_tensor d = product_out(s);
  auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
  c.a = &a.tensor;
  c.b = &b.tensor;
  c.d = &d;
  c.a_scale_inv = &a.scale_inv;
  c.b_scale_inv = &b.scale_inv;
  run_gemm(state, c);
}

}  // namespace

void decode_operand(const Codes &in, float *out) {
  const int64_t n = in.tensor.rows * in.tensor.cols;
#if defined(__x86_64__)
  if (has_avx512()) {
    aten_decode_e4m3(static_cast<const uint8_t *>(in.tensor.data), n, out);
    return;
  }
#endif
  octavo_tensor plain = tensor(out, in.tensor.rows, in.tensor.cols, OCTAVO_F32);
  auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
  c.in = &in.tensor;
  c.out = &plain;
  kernels().dequantize(context(), &c);
}

void add_products() {
  const auto fp8 = [](benchmark::State &state, const ProductShape &s) { fp8_row(state, s, false); };
  add_for_products("Gemm/fp8", fp8);
  add_for_products_on_two_threads("Gemm/fp8", fp8);
  add_for_products("Gemm/fp8_packed",
                   [](benchmark::State &state, const ProductShape &s) { fp8_row(state, s, true); });
  add_for_products("Gemm/ours_bf16", bf16_row);
  add_for_products("GemmBlock/128", [](benchmark::State &state, const ProductShape &s) {
    block_row(state, s, OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128, OCTAVO_RULE_QUOTIENT);
  });
  add_for_products("GemmBlock/128_pow2", [](benchmark::State &state, const ProductShape &s) {
    block_row(state, s, OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128, OCTAVO_RULE_POW2);
  });
  add_for_products("GemmBlock/mx", [](benchmark::State &state, const ProductShape &s) {
    block_row(state, s, OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_1X32, OCTAVO_RULE_MX_UP);
  });
}

}  // namespace octavo::bench
