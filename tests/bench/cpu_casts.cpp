// Casts to FP8 with one scale: ours with the amax, PyTorch's algorithm without. Rate: elements.
//
// 512 KiB and 256 MiB are the bytes of the fp32 input; the bf16 rows have as many elements.
#include "tests/bench/avx512.h"
#include "tests/bench/bench.h"

namespace octavo::bench {
namespace {

constexpr int64_t kCached = int64_t{128} << 10;  // elements
constexpr int64_t kLarge = int64_t{64} << 20;
constexpr int64_t kCols = 4096;

enum class Scaling { kGiven, kPow2, kCurrent };

struct CastRow {
  const char *name;
  uint32_t in;
  uint32_t out;
  Scaling scaling;
};

void cast_row(benchmark::State &state, CastRow row, int64_t elements) {
  const bool is_f32 = row.in == OCTAVO_F32;
  void *values = is_f32 ? static_cast<void *>(normals("cast.f32", elements))
                        : static_cast<void *>(normals_bf16("cast.bf16", elements));
  const octavo_tensor in = tensor(values, elements / kCols, kCols, row.in);
  octavo_tensor out =
      tensor(memory("cast.out", static_cast<uint64_t>(elements)), in.rows, kCols, row.out);
  float scale_inv = 0;
  float amax = 0;
  // The largest of a million normals is about 5.
  const float scale = row.scaling == Scaling::kPow2 ? 64.0f
                      : row.out == OCTAVO_E4M3FN    ? 83.7f
                                                    : 10432.1f;
  const octavo_scale out_scale_inv = tensor_scale(&scale_inv);
  auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  c.in = &in;
  c.out = &out;
  c.out_scale_inv = &out_scale_inv;
  c.amax = &amax;
  c.format_max = row.out == OCTAVO_E4M3FN ? 448.0f : 57344.0f;
  c.rule = row.scaling == Scaling::kCurrent ? OCTAVO_RULE_QUOTIENT : OCTAVO_RULE_GIVEN;
  if (row.scaling != Scaling::kCurrent) c.scale = &scale;
  c.workspace = workspace_of("cast.workspace", c);
  for (auto _ : state) {
    if (!passed(state, kernels().quantize(context(), &c), "quantize")) return;
    benchmark::ClobberMemory();
  }
  count_items(state, elements);
}

void aten_row(benchmark::State &state, int64_t elements) {
#if defined(__x86_64__)
  if (!has_avx512()) return state.SkipWithError("this CPU has no AVX-512");
  const float *in = normals("cast.f32", elements);
  auto *out = memory_of<uint8_t>("cast.out", elements);
  for (auto _ : state) {
    for_ranges(elements, elements / 16, [&](int64_t begin, int64_t end) {
      aten_cast_e4m3(in + begin, end - begin, 83.7f, out + begin);
    });
    benchmark::ClobberMemory();
  }
  count_items(state, elements);
#else
  static_cast<void>(elements);
  state.SkipWithError("no AVX-512 in this build");
#endif
}

void amax_row(benchmark::State &state, int64_t elements) {
  const octavo_tensor in =
      tensor(normals("cast.f32", elements), elements / kCols, kCols, OCTAVO_F32);
  float amax = 0;
  auto c = make_call<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX);
  c.in = &in;
  c.amax = &amax;
  for (auto _ : state) {
    if (!passed(state, kernels().compute_amax(context(), &c), "compute_amax")) return;
    benchmark::DoNotOptimize(amax);
  }
  count_items(state, elements);
}

}  // namespace

void add_casts() {
  constexpr CastRow kRows[] = {
      {"ours", OCTAVO_F32, OCTAVO_E4M3FN, Scaling::kGiven},
      {"ours_pow2", OCTAVO_F32, OCTAVO_E4M3FN, Scaling::kPow2},
      {"ours_current", OCTAVO_F32, OCTAVO_E4M3FN, Scaling::kCurrent},
      {"ours_e5m2", OCTAVO_F32, OCTAVO_E5M2, Scaling::kGiven},
      {"ours_bf16", OCTAVO_BF16, OCTAVO_E4M3FN, Scaling::kGiven},
      {"ours_bf16_pow2", OCTAVO_BF16, OCTAVO_E4M3FN, Scaling::kPow2},
  };
  // Largest first, so that memory of a name is allocated once.
  for (const auto &[size, elements] : {std::pair{"256MiB", kLarge}, std::pair{"512KiB", kCached}}) {
    for (const CastRow &row : kRows) {
      benchmark::RegisterBenchmark((std::string("Cast/") + row.name + "/" + size).c_str(), cast_row,
                                   row, elements);
    }
    benchmark::RegisterBenchmark((std::string("Cast/aten/") + size).c_str(), aten_row, elements);
    add_two_threads(std::string("Cast/ours/") + size, cast_row, kRows[0], elements);
    add_two_threads(std::string("Cast/aten/") + size, aten_row, elements);
    benchmark::RegisterBenchmark((std::string("Cast/amax_only/") + size).c_str(), amax_row,
                                 elements);
  }
}

}  // namespace octavo::bench
