// What the files of bench_cpu share: the kernels table, memory, random data, calls.
//
// Everything runs on the calling thread, but for rows "T2/...", which have two. Memory is kept
// until the process ends, one block a name, since a benchmark's function is entered again for every
// repetition.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <functional>
#include <string>

#include "octavo/kernels.h"

namespace octavo::bench {

// The table of the CPU kernels and its context, opened once for each number of threads at the level
// that OCTAVO_FORCE_KERNELS names, else the best. Ends the process with the kernels' own words when
// that level is not there.
const octavo_kernels &kernels();
void *context();
// "cpu.avx512_bf16"
std::string level();

// While it lives, context() has a pool of two threads, and so have the opponents' libraries.
class TwoThreads {
 public:
  TwoThreads();
  ~TwoThreads();
  TwoThreads(const TwoThreads &) = delete;
  TwoThreads &operator=(const TwoThreads &) = delete;
};
// body(begin, end) over [0, count) in multiples of `grain`, on the threads that context() has.
void for_ranges(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)> &body);

// `row(state, more...)` as "T2/<name>" on two threads; its clock is the wall's, and the time of the
// whole process beside it shows whether both threads had a core.
template <typename Row, typename... More>
void add_two_threads(const std::string &name, Row row, More... more) {
  benchmark::RegisterBenchmark(("T2/" + name).c_str(),
                               [=](benchmark::State &state) {
                                 const TwoThreads two;
                                 row(state, more...);
                               })
      ->MeasureProcessCPUTime()
      ->UseRealTime();
}

// Whether this CPU runs the opponents in avx512_*.cpp (F, BW, VL, DQ), and those with VBMI and
// BF16.
bool has_avx512();
bool has_avx512_bf16();

// `bytes` of zeros at a multiple of 2 MiB, on huge pages where the system has them. The same name
// gives the same block; a larger size gives a new one and ends the old one.
void *memory(const std::string &name, uint64_t bytes);
template <typename T>
T *memory_of(const std::string &name, int64_t count) {
  return static_cast<T *>(memory(name, static_cast<uint64_t>(count) * sizeof(T)));
}

// Standard normal fp32 values: a million different ones, repeated.
float *normals(const std::string &name, int64_t count);
// The same rounded to bf16.
uint16_t *normals_bf16(const std::string &name, int64_t count);

// A dense matrix.
octavo_tensor tensor(void *data, int64_t rows, int64_t cols, uint32_t dtype);
octavo_scale tensor_scale(float *value);

template <typename Call>
Call make_call(uint32_t kind) {
  Call c{};
  c.size = sizeof(c);
  c.kind = kind;
  return c;
}

// An FP8 matrix of such normals with one scale, by current scaling: its largest code is reached.
struct Codes {
  octavo_tensor tensor;
  octavo_scale scale_inv;
};
Codes codes(const std::string &name, int64_t rows, int64_t cols, uint32_t dtype = OCTAVO_E4M3FN);
// The same in the kernels' panel order; false where they have none, which ends the row.
bool pack(benchmark::State &state, const std::string &name, Codes *codes);

// True when there is no failure; else the row ends with `what` as its error.
bool passed(benchmark::State &state, octavo_status status, const char *what);

// Bytes of workspace for a call, as memory of this name.
template <typename Call>
void *workspace_of(const std::string &name, const Call &call) {
  uint64_t bytes = 0;
  if (kernels().workspace_bytes(context(), &call, &bytes) != OCTAVO_OK) return nullptr;
  return bytes == 0 ? nullptr : memory(name, bytes);
}

// For the unit of every rate in the results: elements, FLOP or bytes of one iteration.
inline void count_items(benchmark::State &state, int64_t items) {
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * items);
}

// This program with arguments {kLoadFlag, plugin, action, descriptor} measures one load and writes
// its seconds, a double, there. Returns the exit code.
inline constexpr const char *kLoadFlag = "--plugin_load";
int load_plugin_once(char **arguments);

// Each file adds its rows; called in this order by main.
void add_copies();
void add_casts();
void add_blocks();
void add_decodes();
void add_transposes();
void add_products();
void add_dnnl_products();
void add_openblas_products();
void add_small_products();
void add_adam();
void add_prologues();
void add_boundary();
void add_forward();
void add_plugin_load();
void add_plugin_probe();
void add_reductions();

}  // namespace octavo::bench
