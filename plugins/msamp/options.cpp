// The options of msamp as its users see them.
#include "recipe.h"

namespace octavo::msamp {
namespace {

// A shell pattern of *, ? and other characters, as layers.skip has them.
bool matches(std::string_view pattern, std::string_view name) {
  size_t at = 0, p = 0, star = std::string_view::npos, from = 0;
  while (at < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++, from = at;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[at])) {
      ++p, ++at;
    } else if (star != std::string_view::npos) {
      p = star + 1, at = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace

bool Options::keeps_moments(std::string_view name, int64_t elements) const {
  if (elements < static_cast<int64_t>(state_min_size)) return true;
  std::string_view left = state_skip;
  while (!left.empty()) {
    const size_t end = std::min(left.find(','), left.size());
    if (matches(left.substr(0, end), name)) return true;
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return false;
}

void Options::list(plugin::OptionList<Options> &l) {
  l.per_session(
      "all linears have the formats of the session: one optimizer and one reduction take them");
  l.add("opt_level", &Options::opt_level,
        "O1: f16 weights, FP8 gradients, fp32 moments; O2: moments in E4M3 and f16; O3: weights in "
        "E4M3 with an f16 master")
      .choices({"O1", "O2", "O3"});
  l.add("profile", &Options::profile,
        "msamp04: the arithmetic of MS-AMP 0.4.0 with its mistakes, for comparison")
      .choices({"msamp-fixed", "msamp04"});
  l.add("amax_history_len", &Options::amax_history_len,
        "steps that the scales of x and dy look back, and their warm-up")
      .range(1, 65536);
  l.add("optimizer", &Options::optimizer,
        "adamw: decoupled weight decay; adam: L2 added to the gradient")
      .choices({"adamw", "adam"});
  l.add("amsgrad", &Options::amsgrad, "only false is possible");
  l.add("state_format", &Options::state_format,
        "of both moments; level: as in opt_level; e4m3-block: E4M3, a scale for 256 elements; "
        "coat: E4M3 with dynamic range expansion, groups of 128")
      .choices({"level", "e4m3-block", "coat"});
  l.add("state_rounding", &Options::state_rounding,
        "of moments in codes; shrinking: a decay is never undone; nearest: to nearest even, as "
        "MS-AMP; stochastic; profile: shrinking with msamp-fixed, nearest with msamp04")
      .choices({"profile", "shrinking", "nearest", "stochastic"});
  l.add("state_scale", &Options::state_scale,
        "of moments and the weights that Adam steps; exact: of the new values, as MS-AMP, in two "
        "passes; bound: of a bound that the old ones give, in one pass")
      .choices({"exact", "bound"});
  l.add("state_skip", &Options::state_skip,
        "shell patterns of parameters whose moments stay in fp32, separated by commas");
  l.add("state_min_size", &Options::state_min_size,
        "moments of parameters with fewer elements stay in fp32")
      .range(0, static_cast<double>(int64_t{1} << 40));
  l.add("weight_rounding", &Options::weight_rounding,
        "of the 16-bit weights that Adam steps; stochastic: updates below half a unit count on "
        "average")
      .choices({"nearest", "stochastic"});
  l.add("rounding_seed", &Options::rounding_seed, "of stochastic roundings")
      .range(0, static_cast<double>(UINT32_MAX));
  l.add("gradient_accumulation", &Options::gradient_accumulation,
        "how weight gradients are kept between micro-batches")
      .choices({"fp8", "fp32"});
  l.add("prescale", &Options::prescale,
        "what gradients are multiplied by before ranks add them; auto: FP8-LM's rule; sqrt: "
        "1/sqrt(ranks); full: 1/ranks; profile: auto with msamp-fixed, sqrt with msamp04")
      .choices({"profile", "auto", "sqrt", "full", "none"});
  l.add("one_shot_bytes", &Options::one_shot_bytes,
        "buckets up to this size are reduced in one exchange instead of two")
      .range(0, static_cast<double>(int64_t{1} << 40));
  l.add("weight_cache", &Options::weight_cache,
        "false: weights are cast in every call, which saves their FP8 copies");
  l.add("telemetry", &Options::telemetry,
        "counts what each cast of x and dy saturates and flushes to 0, and its signal and noise");
}

}  // namespace octavo::msamp
