// Reads amax and scale of a few layers, and how the reduction of gradients went, out of the slots
// that the program allocated for a backend.
//
// For people only: nothing in the training depends on it.
#ifndef TRAIN_GPT_TELEMETRY_H
#define TRAIN_GPT_TELEMETRY_H

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "octavo_run.h"

namespace gpt {

class Telemetry {
 public:
  // Follows x and dy of up to four of these layers, if the backend has pools of this kind.
  Telemetry(OctavoRun &run, const std::vector<std::string> &layers);

  // {"amax": {"x/block0.qkv": 3.1, ...}, "scale": {...}, "reduce": {"saturated": 0, ...}}, taken
  // before end_step: the amax of the step and the scale that it used; how many values the reduction
  // of gradients saturated, and its pre-scale. Null when there is nothing to follow.
  nlohmann::json sample() const;

 private:
  void follow_reduction(OctavoRun &run);

  struct Source {
    std::string kind;    // "amax", "scale" or "reduce"
    std::string key;     // "x/block0.qkv", "prescale"
    const float *value;  // on the run's device
  };
  const Device &device_;
  std::vector<Source> sources_;
};

}  // namespace gpt

#endif
