// What measured times say: which layers a backend makes faster, and which backend to take.
#pragma once

#include <string>
#include <vector>

#include "sdk/cli/bench/measure.h"

namespace octavo::cli::bench {

double median(std::vector<double> values);

// Whether a backend is faster than bf16 in at least three rounds of four, and in the median.
bool gains(const Measured &measured, const Timed &backend);

// A backend for the whole model. Seconds of all linears in a step.
struct Choice {
  std::string backend;
  double everywhere = 0;     // what the backend does not run stays in bf16
  double seconds = 0;        // and what it does not make faster, too
  std::vector<bool> faster;  // by shape
  size_t linears = 0;        // that are faster
  size_t runs = 0;           // linears that the backend runs
};
// One for each backend, in their order.
std::vector<Choice> choices(const std::vector<Measured> &all);
// Of the choice with the least time; null where no backend makes a layer faster.
const Choice *best(const std::vector<Choice> &all);

// Patterns for layers.skip that match every linear of the shapes that are not faster, and none of
// the others: "h.*.attn.c_proj" where all layers agree. front: before each, as "*" where modules
// have longer names than the linears here.
std::vector<std::string> patterns(const std::vector<Measured> &all, const std::vector<bool> &faster,
                                  const std::string &front);

}  // namespace octavo::cli::bench
