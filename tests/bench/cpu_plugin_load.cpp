// Loading a plugin with its handshake, against dlopen alone.
//
// A library stays in the process that opened it, so each sample is the first load in a process of
// its own, this program started anew, which measures itself and sends its time: in a fork of this
// one, copies of its pages would be measured. The file is in the page cache.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "sdk/src/plugin/loader.h"
#include "tests/bench/bench.h"

namespace octavo::bench {
namespace {

constexpr const char *kOpen = "dlopen";

double seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

std::optional<Manifest> manifest_of(const char *plugin) {
  std::vector<Verdict> verdicts;
  std::string path = OCTAVO_BENCH_PLUGINS "/";
  path += plugin;
  path += ".octavo-plugin.toml";
  return read_manifest(path, verdicts);
}

bool open_only(const Manifest &manifest) {
  void *library = dlopen(manifest.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  return library != nullptr && dlsym(library, OCTAVO_PLUGIN_SYMBOL) != nullptr;
}

bool load(const Manifest &manifest) {
  std::vector<Verdict> verdicts;
  return load_plugin(manifest, std::string(), nullptr, verdicts) != nullptr;
}

// Seconds that the action takes on this plugin in a process of its own; negative when it fails.
double in_new_process(const char *plugin, const char *action) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  const std::string end = std::to_string(ends[1]);
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "bench_cpu", kLoadFlag, plugin, action, end.c_str(), nullptr);
    _exit(1);
  }
  close(ends[1]);
  double taken = -1;
  if (child < 0 || read(ends[0], &taken, sizeof taken) != sizeof taken) taken = -1;
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return taken;
}

void load_row(benchmark::State &state, const char *plugin, const char *action) {
  for (auto _ : state) {
    const double taken = in_new_process(plugin, action);
    if (taken < 0)
      return state.SkipWithError(
          "a new process could not load the plugin from " OCTAVO_BENCH_PLUGINS);
    state.SetIterationTime(taken);
  }
}

}  // namespace

int load_plugin_once(char **arguments) {
  const std::optional<Manifest> manifest = manifest_of(arguments[0]);
  if (!manifest) return 1;
  const bool only_open = std::string_view(arguments[1]) == kOpen;
  const double start = seconds();
  const bool good = only_open ? open_only(*manifest) : load(*manifest);
  const double taken = good ? seconds() - start : -1;
  return write(std::atoi(arguments[2]), &taken, sizeof taken) == sizeof taken ? 0 : 1;
}

void add_plugin_load() {
  const auto add = [](const char *name, const char *plugin, const char *action) {
    benchmark::RegisterBenchmark(name, load_row, plugin, action)->UseManualTime()->Iterations(20);
  };
  add("PluginLoad/dlopen", "te", kOpen);
  add("PluginLoad/handshake", "te", "load");
  // A library of 29 kB instead of 471.
  add("PluginLoad/dlopen_small", "reference", kOpen);
  add("PluginLoad/handshake_small", "reference", "load");
}

}  // namespace octavo::bench
