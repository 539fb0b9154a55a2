// What telemetry costs a training step of te, and what octavo.fused/1 saves of a forward.
//
// Each row alternates between its subject and what that is compared with, call by call, so that
// both see the same machine: "ratio" is the subject's time over the other's. One thread.
#include <benchmark/benchmark.h>

#include <ctime>

#include "tests/bench/te_layer.h"

namespace octavo::bench {
namespace {

// train_gpt --telemetry-every 25: one step of 25 is sampled.
constexpr int kSteps = 25;

enum class Statistics { kNone, kNever, kSometimes, kAlways };

// The processor's time of this thread, which runs the kernels: what else runs on the machine does
// not count.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

template <typename Work>
double seconds_of(Work work) {
  const double begin = thread_seconds();
  work();
  return thread_seconds() - begin;
}

// Times both in turns, `count` calls of each in one iteration, either one first every other time.
template <typename Subject, typename Other>
void compare(benchmark::State &state, int count, Subject subject, Other other) {
  double all = 0, all_other = 0;
  for (auto _ : state) {
    double seconds = 0;
    for (int i = 0; i < count; ++i) {
      if (i % 2 == 0) all_other += seconds_of(other);
      seconds += seconds_of([&] { subject(i); });
      if (i % 2 == 1) all_other += seconds_of(other);
    }
    state.SetIterationTime(seconds);
    all += seconds;
  }
  state.counters["ratio"] = all / all_other;
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * count);
}

// One iteration: kSteps training steps, against as many of a layer without telemetry.
void telemetry(benchmark::State &state, Statistics statistics) {
  Layer off(false), subject(statistics != Statistics::kNone);
  compare(
      state, kSteps,
      [&](int i) {
        subject.step(statistics == Statistics::kAlways ||
                     (statistics == Statistics::kSometimes && i == kSteps / 2));
      },
      [&] { off.step(false); });
}

// One iteration: one forward behind a prologue, against prologue of the kernels and then
// linear_forward.
void fused_forward(benchmark::State &state, uint32_t op) {
  Layer layer(false);
  Matrix in(kM, kK, 1), gamma(1, kK, 1), beta(1, kK, 1), mean(1, kM), rstd(1, kM);
  octavo_prologue prologue{};
  prologue.size = sizeof prologue;
  prologue.kind = OCTAVO_KIND_PROLOGUE;
  prologue.op = op;
  prologue.in = in.tensor();
  if (op == OCTAVO_PROLOGUE_LAYER_NORM) {
    prologue.eps = 1e-5f;
    prologue.gamma = gamma.tensor();
    prologue.beta = beta.tensor();
    prologue.mean = mean.data();
    prologue.rstd = rstd.data();
  }
  compare(
      state, 1, [&](int) { layer.forward_fused(prologue); },
      [&] { layer.forward_apart(prologue); });
}

BENCHMARK_CAPTURE(telemetry, off, Statistics::kNone)->UseManualTime();
BENCHMARK_CAPTURE(telemetry, on_unsampled, Statistics::kNever)->UseManualTime();
BENCHMARK_CAPTURE(telemetry, on_one_step_in_25, Statistics::kSometimes)->UseManualTime();
BENCHMARK_CAPTURE(telemetry, on_every_step, Statistics::kAlways)->UseManualTime();
BENCHMARK_CAPTURE(fused_forward, layer_norm, OCTAVO_PROLOGUE_LAYER_NORM)->UseManualTime();
BENCHMARK_CAPTURE(fused_forward, gelu, OCTAVO_PROLOGUE_GELU)->UseManualTime();

}  // namespace
}  // namespace octavo::bench

BENCHMARK_MAIN();
