// [distributed] of octavo.toml: what carries the bytes between the ranks of this program.
#ifndef TRAIN_GPT_DISTRIBUTED_H
#define TRAIN_GPT_DISTRIBUTED_H

#include <cstdint>
#include <string>

namespace gpt {

struct Distributed {
  std::string engine = "threads";
  std::string origin = "default";  // of the engine: "octavo.toml:12:1"
  int64_t timeout_s = 600;         // of one operation
  std::string run_id;              // of checkpoints; empty: to be drawn
  bool on_cuda = false;            // device.kind is "cuda"
};

// Of this file; empty: the defaults. Throws UserError with everything that Octavo said.
Distributed read_distributed(const std::string &config_path);

}  // namespace gpt

#endif
