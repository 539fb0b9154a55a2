// `layers.min_gain`: keeps linears with the host that are too small to be faster in FP8.
//
// The rule looks at the shape of the weight alone, so that a weight and all linears that use it get
// one answer, and so that it works with every backend alike.
#pragma once

#include <optional>
#include <string>

#include "octavo/kernels.h"
#include "sdk/src/base/verdict.h"
#include "sdk/src/config/config.h"

namespace octavo {

// Whether the table of sizes is applied: "torchao" everywhere, "auto" where the kernels have FP8
// units (no OCTAVO_CAPS_EMULATED), "off" nowhere.
bool filters_small(const std::string &min_gain, const octavo_kernels_caps &caps);

// What that means here, in one sentence for reports.
std::string explain_min_gain(const std::string &min_gain, const octavo_kernels_caps &caps);

// The refusal of a linear with a weight [N, K], or nothing.
//
// K <= 4096 with N <= 1024 stays: torchao's filter for its tensor-wise recipe
// (torchao/float8/float8_linear_utils.py, N = out_features, K = in_features), measured on H100. It
// is used for every recipe, since recipes are the backend's affair; torchao's filter for row-wise
// scales (N <= 2048, or K <= 1024, or N <= 4096 with K <= 2048) is for a granularity that no recipe
// uses, and for blocks of 128 and 32 torchao publishes none.
std::optional<Verdict> too_small(const Config &config, const octavo_kernels_caps &caps, int64_t n,
                                 int64_t k);

}  // namespace octavo
