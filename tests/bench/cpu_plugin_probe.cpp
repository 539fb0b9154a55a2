// What stands before the load of twenty strange plugins: manifest, trust with the library's hash,
// the check of its tables and the helper, when nothing is known of them and when another process
// has left its results in files.
//
// Each sample is a process of its own, a fork that measures itself and sends its time.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "sdk/src/plugin/manifest_requires.h"
#include "sdk/src/probe/probe.h"
#include "sdk/src/trust/trust.h"
#include "tests/bench/bench.h"
#include "tests/support/temp_dir.h"

namespace octavo::bench {
namespace {

constexpr int kPlugins = 20;

// Copies of a real plugin, each with its manifest in a directory of its own, and places for caches.
class Plugins {
 public:
  Plugins() {
    for (int i = 0; i < kPlugins; ++i)
      for (const std::string file : {"reference.so", "reference.octavo-plugin.toml"})
        dir_.copy(OCTAVO_BENCH_PLUGINS "/" + file, place(i, file));
    config_[key::kTrust] = "owner";
    config_[key::kProbe] = "auto";
    config_[key::kProbeTimeout] = 20000;
  }

  // Another place for every call: nothing is known there.
  std::string fresh_cache() {
    std::string name = "cache";
    name += std::to_string(caches_++);
    return dir_.make_directory(name, 0700);
  }

  // Seconds for all of them, in this process; negative unless each ends with `how`.
  double probe(const std::string &cache, const std::string &how) const {
    setenv("XDG_CACHE_HOME", cache.c_str(), 1);
    const auto begin = std::chrono::steady_clock::now();
    const Hardware hardware = read_hardware();
    const TrustPolicy policy = trust_policy(config_, false);
    for (int i = 0; i < kPlugins; ++i) {
      std::vector<Verdict> verdicts;
      auto manifest = read_manifest(dir_ / place(i, "reference.octavo-plugin.toml"), verdicts);
      std::string sha256;
      if (!manifest || !check_requirements(*manifest, hardware, verdicts) ||
          !check_trust(*manifest, policy, &sha256, verdicts))
        return -1;
      const ProbeReport report = probe_plugin(config_, hardware, *manifest, sha256);
      if (!report.accepted || !report.how.starts_with(how)) return -1;
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    return took.count();
  }

  // The same in a child; negative when it fails.
  double probe_in_child(const std::string &cache, const std::string &how) const {
    int ends[2];
    if (pipe(ends) != 0) return -1;
    const pid_t child = fork();
    if (child == 0) {
      const double taken = probe(cache, how);
      const bool sent = write(ends[1], &taken, sizeof taken) == sizeof taken;
      _exit(sent ? 0 : 1);
    }
    close(ends[1]);
    double taken = -1;
    if (child < 0 || read(ends[0], &taken, sizeof taken) != sizeof taken) taken = -1;
    close(ends[0]);
    if (child > 0) waitpid(child, nullptr, 0);
    return taken;
  }

 private:
  // By +=, since gcc 12 warns of its own operator+ (GCC bug 105651).
  static std::string place(int plugin, const std::string &file) {
    std::string path = "p";
    path += std::to_string(plugin);
    path += '/';
    return path += file;
  }

  test::TempDir dir_;
  Config config_;
  int caches_ = 0;
};

Plugins &plugins() {
  static Plugins all;
  return all;
}

constexpr const char *kFailed = "expected twenty accepted plugins, found another answer";

void fresh_row(benchmark::State &state) {
  for (auto _ : state) {
    const double taken = plugins().probe_in_child(plugins().fresh_cache(), "probed in ");
    if (taken < 0) return state.SkipWithError(kFailed);
    state.SetIterationTime(taken);
  }
}

void cached_row(benchmark::State &state) {
  const std::string cache = plugins().fresh_cache();
  if (plugins().probe_in_child(cache, "probed in ") < 0) return state.SkipWithError(kFailed);
  for (auto _ : state) {
    const double taken = plugins().probe_in_child(cache, "remembered");
    if (taken < 0) return state.SkipWithError(kFailed);
    state.SetIterationTime(taken);
  }
}

}  // namespace

void add_plugin_probe() {
  benchmark::RegisterBenchmark("PluginProbe/fresh", fresh_row)->UseManualTime()->Iterations(10);
  benchmark::RegisterBenchmark("PluginProbe/cached", cached_row)->UseManualTime()->Iterations(10);
}

}  // namespace octavo::bench
