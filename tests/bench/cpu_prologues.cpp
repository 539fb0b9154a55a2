// A norm or an activation before a linear layer, 2048 x 2048 bf16: fused with the cast of its
// output, and as a pass of its own followed by the cast. Rate: elements of the output.
#include "tests/bench/bench.h"

namespace octavo::bench {
namespace {

constexpr int64_t kSize = 2048;

struct PrologueRow {
  const char *name;
  uint32_t op;
};

void prologue_row(benchmark::State &state, PrologueRow row, bool fused) {
  const int64_t in_cols = row.op == OCTAVO_PROLOGUE_SWIGLU ? 2 * kSize : kSize;
  const octavo_tensor in =
      tensor(normals_bf16("prologue.in", 2 * kSize * kSize), kSize, in_cols, OCTAVO_BF16);
  const octavo_tensor gamma = tensor(normals("prologue.gamma", kSize), 1, kSize, OCTAVO_F32);
  octavo_tensor plain =
      tensor(memory("prologue.plain", kSize * kSize * 2), kSize, kSize, OCTAVO_BF16);
  octavo_tensor plain_shape = plain;
  if (fused) plain_shape.data = nullptr;
  octavo_tensor out = tensor(memory("prologue.out", kSize * kSize), kSize, kSize, OCTAVO_E4M3FN);
  auto p = make_call<octavo_prologue>(OCTAVO_KIND_PROLOGUE);
  p.op = row.op;
  p.eps = 1e-5f;
  p.in = &in;
  const bool is_norm = row.op == OCTAVO_PROLOGUE_RMS_NORM || row.op == OCTAVO_PROLOGUE_LAYER_NORM;
  if (is_norm) p.gamma = &gamma;

  float scale = 32.0f;
  float scale_inv = 0;
  float amax = 0;
  const octavo_scale out_scale_inv = tensor_scale(&scale_inv);
  auto q = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  q.in = &plain_shape;
  q.out = &out;
  q.out_scale_inv = &out_scale_inv;
  q.scale = &scale;
  q.amax = &amax;
  q.format_max = 448.0f;
  q.rule = OCTAVO_RULE_GIVEN;

  auto c = make_call<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);
  c.prologue = &p;
  if (fused) {
    c.quantize = &q;
  } else {
    c.out = &plain;
  }
  c.workspace = workspace_of("prologue.workspace", c);
  for (auto _ : state) {
    if (fused) {
      if (!passed(state, kernels().prologue_quantize(context(), &c), "prologue_quantize")) return;
    } else {
      if (!passed(state, kernels().prologue(context(), &c), "prologue")) return;
      if (!passed(state, kernels().quantize(context(), &q), "quantize")) return;
    }
    benchmark::ClobberMemory();
  }
  count_items(state, kSize * kSize);
}

}  // namespace

void add_prologues() {
  constexpr PrologueRow kRows[] = {{"rms_norm", OCTAVO_PROLOGUE_RMS_NORM},
                                   {"layer_norm", OCTAVO_PROLOGUE_LAYER_NORM},
                                   {"gelu_tanh", OCTAVO_PROLOGUE_GELU_TANH},
                                   {"swiglu", OCTAVO_PROLOGUE_SWIGLU}};
  for (const PrologueRow &row : kRows) {
    for (const bool fused : {true, false}) {
      benchmark::RegisterBenchmark(
          (std::string("Prologue/") + row.name + (fused ? "/fused" : "/two_passes")).c_str(),
          prologue_row, row, fused);
    }
  }
}

}  // namespace octavo::bench
