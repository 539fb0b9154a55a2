// bench_cpu: the CPU kernels against other ways of doing the same, in one process.
//
// Usage: bench_cpu [--peaks_out=<file>] [--benchmark_...]; gates.py reads what it writes. Peaks are
// measured before and after the rows, so that a run on a machine whose speed changed shows.
#include <cstdio>
#include <cstring>
#include <fstream>

#include "tests/bench/bench.h"
#include "tests/bench/peaks.h"

namespace octavo::bench {
namespace {

// Takes --peaks_out=<file> out of the arguments; empty without it.
std::string take_peaks_out(int *argc, char **argv) {
  constexpr char kFlag[] = "--peaks_out=";
  std::string file;
  int kept = 1;
  for (int i = 1; i < *argc; ++i) {
    if (std::strncmp(argv[i], kFlag, sizeof kFlag - 1) == 0) {
      file = argv[i] + sizeof kFlag - 1;
    } else {
      argv[kept++] = argv[i];
    }
  }
  *argc = kept;
  return file;
}

void add_rows() {
  add_copies();
  add_casts();
  add_blocks();
  add_decodes();
  add_transposes();
  add_products();
  add_dnnl_products();
  add_openblas_products();
  add_small_products();
  add_adam();
  add_prologues();
  add_boundary();
  add_forward();
  add_plugin_load();
  add_plugin_probe();
  add_reductions();
}

int run(int argc, char **argv) {
  if (argc == 5 && std::strcmp(argv[1], kLoadFlag) == 0) return load_plugin_once(argv + 2);
  { const TwoThreads once; }  // leaves every library with one thread
  const std::string peaks_out = take_peaks_out(&argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("kernels", level());
  add_rows();
  if (peaks_out.empty()) {
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  }
  const Peaks before = measure_peaks();
  const size_t rows = benchmark::RunSpecifiedBenchmarks();
  const Peaks after = measure_peaks();
  std::ofstream out(peaks_out);
  out << peaks_json(before, after);
  if (out.flush()) return rows > 0 ? 0 : 2;
  std::fprintf(stderr, "bench_cpu: cannot write %s\n", peaks_out.c_str());
  return 2;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char **argv) {
  return octavo::bench::run(argc, argv);
}
