// Delayed scaling's update of 1,000 tensors with a history of 1,024 steps, against reading those
// bytes once and against copying them: the roll writes every row, so a copy is what it moves.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "kernels/cpu/table.h"
#include "octavo/kernels.h"

namespace octavo::test {
namespace {

constexpr uint64_t kTensors = 1000;
constexpr uint64_t kLength = 1024;

// The kernels on the calling thread, for a host without threads.
class Kernels {
 public:
  Kernels() {
    host_.size = sizeof host_;
    host_.kind = OCTAVO_KIND_HOST;
    host_.get_extension = [](void *, octavo_str) -> const void * { return nullptr; };
    host_.diagnose = [](void *, const octavo_diagnostic *) {};
    table->open_device({OCTAVO_DEVICE_CPU, 0}, &host_, &ctx_);
  }
  ~Kernels() { table->close_device(ctx_); }
  Kernels(const Kernels &) = delete;
  Kernels &operator=(const Kernels &) = delete;

  void *ctx() const { return ctx_; }
  const octavo_kernels *table = octavo_cpu_kernels();

 private:
  octavo_host host_ = {};
  void *ctx_ = nullptr;
};

struct Pool {
  Kernels kernels;
  std::vector<float> amax = std::vector<float>(kTensors, 1.5f);
  std::vector<float> history = std::vector<float>(kTensors * kLength, 1.0f);
  std::vector<float> scale = std::vector<float>(kTensors, 1.0f);
};

void DelayedUpdate(benchmark::State &state) {
  Pool pool;
  octavo_delayed_scale_update c = {};
  c.size = sizeof c;
  c.kind = OCTAVO_KIND_DELAYED_SCALE_UPDATE;
  c.amax = pool.amax.data();
  c.history = pool.history.data();
  c.scale = pool.scale.data();
  c.n = kTensors;
  c.length = kLength;
  c.format_max = 448.0f;
  c.use_max = 1;
  c.rule = OCTAVO_RULE_QUOTIENT;
  c.history_flags = OCTAVO_HISTORY_TE;
  for (auto _ : state) {
    std::fill(pool.amax.begin(), pool.amax.end(), 1.5f);
    if (pool.kernels.table->delayed_scale_update(pool.kernels.ctx(), &c) != OCTAVO_OK)
      state.SkipWithError("delayed_scale_update failed");
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kTensors * kLength * 4));
}
BENCHMARK(DelayedUpdate);

void ReadOnce(benchmark::State &state) {
  Pool pool;
  octavo_tensor in = {pool.history.data(),
                      static_cast<int64_t>(kLength),
                      static_cast<int64_t>(kTensors),
                      static_cast<int64_t>(kTensors),
                      OCTAVO_F32,
                      0};
  float amax = 0.0f;
  octavo_compute_amax c = {};
  c.size = sizeof c;
  c.kind = OCTAVO_KIND_COMPUTE_AMAX;
  c.in = &in;
  c.amax = &amax;
  for (auto _ : state) {
    if (pool.kernels.table->compute_amax(pool.kernels.ctx(), &c) != OCTAVO_OK)
      state.SkipWithError("compute_amax failed");
    benchmark::DoNotOptimize(amax);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kTensors * kLength * 4));
}
BENCHMARK(ReadOnce);

void ShiftOnce(benchmark::State &state) {
  Pool pool;
  for (auto _ : state) {
    std::memmove(pool.history.data(), pool.history.data() + kTensors,
                 (kLength - 1) * kTensors * sizeof(float));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kTensors * kLength * 4));
}
BENCHMARK(ShiftOnce);

}  // namespace
}  // namespace octavo::test

BENCHMARK_MAIN();
