// The conformance suite of octavo.backend/1: checks that any backend must pass on any kernels.
//
// A check talks to the backend through its table and nothing else, so the result says the same for
// a plugin that liboctavo loaded and for a table built into a test program.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "octavo/draft/gradients.h"
#include "octavo/draft/grouped.h"
#include "octavo/draft/optimizer.h"
#include "octavo/fused.h"
#include "octavo/kernels.h"
#include "octavo/plugin.h"
#include "octavo/shard.h"
#include "report.h"

namespace octavo::conformance {

// What is examined. Everything that `desc` points to must outlive the checks.
struct Target {
  const octavo_backend *backend = nullptr;
  const octavo_optimizer *optimizer = nullptr;  // null: the backend has no octavo.optimizer/2
  const octavo_gradients *gradients = nullptr;  // null: the backend has no octavo.gradients/1
  const octavo_fused *fused = nullptr;          // null: the backend has no octavo.fused/1
  const octavo_grouped *grouped = nullptr;      // null: the backend has no octavo.grouped/1
  const octavo_shard *shard = nullptr;          // null: the backend has no octavo.shard/1
  octavo_session_desc desc{};                   // what octavo_run_session_desc gives
  // Empty for a table that is part of the program; else what the plugin did to the process since
  // the last call, and the functions of the C library that it exports.
  std::function<std::vector<std::string>()> changes = {};
  std::function<std::vector<std::string>()> symbols_of_libc = {};
  // Seals the standard model through liboctavo, and gives what it refuses; empty: nothing.
  std::function<std::string()> seal = {};
  // Of a plugin: its get_interface, and the query function of its library.
  std::function<const void *(octavo_str id)> interface = {};
  octavo_status (*query)(const octavo_host *host, const octavo_plugin **out) = nullptr;
  // How the options of its manifest differ from its own; empty: they do not, or it has none.
  std::string stale_manifest = {};
};

// A call that the kernels decline for a check, whether the device has it or not: fields of
// octavo_ability.
struct Lacking {
  uint32_t call = 0;      // 0: nothing
  bool is_whole = false;  // whatever the formats are
  uint32_t dtype = 0, granularity = 0, b_dtype = 0, b_granularity = 0;

  auto operator<=>(const Lacking &) const = default;
};

// One run of one check. `alignment` is what the kernels claim to need; it is the kernels' own in
// the first run and kPaddedAlignment in the second.
struct Context {
  const Target &target;
  uint64_t seed;
  uint64_t alignment;
  Lacking lacking = {};
};
inline constexpr uint64_t kPaddedAlignment = 16;

struct Check {
  const char *name;
  const char *meaning;  // one sentence
  const char *clauses;  // of docs/abi.md
  void (*run)(const Context &context);
};

enum class Outcome { kPass, kFail, kSkip };
struct Result {
  Outcome outcome = Outcome::kFail;
  std::string detail;  // what was expected and found, why the check does not apply, or what of it
                       // was left out of a pass
  std::vector<Step> steps = {};  // the counted sub-checks
};

// Every check, in the order in which a reader wants to see failures.
std::span<const Check> checks();
// Null when no check has this name.
const Check *find_check(const std::string &name);
// Runs the check with the kernels' own alignment and, when that is finer, with kPaddedAlignment. A
// backend may decline kernels that need padding in check_session; the second run is left out then.
Result run_check(const Check &check, const Target &target, uint64_t seed);

}  // namespace octavo::conformance
