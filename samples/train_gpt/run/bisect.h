// Which layers make a run go wrong: replays of its first steps with some of them in FP8.
#ifndef TRAIN_GPT_BISECT_H
#define TRAIN_GPT_BISECT_H

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer.h"

namespace gpt {

using Layers = std::vector<std::string>;

// The layers of a bad set from which none can be taken; is_bad replays with these layers in FP8.
// One layer among n takes ceil(log2 n) replays and one that confirms it. Each further layer of a
// set, none of which is bad alone, takes as many again. Empty: nothing was found, since the replay
// of all layers is right, or the same layers gave another answer.
Layers search_layers(const Layers &layers, const std::function<bool(const Layers &)> &is_bad);

struct Replay {
  size_t layers;  // in FP8
  double loss;
  bool nonfinite;  // a gradient of the last step was not finite
  bool is_bad;
};

struct Bisected {
  Layers layers;
  std::vector<Replay> replays;  // the first one without FP8: its loss is the measure
};

// Replays `spec` up to step options.bisect. A replay is bad if its loss then is not finite, or
// further than options.tolerance of itself from that without FP8, or if a gradient of that step is
// not finite and without FP8 all are. None: interrupted. Throws UserError where FP8 is not to
// blame.
std::optional<Bisected> bisect(const RunSpec &spec, const Training &training);

// The replays as a table, and what was found.
std::string bisect_table(const Bisected &found, const Options &options, bool color);

}  // namespace gpt

#endif
