// The command line.
#ifndef TRAIN_GPT_OPTIONS_H
#define TRAIN_GPT_OPTIONS_H

#include <string>
#include <vector>

#include "model.h"
#include "run_spec.h"

namespace gpt {

struct Options {
  std::string config;  // octavo.toml; empty: none
  std::vector<std::string> text;
  std::vector<RunSpec> runs;
  ModelSize size;
  int64_t batch = 16;
  int64_t steps = 450;
  double rate = 5e-3;
  uint64_t seed = 1;
  uint32_t threads = 0;
  uint32_t ranks = 1;  // data parallel, as threads of this program
  std::string out = "out/train_gpt";
  std::string prompt = "This License ";
  int64_t sample_bytes = 200;
  bool quiet = false;
};

// Throws UserError; returns false when --help was asked for and printed.
bool parse_options(int argc, char **argv, Options &options);

}  // namespace gpt

#endif
