// Loader: opens a plugin's library once per process, reads its one symbol, and keeps copies of its
// tables in which no function pointer is null. Libraries are never closed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "manifest.h"
#include "octavo/octavo.h"
#include "verdict.h"

namespace octavo {

struct LoadedPlugin {
  std::string id;
  std::string version;
  std::string library;
  std::string sha256;
  uint32_t abi_major = 0;
  uint32_t abi_minor = 0;  // its target
  octavo_backend backend{};
  std::optional<octavo_optimizer> optimizer;
  std::optional<octavo_gradients> gradients;
  std::optional<octavo_fused> fused;
};

// Null when the plugin cannot be used; then a declining verdict says why. `host` receives what the
// plugin says while it is asked. Thread-safe; the result lives until the process ends.
const LoadedPlugin *load_plugin(const Manifest &manifest, const std::string &sha256,
                                const octavo_host *host, std::vector<Verdict> &verdicts);

// A table with stubs that answer OCTAVO_UNSUPPORTED where `given` has nothing or is too short.
octavo_backend complete(const octavo_backend &given);
octavo_optimizer complete(const octavo_optimizer &given);
octavo_gradients complete(const octavo_gradients &given);
octavo_fused complete(const octavo_fused &given);
octavo_kernels complete(const octavo_kernels &given);

}  // namespace octavo
