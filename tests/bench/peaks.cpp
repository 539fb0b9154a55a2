// Peaks of one core from register-only loops, and of its memory from a copy.
#include "tests/bench/peaks.h"

#include <chrono>
#include <cstdio>

#include "tests/bench/avx512.h"
#include "tests/bench/bench.h"

namespace octavo::bench {
namespace {

double seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// `work(rounds)` returns how much it did; the best rate, in units of 1e9 a second.
template <typename Work>
double best_rate(Work work) {
  int64_t rounds = 1000;
  for (double taken = 0; taken < 0.005; rounds *= 2) {
    const double start = seconds();
    work(rounds);
    taken = seconds() - start;
  }
  double best = 0;
  for (int piece = 0; piece < 10; ++piece) {
    const double start = seconds();
    const auto done = static_cast<double>(work(rounds / 2));
    const double rate = done / (seconds() - start) * 1e-9;
    if (rate > best) best = rate;
  }
  return best;
}

std::string text(const Peaks &p) {
  char line[160];
  std::snprintf(line, sizeof line,
                "{\"fma512\": %.2f, \"fma256\": %.2f, \"dot512\": %.2f, \"nt_copy\": %.2f}",
                p.fma512, p.fma256, p.dot512, p.nt_copy);
  return line;
}

}  // namespace

Peaks measure_peaks() {
  Peaks p;
#if defined(__x86_64__)
  if (!has_avx512()) return p;
  p.fma512 = best_rate(multiply_adds_512);
  p.fma256 = best_rate(multiply_adds_256);
  if (has_avx512_bf16()) p.dot512 = best_rate(dots_512);
  constexpr int64_t kBytes = int64_t{128} << 20;
  const void *in = memory("peaks.in", kBytes);
  void *out = memory("peaks.out", kBytes);
  for (int i = 0; i < 12; ++i) {
    const double start = seconds();
    copy_nontemporal(in, kBytes, out);
    const double rate = 2 * static_cast<double>(kBytes) / (seconds() - start) * 1e-9;
    if (rate > p.nt_copy) p.nt_copy = rate;
  }
#endif
  return p;
}

std::string peaks_json(const Peaks &before, const Peaks &after) {
  return "{\"before\": " + text(before) + ", \"after\": " + text(after) + "}\n";
}

}  // namespace octavo::bench
