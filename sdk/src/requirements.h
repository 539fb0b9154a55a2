// Requirements: what [fp8.require] demands of an FP8 run, checked against what the kernels and the
// chosen options give. A fallback to another precision is no FP8 run, so nothing is demanded of it.
#pragma once

#include <string>
#include <vector>

#include "octavo/kernels.h"
#include "verdict.h"

namespace octavo {

struct Requirements {
  bool native = false;         // FP8 units in the hardware
  bool deterministic = false;  // equal bits for equal inputs, for any number of threads
  bool graph_capture = false;  // hot verbs may be recorded and replayed
  std::string speed = "any";   // the least class: "any", "vector", "native"
  std::vector<std::string> encodings = {};  // of encoding_names()
  std::vector<std::string> scaling = {};    // of scaling_names()
  std::vector<std::string> recipes = {};    // values of the backend's option "recipe"
};

// What a configuration may name: "float8_e4m3fn", ...; "tensor", "row", "block_1x128", ...
std::vector<std::string> encoding_names();
std::vector<std::string> scaling_names();

// "emulated" computes FP8 without vector units, "vector" with them, "native" has FP8 units.
const char *speed_class(const octavo_kernels_caps &caps);

// Appends one declining verdict for everything that is demanded and not there, each with the key
// that demands it. `recipe`: the effective option of that name, empty without one.
void check_fp8_requirements(const Requirements &wanted, const octavo_kernels_caps &caps,
                            const std::string &backend, const std::string &recipe,
                            std::vector<Verdict> &verdicts);

}  // namespace octavo
