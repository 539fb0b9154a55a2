// Gradient all-reduce between threads: FP8 codes that stay FP8, against fp32, both as two shots
// over shared memory: each rank sums its share of all ranks' elements, then all gather the shares.
// Rate: elements of all ranks, which together hold 16 Mi.
//
// "wire" is what one rank would send, in bytes for each of its elements. "msamp" is the plugin's
// whole reduction with its amax, common scale, cast and all-to-all.
#include <barrier>
#include <cstring>
#include <thread>
#include <vector>

#include "octavo/octavo.h"
#include "tests/bench/bench.h"
#include "tests/bench/reduction.h"
#include "tests/support/draft_calls.h"

namespace octavo::bench {
namespace {

constexpr int64_t kAllElements = int64_t{16} << 20;

// W threads that run one body a round, each on its own rank.
template <typename Body>
void run_rounds(benchmark::State &state, uint32_t world, Body body) {
  octavo_ranks *ranks = nullptr;
  if (!passed(state, octavo_ranks_open(world, &ranks), "octavo_ranks_open")) return;
  std::barrier gate(static_cast<std::ptrdiff_t>(world) + 1);
  std::vector<octavo_status> answers(world, OCTAVO_OK);
  bool done = false;
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      for (;;) {
        gate.arrive_and_wait();
        if (done) return;
        answers[rank] = body(rank, *octavo_ranks_collective(ranks, rank));
        if (answers[rank] != OCTAVO_OK) octavo_ranks_abort(ranks);
        gate.arrive_and_wait();
      }
    });
  }
  bool good = true;
  for (auto _ : state) {
    gate.arrive_and_wait();
    gate.arrive_and_wait();
    for (const octavo_status status : answers) {
      good = good && passed(state, status, "a rank's reduction");
    }
    if (!good) break;
  }
  done = true;
  gate.arrive_and_wait();
  for (std::thread &thread : threads) thread.join();
  octavo_ranks_close(ranks);
}

// Of each shot a rank's own part, one of W, stays at home.
void count_wire(benchmark::State &state, uint32_t world, double element_bytes) {
  const double parts = static_cast<double>(world - 1) / world;
  state.counters["wire"] = 2 * parts * element_bytes;
  count_items(state, kAllElements);
}

// Elements that are summed before they are written, so that sums stay in the first-level cache.
constexpr int64_t kBlock = 2048;

// out[i] = the sum of in[rank * stride + i] over ranks, in their order.
void sum_ranks(const float *in, int64_t stride, uint32_t world, int64_t count, float *out) {
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t n = count - first < kBlock ? count - first : kBlock;
    float *sums = out + first;
    std::memcpy(sums, in + first, static_cast<size_t>(n) * sizeof(float));
    for (uint32_t rank = 1; rank < world; ++rank) {
      const float *values = in + rank * stride + first;
      for (int64_t i = 0; i < n; ++i) sums[i] += values[i];
    }
  }
}

// Each rank sums its share of the elements, read from all ranks, then all gather the shares.
void f32_row(benchmark::State &state, uint32_t world) {
  const int64_t n = kAllElements / world;
  const int64_t share = n / world;
  const float *gradients = normals("reduce.f32", kAllElements);
  auto *sums = memory_of<float>("reduce.f32.sums", kAllElements);
  auto *result = memory_of<float>("reduce.f32.result", kAllElements);
  run_rounds(state, world, [&](uint32_t rank, const octavo_collective &c) {
    float *own = sums + rank * n;
    sum_ranks(gradients + rank * share, n, world, share, own);
    return c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_F32, own, static_cast<uint64_t>(share),
                 result + rank * n, static_cast<uint64_t>(n), nullptr);
  });
  count_wire(state, world, 4);
}

// The same sum by liboctavo's own all-reduce.
void f32_direct_row(benchmark::State &state, uint32_t world) {
  const auto n = static_cast<uint64_t>(kAllElements / world);
  float *gradients = normals("reduce.f32", kAllElements);
  auto *result = memory_of<float>("reduce.f32.result", kAllElements);
  run_rounds(state, world, [&](uint32_t rank, const octavo_collective &c) {
    return c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, gradients + rank * n, n,
                 result + rank * n, n, nullptr);
  });
  count_wire(state, world, 4);
}

void fp8_row(benchmark::State &state, uint32_t world) {
  const int64_t n = kAllElements / world;
  const int64_t share = n / world;
  const Codes gradients = codes("reduce.fp8", 1, kAllElements);
  auto *sums = memory_of<uint8_t>("reduce.fp8.sums", kAllElements);
  auto *result = memory_of<uint8_t>("reduce.fp8.result", kAllElements);
  run_rounds(state, world, [&](uint32_t rank, const octavo_collective &c) {
    auto sum = make_call<octavo_sum_quantized>(OCTAVO_KIND_SUM_QUANTIZED);
    sum.codes = static_cast<const uint8_t *>(gradients.tensor.data) + rank * share;
    sum.out = sums + rank * n;
    sum.count = static_cast<uint64_t>(share);
    sum.shards = world;
    sum.shard_stride = static_cast<uint64_t>(n);
    sum.dtype = OCTAVO_E4M3FN;
    const octavo_status status = test::draft_call(&kernels(), context(), &sum);
    if (status != OCTAVO_OK) return status;
    return c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_E4M3FN, sum.out, sum.count,
                 result + rank * n, static_cast<uint64_t>(n), nullptr);
  });
  count_wire(state, world, 1);
}

void msamp_row(benchmark::State &state, uint32_t world) {
  MsampReduction reduction(world, kAllElements / world);
  if (!reduction.error().empty()) return state.SkipWithError(reduction.error().c_str());
  run_rounds(state, world,
             [&](uint32_t rank, const octavo_collective &c) { return reduction.reduce(rank, c); });
  state.counters["wire"] = reduction.wire_bytes();
  count_items(state, kAllElements);
}

}  // namespace

void add_reductions() {
  for (const uint32_t world : {2U, 4U, 8U}) {
    const std::string suffix = "/W" + std::to_string(world);
    const auto add = [&](const char *name, void (*row)(benchmark::State &, uint32_t)) {
      benchmark::RegisterBenchmark((name + suffix).c_str(), row, world)->UseRealTime();
    };
    add("AllReduce/f32", f32_row);
    add("AllReduce/f32_direct", f32_direct_row);
    add("AllReduce/fp8", fp8_row);
    add("AllReduce/msamp", msamp_row);
  }
}

}  // namespace octavo::bench
