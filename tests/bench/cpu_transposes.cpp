// Cast and transpose of 8192 x 4160 fp32 in one call, against the cast followed by a tiled byte
// transpose. Rate: elements; each moves 6 bytes at least, 4 in and 2 out.
#include "tests/bench/avx512.h"
#include "tests/bench/bench.h"

namespace octavo::bench {
namespace {

constexpr int64_t kRows = 8192;
constexpr int64_t kCols = 4160;

enum class How { kFused, kTwoPasses, kTransposeOnly };

void transpose_row(benchmark::State &state, How how) {
  if (how != How::kFused && !has_avx512()) {
    return state.SkipWithError("this CPU has no AVX-512");
  }
  const octavo_tensor in = tensor(normals("transpose.in", kRows * kCols), kRows, kCols, OCTAVO_F32);
  octavo_tensor out = tensor(memory("transpose.out", kRows * kCols), kRows, kCols, OCTAVO_E4M3FN);
  octavo_tensor out_t =
      tensor(memory("transpose.out_t", kRows * kCols), kCols, kRows, OCTAVO_E4M3FN);
  float scale = 83.7f;
  float scale_inv = 0;
  float amax = 0;
  const octavo_scale out_scale_inv = tensor_scale(&scale_inv);
  auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  c.in = &in;
  c.out = &out;
  if (how == How::kFused) c.out_t = &out_t;
  c.out_scale_inv = &out_scale_inv;
  c.scale = &scale;
  c.amax = &amax;
  c.format_max = 448.0f;
  c.rule = OCTAVO_RULE_GIVEN;
  c.workspace = workspace_of("transpose.workspace", c);
  for (auto _ : state) {
    if (how != How::kTransposeOnly &&
        !passed(state, kernels().quantize(context(), &c), "quantize")) {
      return;
    }
#if defined(__x86_64__)
    if (how != How::kFused) {
      transpose_bytes(static_cast<const uint8_t *>(out.data), kRows, kCols,
                      static_cast<uint8_t *>(out_t.data));
    }
#endif
    benchmark::ClobberMemory();
  }
  count_items(state, kRows * kCols);
}

}  // namespace

void add_transposes() {
  benchmark::RegisterBenchmark("CastTranspose/ours", transpose_row, How::kFused);
  benchmark::RegisterBenchmark("CastTranspose/two_passes", transpose_row, How::kTwoPasses);
  benchmark::RegisterBenchmark("CastTranspose/transpose_only", transpose_row, How::kTransposeOnly);
}

}  // namespace octavo::bench
