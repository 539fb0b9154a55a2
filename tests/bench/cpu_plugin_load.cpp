// Loading a plugin with its handshake, against dlopen alone.
//
// A library stays in the process that opened it, so each sample is the first load in a process of
// its own: a fork that measures itself and sends its time. The file is in the page cache.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "sdk/src/loader.h"
#include "tests/bench/bench.h"

namespace octavo::bench {
namespace {

double seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

const octavo::Manifest *te_manifest() {
  static std::vector<Verdict> verdicts;
  static const auto manifest =
      read_manifest(OCTAVO_BENCH_PLUGINS "/te.octavo-plugin.toml", verdicts);
  return manifest ? &*manifest : nullptr;
}

bool open_only(const Manifest &manifest) {
  return dlopen(manifest.library.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr;
}

bool load(const Manifest &manifest) {
  std::vector<Verdict> verdicts;
  return load_plugin(manifest, std::string(), nullptr, verdicts) != nullptr;
}

// The time that `action` takes in a child, in seconds; negative when it fails.
double in_child(bool (*action)(const Manifest &), const Manifest &manifest) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    const double start = seconds();
    const bool good = action(manifest);
    const double taken = good ? seconds() - start : -1;
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

void load_row(benchmark::State &state, bool (*action)(const Manifest &)) {
  const Manifest *manifest = te_manifest();
  if (manifest == nullptr) {
    return state.SkipWithError("expected the plugin in " OCTAVO_BENCH_PLUGINS);
  }
  for (auto _ : state) {
    const double taken = in_child(action, *manifest);
    if (taken < 0) return state.SkipWithError("the child could not load the plugin");
    state.SetIterationTime(taken);
  }
}

}  // namespace

void add_plugin_load() {
  const auto add = [](const char *name, bool (*action)(const Manifest &)) {
    benchmark::RegisterBenchmark(name, load_row, action)->UseManualTime()->Iterations(20);
  };
  add("PluginLoad/dlopen", open_only);
  add("PluginLoad/handshake", load);
}

}  // namespace octavo::bench
