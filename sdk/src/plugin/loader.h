// Loader: opens a plugin's library once per process, reads its one symbol, and keeps copies of its
// tables in which no function pointer is null. Libraries are never closed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "octavo/draft/gradients.h"
#include "octavo/draft/grouped.h"
#include "octavo/draft/layer.h"
#include "octavo/kernels.h"
#include "octavo/octavo.h"
#include "sdk/src/base/sized.h"
#include "sdk/src/base/verdict.h"
#include "sdk/src/plugin/manifest.h"

namespace octavo {

struct LoadedPlugin {
  std::string id;
  std::string version;
  std::string library;
  std::string sha256;
  uint32_t abi_major = 0;
  uint32_t abi_minor = 0;                                 // its target
  const void *(*get_interface)(octavo_str id) = nullptr;  // the plugin's own tables
  bool has_backend = false;
  octavo_backend backend{};  // stubs without one
  bool has_quantize_weight = false;
  bool has_end_step = false;
  std::optional<octavo_kernels> kernels;
  std::optional<octavo_memory> memory;  // of the kernels' device
  std::optional<octavo_layer> layer;    // its `calls` are as the plugin has them
  std::optional<octavo_optimizer> optimizer;
  std::optional<octavo_gradients> gradients;
  std::optional<octavo_fused> fused;
  std::optional<octavo_grouped> grouped;
  std::optional<octavo_shard> shard;
};

// The file must have passed elf_verdict (elf.h), which probe_plugin sees to: the system's loader
// ends the process over a damaged one. Null when the plugin cannot be used; then a declining
// verdict gives the reason and the stage, kLoad or kPlugin. `host` receives the plugin's messages
// while it is asked. Thread-safe; the result lives until the process ends.
const LoadedPlugin *load_plugin(const Manifest &manifest, const std::string &sha256,
                                const octavo_host *host, std::vector<Verdict> &verdicts);

// Whether this process has opened a library of this path, whatever it found in it.
bool opened_in_this_process(const std::string &library);

// The refusal that follows from the ABI in the manifest, without opening anything.
std::optional<Verdict> abi_verdict(const Manifest &manifest);

// Whether a table has this function: its size contains it, and it is not null.
template <typename Table, typename F>
bool has(const Table &given, F Table::*function) {
  return covers(given, given.*function) && given.*function != nullptr;
}

// Of each table that a plugin gives (complete.cpp): the names of required functions that it lacks,
// and the table with stubs that answer OCTAVO_UNSUPPORTED where `given` has nothing or is too
// short.
template <typename Table>
std::vector<std::string> missing_functions(const Table &given);
template <typename Table>
Table complete(const Table &given);

}  // namespace octavo
