// Takes "te:recipe=current,margin=1" apart.
#include "run_spec.h"

#include <algorithm>

#include "error.h"

namespace gpt {
namespace {

[[noreturn]] void refuse(const std::string &name, const std::string &found) {
  throw UserError("--run " + name,
                  "fp32, bf16, config, or an FP8 backend with optional settings, such as "
                  "reference or te:recipe=current,margin=0",
                  found, "correct the name; `octavo list` prints the backends that are installed");
}

bool is_word(const std::string &s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  });
}

}  // namespace

RunSpec parse_run(const std::string &name) {
  RunSpec spec;
  spec.name = name;
  const size_t colon = name.find(':');
  spec.backend = name.substr(0, colon);
  if (!is_word(spec.backend)) refuse(name, "\"" + spec.backend + "\" as the name of a backend");

  const bool plain = spec.backend == "fp32" || spec.backend == "bf16" || spec.backend == "config";
  if (plain) {
    if (colon != std::string::npos)
      refuse(name, "settings, which " + spec.backend + " has none of");
    spec.kind = spec.backend == "fp32"   ? RunSpec::Kind::kFp32
                : spec.backend == "bf16" ? RunSpec::Kind::kBf16
                                         : RunSpec::Kind::kConfig;
    spec.backend.clear();
    return spec;
  }

  spec.kind = RunSpec::Kind::kBackend;
  size_t begin = colon;
  while (begin != std::string::npos) {
    const size_t end = name.find(',', begin + 1);
    const std::string setting = name.substr(begin + 1, end - begin - 1);
    const size_t equals = setting.find('=');
    const std::string key = setting.substr(0, equals);
    if (equals == std::string::npos || !is_word(key) || equals + 1 == setting.size()) {
      refuse(name, "\"" + setting + "\" where key=value was expected");
    }
    spec.settings.emplace_back(key, setting.substr(equals + 1));
    begin = end;
  }
  return spec;
}

}  // namespace gpt
