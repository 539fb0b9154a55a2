// Requirements: what [fp8.require] demands of an FP8 run, checked against what the kernels and the
// chosen options give. A fallback to another precision is no FP8 run, so nothing is demanded of it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "octavo/kernels.h"
#include "sdk/src/base/verdict.h"
#include "sdk/src/config/config.h"

namespace octavo {

// What a configuration may name: "float8_e4m3fn", ...; "tensor", "row", "block_1x128", ...
std::vector<std::string> encoding_names();
std::vector<std::string> scaling_names();

// "emulated" computes FP8 without vector units, "vector" with them, "native" has FP8 units.
const char *speed_class(const octavo_kernels_caps &caps);

// Whether the kernels do what a question describes as well as they do anything.
using Serves = std::function<bool(const octavo_ability &)>;

// Appends one declining verdict for everything that [fp8.require] demands and the kernels lack,
// each with the key that demands it. `recipes`: the effective option of that name, empty without
// one, and those of rules for layers.
void check_fp8_requirements(const Config &config, const octavo_kernels_caps &caps,
                            const Serves &serves, const std::string &backend,
                            const std::vector<std::string> &recipes,
                            std::vector<Verdict> &verdicts);

}  // namespace octavo
