// Copies beyond every cache: what a cast that moves as many bytes cannot beat. Rate: bytes read and
// written.
#include <cstring>

#include "tests/bench/avx512.h"
#include "tests/bench/bench.h"

namespace octavo::bench {
namespace {

constexpr int64_t kBytes = int64_t{160} << 20;  // each way: together those of the DRAM cast

void copy_row(benchmark::State &state, void (*copy)(const void *, int64_t, void *)) {
  if (copy != nullptr && !has_avx512()) return state.SkipWithError("this CPU has no AVX-512");
  const void *in = memory("copy.in", kBytes);
  void *out = memory("copy.out", kBytes);
  for (auto _ : state) {
    if (copy != nullptr) {
      for_ranges(kBytes, kBytes / 16, [&](int64_t begin, int64_t end) {
        copy(static_cast<const char *>(in) + begin, end - begin, static_cast<char *>(out) + begin);
      });
    } else {
      std::memcpy(out, in, kBytes);
    }
    benchmark::ClobberMemory();
  }
  count_items(state, 2 * kBytes);
}

}  // namespace

void add_copies() {
  benchmark::RegisterBenchmark("Copy/memcpy", copy_row, nullptr);
#if defined(__x86_64__)
  benchmark::RegisterBenchmark("Copy/nontemporal", copy_row, copy_nontemporal);
  add_two_threads("Copy/nontemporal", copy_row, copy_nontemporal);
  benchmark::RegisterBenchmark("Copy/regular", copy_row, copy_regular);
#endif
}

}  // namespace octavo::bench
