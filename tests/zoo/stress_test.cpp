// Many threads that try, open and close plugins at once, for ThreadSanitizer.
//
// OCTAVO_STRESS_CYCLES: cycles of each of the 64 threads, 50 by default; docs/results holds a run
// with 10000. Expectations are counted in the threads and checked behind them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/request.h"

namespace octavo::test {
namespace {

constexpr int kThreads = 64;

int cycles() {
  const char *given = std::getenv("OCTAVO_STRESS_CYCLES");
  return given == nullptr ? 50 : std::max(1, std::atoi(given));
}

class Stress : public testing::Test {
 protected:
  // Calls cycle(thread, number) on every thread; false is a failure.
  template <typename Cycle>
  void run(const Cycle &cycle) {
    std::atomic<int> ready{0};
    std::atomic<uint64_t> good{0}, bad{0};
    const int count = cycles();
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        ++ready;
        while (ready < kThreads) std::this_thread::yield();
        for (int i = 0; i < count; ++i) ++(cycle(t, i) ? good : bad);
      });
    for (std::thread &t : threads) t.join();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%d threads x %d cycles in %.1f s\n", kThreads, count, took.count());
    EXPECT_EQ(bad, 0u);
    EXPECT_EQ(good, static_cast<uint64_t>(kThreads) * static_cast<uint64_t>(count));
  }
  Request &ask(Request &request, const std::string &directory) const {
    return request.set("plugins.trust", "owner")
        .set("fp8.backend", "fake")
        .plugins(dir / directory);
  }

  Environment environment;
  TempDir dir;
};

// Discovery, manifest, trust, probe (the first thread's, remembered by the others), load, session.
TEST_F(Stress, probe_open_close) {
  environment.set("XDG_CACHE_HOME", dir.make_directory("cache", 0700));
  put_fake(dir, "plugins");
  std::atomic<const octavo_backend *> table{nullptr};
  run([&](int, int) {
    Request request;
    RunPtr run;
    if (ask(request, "plugins").open(run) != OCTAVO_OK || run == nullptr) return false;
    const octavo_run *r = run.get();
    const octavo_backend *mine = octavo_run_backend(r), *first = nullptr;
    if (!table.compare_exchange_strong(first, mine) && first != mine) return false;  // loaded twice
    return mine->linear_forward(octavo_run_session(r), nullptr) == OCTAVO_OK &&
           text_of(octavo_run_backend_id(r)) == "fake";
  });
}

// Four plugins that differ, three of them refused: whoever is first decides for all.
TEST_F(Stress, good_and_refused_plugins) {
  environment.set("XDG_CACHE_HOME", dir.make_directory("cache", 0700));
  const char *const faults[] = {"good", "load_crashes", "null_functions", "query_fails"};
  for (const char *fault : faults) put_fake(dir, fault, fault);
  run([&](int thread, int number) {
    const int which = (thread + number) % 4;
    Request request;
    RunPtr run;
    const octavo_status status = ask(request, faults[which]).open(run);
    const bool refused = which != 0;
    return status == (refused ? OCTAVO_UNSUPPORTED : OCTAVO_OK) && (run == nullptr) == refused;
  });
}

}  // namespace
}  // namespace octavo::test
