// The command line.
#ifndef TRAIN_GPT_OPTIONS_H
#define TRAIN_GPT_OPTIONS_H

#include <string>
#include <vector>

#include "../model/model.h"
#include "../octavo/octavo_run.h"

namespace gpt {

struct Options {
  std::string config;  // octavo.toml; empty: none
  std::vector<std::string> text = {"/usr/share/common-licenses"};
  std::vector<RunSpec> runs;
  ModelSize size;
  int64_t batch = 16, steps = 450;
  double rate = 5e-3;
  double end_rate = 0.1;  // the share of `rate` that the schedule falls to
  bool nudge = false;     // one weight starts one unit in the last place away
  bool portable = false;  // the baseline's loops: the same bits on every processor
  uint64_t seed = 1;
  int64_t threads = 0;
  int64_t ranks = 1;             // data parallel
  bool ranks_are_given = false;  // on the command line
  std::string out = "out/train_gpt";
  std::string save;        // directory of checkpoints; empty: none
  std::string resume;      // where to go on from; empty: from the start
  int64_t stop_after = 0;  // steps; 0: --steps
  int64_t save_every = 0;  // steps between checkpoints; 0: one at the end
  int64_t keep = 1;        // checkpoints of a run
  std::string prompt = "This License ";
  int64_t sample_bytes = 200;
  Fused fused = Fused::kNo;
  std::string device;  // as device.kind; empty: what the configuration says
  bool quiet = false;
  int64_t telemetry_every = 25;  // steps between samples of the casts' statistics; 0: none
  int64_t inject_inf = 0;        // one backward call in so many gets an infinite gradient; 0: none
};

// Throws UserError unless every rank gets as many sequences as the others.
void check_ranks(const Options &options);
// Throws UserError; returns false when --help was asked for and printed.
bool parse_options(int argc, char **argv, Options &options);

}  // namespace gpt

#endif
