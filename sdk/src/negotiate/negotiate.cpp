// Tries what the configuration wants, in its order, and never anything that it does not name.
#include "sdk/src/negotiate/negotiate.h"

#include <algorithm>
#include <cctype>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"
#include "sdk/src/config/layer_rules.h"
#include "sdk/src/config/unread.h"

namespace octavo {
namespace {

bool is_precision(const std::string &name) {
  return name == "no" || name == "fp16" || name == "bf16";
}

// Candidates that nobody can try, named in a configuration that other machines may share.
void note_unknown(Negotiation &n) {
  const std::vector<std::string> names = n.discovery.names();
  for (const Candidate &c : n.candidates) {
    if (c.is_precision || std::find(names.begin(), names.end(), c.id) != names.end()) continue;
    if (n.choice()->is_fallback && c.is_tried) continue;  // the warning of the fallback names it
    const std::string near = nearest(c.id, names);
    n.warnings.push_back(concat(c.is_fallback ? "fp8.fallback" : "fp8.preference", ": no plugin \"",
                                c.id, "\" is installed here",
                                near.empty() ? "" : "; did you mean \"" + near + "\"?"));
  }
}

}  // namespace

// Fallback "BF16" would be a backend that nobody has, and never bf16.
void check_fallback(const Config &config) {
  for (const std::string &name : config[key::kFallback]) {
    std::string lower = name;
    for (char &c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (is_precision(name) || !is_precision(lower)) continue;
    std::vector<std::string> list = config[key::kFallback];
    std::replace(list.begin(), list.end(), name, lower);
    fail_config(config.origin(key::kFallback),
                concat("fp8.fallback: expected \"", lower, "\", found \"", name, "\""),
                config.change(key::kFallback, list));
  }
}

void check_tables(const Negotiation &n) {
  const std::vector<std::string> names = n.discovery.names();
  const auto check = [&](const std::string &prefix, const auto &tables) {
    for (const auto &[id, options] : tables) {
      if (std::find(names.begin(), names.end(), id) != names.end()) continue;
      const std::string near = nearest(id, names);
      const std::string where = options.empty() ? n.config.name : options.begin()->second.origin;
      throw Failure(OCTAVO_INVALID, "octavo.config", where, ": table [", prefix, id,
                    "]: no backend \"", id, "\" is installed; ",
                    near.empty()
                        ? "found " + enumerate(names) + "; looked in " + n.discovery.places_text()
                        : concat("did you mean [", prefix, near, "]?"))
          .with_fix({.key = prefix + id,
                     .origin = options.empty() ? "" : options.begin()->second.origin,
                     .rename = near.empty() ? "" : prefix + near});
    }
  };
  check("fp8.", n.config.backend_options);
  for (const LayerRule &rule : n.config.layer_rules) check(rule.key + ".fp8.", rule.options);
}

Negotiation prepare(const octavo_open_desc &desc) {
  Negotiation n;
  n.config = load_config(desc);
  n.discovery = discover(n.config, desc);
  refuse_unread_variables(n.discovery.names());
  n.warnings = trust_settings_without_effect(n.config);
  n.trust = trust_policy(n.config, privileged());
  n.hardware = read_hardware();
  return n;
}

void negotiate(Negotiation &n, const octavo_open_desc &desc, const octavo_host *host) {
  for (const SearchPlace &p : n.discovery.places)
    if (p.asked && !p.ignored.empty())
      warn(host, "octavo.discovery", p.directory, " (", p.origin, ") is ignored: ", p.ignored);
  check_tables(n);
  check_fallback(n.config);
  choose_device(n, desc, host);

  std::vector<Candidate> wanted;
  auto want = [&](const std::string &id, bool fallback) {
    Candidate c;
    c.id = id;
    // As a backend, a precision's name would be a fallback that nobody is warned of.
    c.is_precision = is_precision(id) && (fallback || n.config[key::kMixedPrecision] != "fp8");
    c.is_fallback = fallback;
    wanted.push_back(std::move(c));
  };
  if (n.config[key::kMixedPrecision] != "fp8") {
    want(n.config[key::kMixedPrecision], false);
  } else {
    if (n.config[key::kBackend] == "auto")
      for (const std::string &id : n.config[key::kPreference]) want(id, false);
    else
      want(n.config[key::kBackend], false);
    for (const std::string &id : n.config[key::kFallback]) want(id, true);
  }
  for (Candidate &c : wanted) {
    const auto device = n.device;
    const size_t layers = n.layers.size();
    if (!n.chosen) evaluate(n, c, host);
    if (c.described) c.described->file = c.described->checked = nullptr;  // nothing stays open
    if (c.plugin != nullptr) check_locked_verdict(c.id, n.trust, c.verdicts);
    n.candidates.push_back(std::move(c));
    if (n.chosen) continue;
    if (!declined(n.candidates.back().verdicts)) {
      n.chosen = n.candidates.size() - 1;
    } else {  // its layers are not the next one's
      n.device = device;
      n.layers.resize(layers);
    }
  }
  if (n.chosen) note_unknown(n);  // a refusal names all candidates anyway
  for (const std::string &warning : n.warnings) warn(host, kConfigDomain, warning);
}

// The first cause comes first.
std::string refusal(const Negotiation &n) {
  std::string text;
  for (const Candidate &c : n.candidates) {
    for (const Verdict &v : c.verdicts) {
      if (v.decision != OCTAVO_DECLINE) continue;
      text += (text.empty() ? "" : "\n  ") + c.id + ": " + v.text;
      if (!v.evidence.empty()) text += "\n    found: " + v.evidence;
      if (!v.remedy.empty()) text += "\n    remedy: " + v.remedy.text;
    }
  }
  if (n.config[key::kFallback].empty())
    text += "\n  fp8.fallback is empty, so nothing else was tried";
  return text;
}

const std::vector<EffectiveOption> &Negotiation::options_of(const LayerRule &rule) const {
  static const std::vector<EffectiveOption> none;
  const auto i = static_cast<size_t>(&rule - config.layer_rules.data());
  return choice() != nullptr && i < choice()->rule_options.size() ? choice()->rule_options[i]
                                                                  : none;
}

const Verdict *first_refusal(const Negotiation &n, const Candidate **candidate) {
  for (const Candidate &c : n.candidates)
    for (const Verdict &v : c.verdicts)
      if (v.decision == OCTAVO_DECLINE) {
        *candidate = &c;
        return &v;
      }
  return nullptr;
}

}  // namespace octavo
