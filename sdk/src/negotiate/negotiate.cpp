// Tries what the configuration wants, in its order, and never anything that it does not name.
#include "sdk/src/negotiate/negotiate.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"
#include "sdk/src/config/layer_rules.h"
#include "sdk/src/config/unread.h"

namespace octavo {
namespace {

bool is_precision(const std::string &name) {
  return name == "no" || name == "fp16" || name == "bf16";
}

// A table [fp8.<id>] whose backend is not installed is a misspelling, or a wish nobody can check;
// also in a rule.
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

// The options of a loaded candidate, or why its plugin cannot list them. What the
// configuration has wrong is thrown on.
std::optional<std::string> refused_options(const Negotiation &n, Candidate &c) {
  try {
    resolve_options(n, c);
    return std::nullopt;
  } catch (const Failure &f) {
    if (f.status() == OCTAVO_INVALID) throw;
    return f.text();
  }
}

}  // namespace

Negotiation prepare(const octavo_open_desc &desc) {
  Negotiation n;
  n.config = load_config(desc);
  n.discovery = discover(n.config, desc);
  refuse_unread_variables(n.discovery.names());
  n.warnings = idle_protection(n.config);
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
    if (!n.chosen) evaluate(n, c, host);
    if (c.described) c.described->file = c.described->checked = nullptr;  // nothing stays open
    if (c.plugin != nullptr) check_locked_verdict(c.id, n.trust, c.verdicts);
    n.candidates.push_back(std::move(c));
    if (!n.chosen && !declined(n.candidates.back().verdicts)) n.chosen = n.candidates.size() - 1;
  }
  if (n.chosen) note_unknown(n);  // a refusal names all candidates anyway
  for (const std::string &warning : n.warnings) warn(host, kConfigDomain, warning);
}

void check_all_options(Negotiation &n, const octavo_host *host) {
  check_tables(n);
  std::set<std::string> ids;
  for (const auto &[id, options] : n.config.backend_options) ids.insert(id);
  for (const LayerRule &rule : n.config.layer_rules)
    for (const auto &[id, options] : rule.options) ids.insert(id);
  for (const std::string &id : ids) {
    Candidate c;
    c.id = id;
    load_candidate(n, c, Offer::kBackend, host);
    if (c.plugin != nullptr) {
      if (const auto refused = refused_options(n, c))
        throw Failure(OCTAVO_UNSUPPORTED, "octavo.config", "table [fp8.", id,
                      "] cannot be checked; ", *refused);
      n.checked_options[id] = std::move(c.options);
      continue;
    }
    std::string text = "table [fp8." + id + "] cannot be checked, its backend cannot be loaded";
    for (const Verdict &v : c.verdicts) text += "; " + v.text;
    throw Failure(OCTAVO_UNSUPPORTED, "octavo.config", text);
  }
  std::vector<std::string> wanted = n.config[key::kPreference];
  if (n.config[key::kBackend] != "auto") wanted = {n.config[key::kBackend]};
  if (n.config[key::kMixedPrecision] != "fp8") wanted.clear();
  for (const std::string &id : wanted) {
    if (n.checked_options.count(id) != 0) continue;
    Candidate c;
    c.id = id;
    load_candidate(n, c, Offer::kBackend, host);
    // explain gives the reason; nothing else is asked of it here.
    if (c.plugin == nullptr || refused_options(n, c)) continue;
    n.checked_options[id] = std::move(c.options);
  }
}

std::vector<BackendOptions> options_of_backends(const Negotiation &n, const octavo_host *host) {
  std::vector<BackendOptions> backends;
  for (const FoundManifest &found : n.discovery.manifests) {
    if (!found.shadowed_by.empty()) continue;
    Candidate c;
    c.id = found.name;
    load_candidate(n, c, Offer::kBackend, host);
    if (c.plugin != nullptr) {
      backends.push_back({c.id, declared_options(c.plugin->backend, c.id), ""});
      continue;
    }
    const auto provides =
        c.described ? c.described->provides.interfaces : std::vector<std::string>();
    const auto is_backend = [](const std::string &id) { return id.starts_with("octavo.backend/"); };
    if (!provides.empty() && std::none_of(provides.begin(), provides.end(), is_backend)) continue;
    backends.push_back({c.id, {}, c.verdicts.empty() ? "cannot be loaded" : c.verdicts[0].text});
  }
  return backends;
}

std::string refusal(const Negotiation &n) {
  std::string text = "nothing that the configuration allows can run here";
  for (const Candidate &c : n.candidates) {
    for (const Verdict &v : c.verdicts) {
      if (v.decision != OCTAVO_DECLINE) continue;
      text += "\n  " + c.id + ": " + v.text;
      if (!v.evidence.empty()) text += "\n    found: " + v.evidence;
      if (!v.remedy.empty()) text += "\n    remedy: " + v.remedy.text;
    }
  }
  if (n.config[key::kFallback].empty())
    text += "\n  fp8.fallback is empty, so nothing else was tried";
  return text;
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
