// FP8 to wider values: ours to bf16 and fp32, PyTorch's algorithm to fp32. Rate: elements.
//
// 256 KiB of codes fit a second-level cache with their bf16 values; 64 MiB fit none.
#include "tests/bench/avx512.h"
#include "tests/bench/bench.h"

namespace octavo::bench {
namespace {

constexpr int64_t kCols = 4096;

struct DecodeRow {
  const char *name;
  uint32_t in;
  uint32_t out;
  bool scaled;
};

void decode_row(benchmark::State &state, DecodeRow row, int64_t elements) {
  const std::string name = row.in == OCTAVO_E4M3FN ? "decode.e4m3" : "decode.e5m2";
  const Codes in = codes(name, elements / kCols, kCols, row.in);
  octavo_tensor out = tensor(memory("decode.out", static_cast<uint64_t>(elements) * 4),
                             elements / kCols, kCols, row.out);
  auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
  c.in = &in.tensor;
  if (row.scaled) c.scale_inv = &in.scale_inv;
  c.out = &out;
  for (auto _ : state) {
    if (!passed(state, kernels().dequantize(context(), &c), "dequantize")) return;
    benchmark::ClobberMemory();
  }
  count_items(state, elements);
}

void aten_row(benchmark::State &state, int64_t elements) {
#if defined(__x86_64__)
  if (!has_avx512()) return state.SkipWithError("this CPU has no AVX-512");
  const Codes in = codes("decode.e4m3", elements / kCols, kCols);
  auto *out = memory_of<float>("decode.out", elements);
  for (auto _ : state) {
    aten_decode_e4m3(static_cast<const uint8_t *>(in.tensor.data), elements, out);
    benchmark::ClobberMemory();
  }
  count_items(state, elements);
#else
  static_cast<void>(elements);
  state.SkipWithError("no AVX-512 in this build");
#endif
}

}  // namespace

void add_decodes() {
  constexpr DecodeRow kRows[] = {
      {"ours", OCTAVO_E4M3FN, OCTAVO_BF16, false},
      {"ours_scaled", OCTAVO_E4M3FN, OCTAVO_BF16, true},
      {"ours_e5m2", OCTAVO_E5M2, OCTAVO_BF16, false},
      {"ours_f32", OCTAVO_E4M3FN, OCTAVO_F32, true},
  };
  for (const auto &[size, elements] :
       {std::pair{"64MiB", int64_t{64} << 20}, std::pair{"256KiB", int64_t{256} << 10}}) {
    for (const DecodeRow &row : kRows) {
      benchmark::RegisterBenchmark((std::string("Decode/") + row.name + "/" + size).c_str(),
                                   decode_row, row, elements);
    }
    benchmark::RegisterBenchmark((std::string("Decode/aten/") + size).c_str(), aten_row, elements);
  }
}

}  // namespace octavo::bench
