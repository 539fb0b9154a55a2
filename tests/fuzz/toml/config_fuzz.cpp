// What a configuration promises: every value checked, every refusal typed, every remedy in words.
#include "config_fuzz.h"

#include <cmath>
#include <string>
#include <vector>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"
#include "sdk/src/config/config.h"
#include "sdk/src/config/options.h"
#include "sdk/src/config/remedy.h"
#include "tests/fuzz/expect.h"

namespace octavo::fuzz {
namespace {

const std::vector<DeclaredOption> &declared() {
  static const OtherToml none{"nothing"};
  static const std::vector<DeclaredOption> options = {
      {"count", "", int64_t{4}, int64_t{1}, int64_t{64}, {}},
      {"ratio", "", 0.5, 0.0, none, {}},
      {"verbose", "", false, none, none, {}},
      {"mode", "", std::string("exact"), none, none, {"fast", "exact"}},
      {"note", "", std::string(), none, none, {}}};
  return options;
}

void check_refusal(const Failure &f, std::string_view text) {
  expect(f.status() == OCTAVO_INVALID && std::string(f.domain()) == "octavo.config",
         "a typed refusal", f.text());
  expect(
      f.text().find("octavo.toml") != std::string::npos || f.text().find(": ") != std::string::npos,
      "a refusal names its place", f.text());
  // The search for an edit that corrects it throws nothing, whatever the text is.
  const std::string words = Source("octavo.toml", text).apply(f.fix());
  expect(words.find('\0') == std::string::npos, "a remedy is text", f.text());
}

void check_options(const Config &config, std::string_view text) {
  for (const auto &[id, given] : config.backend_options) {
    try {
      const std::vector<EffectiveOption> options = effective_options(declared(), id, given);
      expect(options.size() == declared().size(), "every declared option has a value", id);
      for (const EffectiveOption &o : options)
        expect(!o.setting.origin.empty(), "an origin", o.name);
      const int64_t count = std::get<int64_t>(options[0].setting.value);
      const double ratio = std::get<double>(options[1].setting.value);
      expect(count >= 1 && count <= 64 && std::isfinite(ratio) && ratio >= 0, "values in range",
             id);
      const std::string &mode = std::get<std::string>(options[3].setting.value);
      expect(mode == "fast" || mode == "exact", "a legal choice", mode);
      expect(lend_options(options).size() == options.size(), "every option is lent", id);
    } catch (const Failure &f) {
      check_refusal(f, text);
    }
  }
}

}  // namespace

void read_as_config(std::string_view text) {
  octavo_open_desc desc{};
  desc.size = sizeof(desc);
  desc.kind = OCTAVO_KIND_OPEN_DESC;
  // An empty view may have no data, which would mean "no text".
  desc.config_text = borrow(text.empty() ? std::string_view("") : text);
  try {
    const Config config = load_config(desc);
    expect(config.has_file && config.text == text, "the text is kept");
    expect(config[key::kProbeTimeout] >= 1 && config[key::kProbeTimeout] <= kMaxProbeTimeout,
           "a deadline in range", std::to_string(config[key::kProbeTimeout]));
    for (const auto &[key, setting] : config.settings)
      expect(!setting.origin.empty(), "an origin for every key", key);
    check_options(config, text);
  } catch (const Failure &f) {
    check_refusal(f, text);
  }
}

}  // namespace octavo::fuzz
