// The table of sizes and its words.
#include "sdk/src/negotiate/min_gain.h"

namespace octavo {
namespace {

constexpr int64_t kMaxSmallN = 1024;
constexpr int64_t kMaxSmallK = 4096;
constexpr const char *kRule = "K <= 4096 with N <= 1024";

}  // namespace

bool filters_small(const std::string &min_gain, const octavo_kernels_caps &caps) {
  return min_gain == "torchao" || (min_gain == "auto" && (caps.flags & OCTAVO_CAPS_EMULATED) == 0);
}

std::string explain_min_gain(const std::string &min_gain, const octavo_kernels_caps &caps) {
  if (filters_small(min_gain, caps))
    return std::string("linears of ") + kRule + " are not converted";
  return min_gain == "auto" ? "no layer is left out for speed: FP8 is emulated on this device"
                            : "no layer is left out for speed";
}

std::optional<Verdict> too_small(const Config &config, const octavo_kernels_caps &caps, int64_t n,
                                 int64_t k) {
  if (!filters_small(config[key::kMinGain], caps) || n > kMaxSmallN || k > kMaxSmallK) return {};
  return Verdict{OCTAVO_LEVEL_LAYER,
                 OCTAVO_DECLINE,
                 OCTAVO_REASON_TOO_SMALL,
                 concat("runs in the host: with N = ", n, " and K = ", k,
                        " it is too small to be faster in FP8"),
                 std::string(kRule) + " is not converted: layers.min_gain = \"" +
                     config[key::kMinGain] + "\", " + config.origin(key::kMinGain),
                 set_key("layers.min_gain", "\"off\"", " to run the layer in FP8")};
}

}  // namespace octavo
