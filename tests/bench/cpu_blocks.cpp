// Casts with a scale for each block, 2048 x 2048 fp32: with the transposed form as training needs
// it, and without. Rate: elements.
#include "tests/bench/bench.h"

namespace octavo::bench {
namespace {

constexpr int64_t kSize = 2048;

struct BlockRow {
  const char *name;
  uint32_t granularity;
  uint32_t rule;
};

octavo_scale block_scale(const std::string &name, uint32_t granularity) {
  const bool is_mx = granularity == OCTAVO_BLOCK_1X32;
  const int64_t cols = kSize / (is_mx ? 32 : 128);
  return OCTAVO_SCALE(memory(name, kSize * kSize / 8), cols, is_mx ? OCTAVO_E8M0FNU : OCTAVO_F32,
                      granularity);
}

void block_row(benchmark::State &state, BlockRow row, bool transposed) {
  const octavo_tensor in = tensor(normals("block.in", kSize * kSize), kSize, kSize, OCTAVO_F32);
  octavo_tensor out = tensor(memory("block.out", kSize * kSize), kSize, kSize, OCTAVO_E4M3FN);
  octavo_tensor out_t = tensor(memory("block.out_t", kSize * kSize), kSize, kSize, OCTAVO_E4M3FN);
  const octavo_scale scale_inv = block_scale("block.scale", row.granularity);
  const octavo_scale scale_inv_t = block_scale("block.scale_t", row.granularity);
  auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  c.in = &in;
  c.out = &out;
  c.out_scale_inv = &scale_inv;
  if (transposed) {
    c.out_t = &out_t;
    c.out_t_scale_inv = &scale_inv_t;
  }
  c.format_max = 448.0f;
  c.rule = row.rule;
  c.workspace = workspace_of("block.workspace", c);
  for (auto _ : state) {
    if (!passed(state, kernels().quantize(context(), &c), "quantize")) return;
    benchmark::ClobberMemory();
  }
  count_items(state, kSize * kSize);
}

}  // namespace

void add_blocks() {
  constexpr BlockRow kRows[] = {
      {"1x128", OCTAVO_BLOCK_1X128, OCTAVO_RULE_QUOTIENT},
      {"1x128_pow2", OCTAVO_BLOCK_1X128, OCTAVO_RULE_POW2},
      {"128x128", OCTAVO_BLOCK_128X128, OCTAVO_RULE_QUOTIENT},
      {"mx_1x32", OCTAVO_BLOCK_1X32, OCTAVO_RULE_MX_UP},
  };
  for (const BlockRow &row : kRows) {
    for (const bool transposed : {false, true}) {
      benchmark::RegisterBenchmark(
          (std::string("CastBlock/") + row.name + (transposed ? "_and_transpose" : "")).c_str(),
          block_row, row, transposed);
    }
  }
}

}  // namespace octavo::bench
