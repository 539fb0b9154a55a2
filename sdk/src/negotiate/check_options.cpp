// Checks a configuration by what manifests state: no code of a plugin runs, in no process.
#include <algorithm>
#include <set>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/variables.h"
#include "sdk/src/config/layer_rules.h"
#include "sdk/src/negotiate/negotiate.h"

namespace octavo {
namespace {

// Hints are hints: a manifest without any may be that of a backend.
bool may_be_backend(const Manifest &manifest) {
  const std::vector<std::string> &interfaces = manifest.provides.interfaces;
  return interfaces.empty() ||
         std::any_of(interfaces.begin(), interfaces.end(),
                     [](const std::string &id) { return id.starts_with("octavo.backend/"); });
}

// The backend of this name, as far as its files tell. Empty: its manifest passed all checks;
// else why it is of no use.
std::string refused(const Negotiation &n, Candidate &c, const octavo_host *host) {
  if (!read_candidate(n, c, host)) {
    if (n.discovery.find(c.id) == nullptr)
      return c.verdicts.back().text + "; " + c.verdicts.back().remedy.text;
    std::string text = "its plugin is refused";
    for (const Verdict &v : c.verdicts) text += "; " + v.text;
    return text;
  }
  if (may_be_backend(*c.described)) return {};
  return c.described->path + ": expected the interface octavo.backend/1 in [provides], found " +
         enumerate(c.described->provides.interfaces);
}

// An option of this backend that the configuration or the environment sets; empty: none does.
std::string first_set(const Config &config, const std::string &id) {
  const auto in = [&](const std::string &prefix, const auto &tables) -> std::string {
    const auto found = tables.find(id);
    if (found == tables.end() || found->second.empty()) return {};
    const auto &[name, setting] = *found->second.begin();
    return prefix + id + "." + name + " (" + setting.origin + ")";
  };
  std::string set = in("fp8.", config.backend_options);
  for (const LayerRule &rule : config.layer_rules)
    if (set.empty()) set = in(rule.key + ".fp8.", rule.options);
  const std::vector<std::string> variables = variables_with(variable_of(id, ""));
  return set.empty() && !variables.empty() ? variables.front() : set;
}

// The options of a backend whose files pass, or a warning that nobody checked those that are set.
void check(Negotiation &n, Candidate &c) {
  const Manifest &manifest = *c.described;
  if (manifest.options) {
    resolve_options(n, c, *manifest.options);
    n.checked_options[c.id] = std::move(c.options);
    return;
  }
  const std::string set = first_set(n.config, c.id);
  if (set.empty()) return;
  const std::string file = n.config.directory.empty() ? "" : " " + n.config.name;
  n.warnings.push_back(concat("the options of backend ", c.id, ", such as ", set,
                              ", were not checked: ", manifest.path,
                              " has no [options], and no code of the plugin runs here; `octavo "
                              "check",
                              file, " --set fp8.backend=", c.id, "` asks the plugin"));
}

}  // namespace

std::string check_all_options(Negotiation &n, const octavo_host *host) {
  check_tables(n);
  check_fallback(n.config);
  std::set<std::string> ids;
  for (const auto &[id, options] : n.config.backend_options) ids.insert(id);
  for (const LayerRule &rule : n.config.layer_rules)
    for (const auto &[id, options] : rule.options) ids.insert(id);
  for (const std::string &id : ids) {
    Candidate c;
    c.id = id;
    if (const std::string why = refused(n, c, host); !why.empty())
      throw Failure(OCTAVO_UNSUPPORTED, "octavo.config", "table [fp8.", id,
                    "] cannot be checked: ", why);
    check(n, c);
  }
  std::vector<std::string> wanted = n.config[key::kPreference];
  if (n.config[key::kBackend] != "auto") wanted = {n.config[key::kBackend]};
  if (n.config[key::kMixedPrecision] != "fp8") wanted.clear();
  std::string missing;
  for (const std::string &id : wanted) {
    Candidate c;
    c.id = id;
    if (!ids.insert(id).second) continue;
    const std::string why = refused(n, c, host);
    if (why.empty()) check(n, c);
    // Why one that is installed is refused is this machine's: octavo check says it. A name is the
    // file's.
    if (n.discovery.find(id) != nullptr || n.config[key::kBackend] == "auto") continue;
    const std::string words = concat("fp8.backend (", n.config.origin(key::kBackend), "): ", why);
    if (n.config[key::kFallback].empty())
      missing = words;
    else
      n.warnings.push_back(words);
  }
  for (const std::string &warning : n.warnings) warn(host, kConfigDomain, warning);
  return missing;
}

LentSettings settings_of(const Negotiation &n) {
  LentSettings all;
  const auto put = [&](const std::string &table, const auto &options) {
    for (const auto &[name, setting] : options) all.put(table + name, setting);
  };
  put("", n.config.settings);
  put("", n.config.manifests);
  for (const auto &[id, options] : n.config.backend_options) put("fp8." + id + ".", options);
  for (const LayerRule &rule : n.config.layer_rules) {
    all.put(rule.key + ".match", rule.match);
    if (rule.place) all.put(rule.key + ".place", *rule.place);
    for (const auto &[id, options] : rule.options) put(rule.key + ".fp8." + id + ".", options);
  }
  const auto put_options = [&](const std::string &id, const std::vector<EffectiveOption> &options) {
    for (const EffectiveOption &o : options) all.put("fp8." + id + "." + o.name, o.setting);
  };
  for (const auto &[id, options] : n.checked_options) put_options(id, options);
  for (const Candidate &c : n.candidates) put_options(c.id, c.options);
  return all;
}

std::vector<BackendOptions> options_of_backends(const Negotiation &n, const octavo_host *host) {
  std::vector<BackendOptions> backends;
  for (const FoundManifest &found : n.discovery.manifests) {
    if (!found.shadowed_by.empty()) continue;
    Candidate c;
    c.id = found.name;
    std::string why = refused(n, c, host);
    if (c.described && !may_be_backend(*c.described)) continue;
    const bool stated = c.described && c.described->options;
    if (why.empty() && !stated) why = "its manifest has no [options]";
    backends.push_back(
        {c.id, why.empty() ? *c.described->options : std::vector<DeclaredOption>(), why});
  }
  return backends;
}

}  // namespace octavo
