// The options of msamp as its users see them.
#include "recipe.h"

namespace octavo::msamp {

void Options::list(author::OptionList<Options> &l) {
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
        "of both moments; level: as opt_level says; e4m3-block: E4M3, a scale for 256 elements; "
        "coat: E4M3 with dynamic range expansion, groups of 128")
      .choices({"level", "e4m3-block", "coat"});
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
}

}  // namespace octavo::msamp
