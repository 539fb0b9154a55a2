// What the user calls a run: "fp32", "bf16", "config", or an FP8 backend with its settings.
#ifndef TRAIN_GPT_RUN_SPEC_H
#define TRAIN_GPT_RUN_SPEC_H

#include <string>
#include <utility>
#include <vector>

namespace gpt {

struct RunSpec {
  enum class Kind { kFp32, kBf16, kConfig, kBackend };

  std::string name;  // as the user wrote it: "te:recipe=delayed"
  Kind kind = Kind::kFp32;
  std::string backend;                                        // kBackend: "te"
  std::vector<std::pair<std::string, std::string>> settings;  // kBackend: {"recipe", "delayed"}

  bool uses_octavo() const { return kind == Kind::kConfig || kind == Kind::kBackend; }
};

// Throws UserError for a name that cannot be a run; whether the backend exists, octavo_open says.
RunSpec parse_run(const std::string &name);

}  // namespace gpt

#endif
