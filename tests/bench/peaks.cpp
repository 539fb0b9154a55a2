// Peaks of one core from register-only loops, and of its memory from a copy.
#include "tests/bench/peaks.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

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

// `work(thread)` on two threads at once, ten times: the median of how much both did, in units of
// 1e9 a second. The clock starts when both run.
template <typename Work>
double rate_of_two(Work work) {
  std::vector<double> rates;
  for (int piece = 0; piece < 10; ++piece) {
    std::barrier<> both(2);
    double other = 0;
    std::thread second([&] {
      both.arrive_and_wait();
      other = static_cast<double>(work(1));
      both.arrive_and_wait();
    });
    both.arrive_and_wait();
    const double start = seconds();
    const auto own = static_cast<double>(work(0));
    both.arrive_and_wait();
    rates.push_back((own + other) / (seconds() - start) * 1e-9);
    second.join();
  }
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

std::string text(const Peaks &p) {
  char line[240];
  std::snprintf(line, sizeof line,
                "{\"fma512\": %.2f, \"fma256\": %.2f, \"dot512\": %.2f, \"nt_copy\": %.2f, "
                "\"two_dots\": %.2f, \"two_copies\": %.2f}",
                p.fma512, p.fma256, p.dot512, p.nt_copy, p.two_dots, p.two_copies);
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
  if (has_avx512_bf16()) {
    constexpr int64_t kRounds = 50000;
    p.two_dots = rate_of_two([](int) { return dots_512(kRounds); });
  }
  p.two_copies = rate_of_two([&](int thread) {
    const int64_t half = kBytes / 2;
    copy_nontemporal(static_cast<const char *>(in) + thread * half, half,
                     static_cast<char *>(out) + thread * half);
    return 2 * half;
  });
#endif
  return p;
}

std::string peaks_json(const Peaks &before, const Peaks &after) {
  return "{\"before\": " + text(before) + ", \"after\": " + text(after) + "}\n";
}

}  // namespace octavo::bench
