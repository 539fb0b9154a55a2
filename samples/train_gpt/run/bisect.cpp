// Every replay starts from the first step, so it is the run itself but for the layers that stay.
#include "bisect.h"

#include <algorithm>
#include <cmath>

#include "host_adapters/standalone/error.h"

namespace gpt {
namespace {

Layers joined(Layers first, const Layers &second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Runs a spec with some of its layers in FP8.
class Replays {
 public:
  Replays(const RunSpec &spec, const Training &training)
      : spec_(spec), training_(training), options_(training.options) {
    options_.stop_after = options_.bisect;
    options_.telemetry_every = 0;
    for (const Placement &p : placements(spec, training))
      if (p.where.rfind("host ", 0) != 0) layers_.push_back(p.layer);
    expect(!layers_.empty(), where(), "a run with layers in FP8", "none in " + spec.name,
           "name a run of an FP8 backend, as in --run te; `octavo explain` says what it needs");
  }

  std::optional<Bisected> search() {
    run({});
    if (interrupted()) return std::nullopt;
    const Replay plain = found_.replays.front();
    expect(std::isfinite(plain.loss), where(), "a finite loss without FP8",
           std::to_string(plain.loss), "look for the cause elsewhere: FP8 is not what diverges");
    found_.layers = search_layers(layers_, [this](const Layers &chosen) { return run(chosen); });
    if (interrupted()) return std::nullopt;
    expect(!found_.layers.empty(), where(), "a step that goes wrong with all layers in FP8",
           "a loss of " + fixed(found_.replays.back().loss, 4) + ", and " + fixed(plain.loss, 4) +
               " without FP8",
           "name the step that goes wrong, or a smaller --tolerance");
    return found_;
  }

 private:
  std::string where() const { return "--bisect " + std::to_string(options_.bisect); }

  bool run(const Layers &chosen) {
    if (interrupted()) return false;
    RunSpec spec = spec_;
    for (const std::string &layer : layers_)
      if (std::find(chosen.begin(), chosen.end(), layer) == chosen.end())
        spec.kept_layers.push_back(layer);
    Progress silent(true, false);
    MetricsLog nowhere("");
    const RunResult result =
        train(spec, {options_, training_.corpus, silent, nowhere, training_.team});
    if (interrupted() || result.steps.empty()) return false;
    const StepRecord &last = result.steps.back();
    Replay replay = {chosen.size(), last.loss, last.nonfinite, false};
    if (!found_.replays.empty()) {
      const Replay &plain = found_.replays.front();
      const double apart = std::abs(last.loss - plain.loss);
      replay.is_bad = !(apart <= options_.tolerance * std::abs(plain.loss)) ||
                      (last.nonfinite && !plain.nonfinite);
    }
    found_.replays.push_back(replay);
    training_.progress.note("replay " + std::to_string(found_.replays.size()) + ": " +
                            std::to_string(replay.layers) + " of " +
                            std::to_string(layers_.size()) + " layers in FP8, loss " +
                            fixed(replay.loss, 4) + (replay.is_bad ? ", bad" : ""));
    return replay.is_bad;
  }

  const RunSpec &spec_;
  const Training &training_;
  Options options_;
  Layers layers_;
  Bisected found_;
};

}  // namespace

Layers search_layers(const Layers &layers, const std::function<bool(const Layers &)> &is_bad) {
  // In each round, the shortest beginning of the candidates that is bad together with what is known
  // to be needed: its last layer is needed, and those behind it are not.
  Layers needed, candidates = layers;
  while (!candidates.empty()) {
    size_t right = 0, wrong = candidates.size();
    while (wrong - right > 1) {
      const size_t middle = (right + wrong) / 2;
      const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(middle);
      (is_bad(joined({candidates.begin(), end}, needed)) ? wrong : right) = middle;
    }
    needed.insert(needed.begin(), candidates[wrong - 1]);
    if (is_bad(needed)) return needed;
    // That all layers are bad was assumed so far, which saves a replay where one is enough.
    if (needed.size() == 1 && !is_bad(layers)) return {};
    candidates.resize(wrong - 1);
  }
  return {};
}

std::optional<Bisected> bisect(const RunSpec &spec, const Training &training) {
  return Replays(spec, training).search();
}

std::string bisect_table(const Bisected &found, const Options &options, bool color) {
  std::vector<std::vector<std::string>> rows = {
      {"layers in FP8", "loss of step " + std::to_string(options.bisect), "gradients", ""}};
  for (const Replay &r : found.replays)
    rows.push_back({std::to_string(r.layers), fixed(r.loss, 4),
                    r.nonfinite ? "not finite" : "finite", r.is_bad ? "bad" : ""});
  std::string text = table(rows, 1, color) + "\n";
  for (size_t i = 0; i < found.layers.size(); ++i) text += (i == 0 ? "" : ", ") + found.layers[i];
  return text + ": enough for a bad step, alone in FP8; " + std::to_string(found.replays.size()) +
         " replays\n";
}

}  // namespace gpt
