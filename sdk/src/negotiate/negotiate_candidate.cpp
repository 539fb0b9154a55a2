// Takes one candidate from its name to an answer, and keeps the result of each stage.
#include "sdk/src/negotiate/negotiate.h"

#include "sdk/src/base/exception_boundary.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/base/text.h"
#include "sdk/src/config/failures.h"
#include "sdk/src/config/layer_rules.h"
#include "sdk/src/config/options.h"
#include "sdk/src/config/requirements.h"
#include "sdk/src/plugin/manifest_requires.h"
#include "sdk/src/probe/probe.h"

namespace octavo {
namespace {

// Takes the verdicts of one candidate after the other as results of its stages.
class Progress {
 public:
  explicit Progress(Candidate &c) : c_(c), seen_(c.verdicts.size()) {}

  // The result of a stage, whose verdicts are those since the last one: passed, if none declines.
  bool end(Stage stage, std::string text = {}) {
    StageResult result{true, std::move(text)};
    for (; seen_ < c_.verdicts.size(); ++seen_) {
      Verdict &v = c_.verdicts[seen_];
      if (v.stage == Stage::kNone) v.stage = stage;
      if (v.decision == OCTAVO_DECLINE) result.passed = false;
    }
    c_.stages.push_back(result);
    return result.passed;
  }
  // The result of a stage that gives no verdicts.
  void pass(std::string text = {}) { c_.stages.push_back({true, std::move(text)}); }

 private:
  Candidate &c_;
  size_t seen_;
};

// The key that names a candidate, and what its value is with another name in its place.
Fix renamed(const Config &config, const Candidate &c, const std::string &name) {
  const auto changed = [&](std::vector<std::string> list) {
    for (std::string &one : list)
      if (one == c.id) one = name;
    return list;
  };
  if (c.is_fallback) return config.change(key::kFallback, changed(config[key::kFallback]));
  if (config[key::kBackend] == "auto")
    return config.change(key::kPreference, changed(config[key::kPreference]));
  return config.change(key::kBackend, name);
}

// "delayed" for "te.delayed": the value of an option in the place of a backend; empty: it is none.
std::string told_as_option(const Negotiation &n, const std::string &id) {
  for (const FoundManifest &found : n.discovery.manifests) {
    std::vector<Verdict> unread;
    if (!found.shadowed_by.empty()) continue;
    const auto manifest = read_manifest(found.path, unread);
    if (!manifest || !manifest->options) continue;
    for (const DeclaredOption &o : *manifest->options)
      if (std::find(o.choices.begin(), o.choices.end(), id) != o.choices.end())
        return concat("\"", id, "\" is a value of fp8.", found.name, ".", o.name,
                      ": set fp8.backend = \"", found.name, "\" and fp8.", found.name, ".", o.name,
                      " = \"", id, "\"");
  }
  return {};
}

// How to get a plugin that is not there.
Remedy remedy_for_missing(const Negotiation &n, const Candidate &c,
                          const std::vector<std::string> &names) {
  if (const SearchPlace *place = n.discovery.unsearched_with(c.id)) {
    const std::string allow = "octavo plugin allow " + n.config.name;
    if (place->waits) return run_command(allow, " if you trust what is there");
    std::vector<std::string> paths = n.config[key::kPluginPath];
    paths.push_back("plugins");
    return Remedy("name its folder, then run `" + allow + "`",
                  n.config.change(key::kPluginPath, paths));
  }
  if (const std::string told = told_as_option(n, c.id); !told.empty()) return Remedy(told);
  const std::string near = nearest(c.id, names);
  if (!near.empty()) return Remedy("did you mean \"" + near + "\"?", renamed(n.config, c, near));
  return Remedy("install the plugin, or name its directory in OCTAVO_PLUGIN_PATH or plugins.path");
}

void not_found(const Negotiation &n, Candidate &c) {
  n.discovery.must_know(c.id);
  const std::vector<std::string> names = n.discovery.names();
  c.verdicts.push_back(
      {OCTAVO_LEVEL_MANIFEST, OCTAVO_DECLINE, OCTAVO_REASON_MANIFEST,
       "no backend \"" + c.id + "\" is installed; found " + enumerate(names),
       "looked for " + c.id + ".octavo-plugin.toml in " + n.discovery.places_text(),
       remedy_for_missing(n, c, names), Stage::kDiscovery});
}

bool offers(const LoadedPlugin &plugin, PluginRole wanted) {
  return wanted == PluginRole::kBackend   ? plugin.has_backend
         : wanted == PluginRole::kKernels ? plugin.kernels.has_value()
                                          : plugin.layer.has_value();
}

Verdict offers_another(const Manifest &manifest, const LoadedPlugin &plugin, PluginRole wanted) {
  struct Interface {
    PluginRole offer;
    const char *id, *word;
  };
  std::string expected, word;
  std::vector<std::string> found;
  for (const Interface i : {Interface{PluginRole::kBackend, OCTAVO_BACKEND_ID, "backend"},
                            {PluginRole::kKernels, OCTAVO_KERNELS_ID, "kernels"},
                            {PluginRole::kLayer, OCTAVO_LAYER_ID, "layer"}}) {
    if (i.offer == wanted) expected = i.id, word = i.word;
    if (offers(plugin, i.offer)) found.emplace_back(i.id);
  }
  return {OCTAVO_LEVEL_PLUGIN,
          OCTAVO_DECLINE,
          OCTAVO_REASON_ABI,
          manifest.library + ": expected the interface " + expected + ", found " +
              enumerate(found) + " only",
          manifest.path,
          wanted == PluginRole::kBackend
              ? "the plugin is not an FP8 backend; name one in fp8.backend"
              : "the plugin has no " + word + "; reinstall the plugin " + manifest.name,
          Stage::kPlugin};
}

// The check of the file, the helper that tries it, the load and the handshake: the stage that
// refuses; nothing when all of them pass.
std::optional<Stage> refused_library(const Negotiation &n, const Manifest &manifest,
                                     const std::string &sha256, Candidate &c, PluginRole wanted,
                                     std::string *how, const octavo_host *host) {
  const CheckedProbe probed = check_probe(n.config, n.hardware, manifest, sha256, host, c.verdicts);
  c.warnings = probed.warnings;
  *how = probed.how;
  if (probed.refused) return probed.refused;
  c.plugin = load_plugin(manifest, sha256, host, c.verdicts);
  if (c.plugin == nullptr) return c.verdicts.back().stage;
  if (offers(*c.plugin, wanted)) return std::nullopt;
  c.verdicts.push_back(offers_another(manifest, *c.plugin, wanted));
  c.plugin = nullptr;
  return Stage::kPlugin;
}

// What runs: the option recipe, unless Accelerate's switch of the same backend replaces it.
std::string recipe_of(const std::vector<EffectiveOption> &options) {
  std::string recipe;
  for (const EffectiveOption &o : options) {
    if (const auto *text = std::get_if<std::string>(&o.setting.value); text && o.name == "recipe")
      recipe = *text;
    if (const auto *flag = std::get_if<bool>(&o.setting.value);
        flag && *flag && o.name == "use_mxfp8_block_scaling")
      return "mx";
  }
  return recipe;
}

// The recipe of the session, then that of each rule that has one.
std::vector<std::string> recipes_of(const Candidate &c) {
  std::vector<std::string> recipes = {recipe_of(c.options)};
  for (const std::vector<EffectiveOption> &options : c.rule_options)
    if (const std::string recipe = recipe_of(options); !recipe.empty()) recipes.push_back(recipe);
  return recipes;
}

// A backend that accepts and still gives a reason has something to say about it.
void warn_of_reasons(Candidate &c, size_t first, const octavo_host *host) {
  for (size_t i = first; i < c.verdicts.size(); ++i) {
    const Verdict &v = c.verdicts[i];
    if (v.decision == OCTAVO_DECLINE || v.reason == OCTAVO_REASON_NONE) continue;
    c.warnings.push_back(concat("backend ", c.id, ": ", v.text));
    warn(host, "octavo.backend", c.warnings.back());
  }
}

// The stages before any of its code runs; whether it passes them.
bool pass_files(const Negotiation &n, Candidate &c, std::string *sha256, const octavo_host *host) {
  Progress progress(c);
  const FoundManifest *found = n.discovery.find(c.id);
  if (found == nullptr) not_found(n, c);
  if (!progress.end(Stage::kDiscovery, found ? found->path + " (" + found->origin + ")" : ""))
    return false;
  c.manifest = found->path;
  c.origin = found->origin;
  std::optional<Manifest> &manifest = c.described = read_manifest(found->path, c.verdicts);
  if (manifest) {
    if (const std::optional<Verdict> abi = abi_verdict(*manifest)) c.verdicts.push_back(*abi);
    check_requirements(*manifest, n.hardware, c.verdicts, &c.first_device);
  }
  if (!progress.end(Stage::kManifest, manifest ? manifest->name + " " + manifest->version : ""))
    return false;
  for (const std::string &warning : manifest->warnings)
    warn(host, "octavo.manifest", manifest->path, ": ", warning);
  check_trust(*manifest, n.trust, sha256, c.verdicts);
  return progress.end(Stage::kTrust, "plugins.trust = \"" + n.config[key::kTrust] + "\"");
}

void pass_stages(const Negotiation &n, Candidate &c, PluginRole wanted, const octavo_host *host) {
  std::string sha256, how;
  if (!pass_files(n, c, &sha256, host)) return;
  Progress progress(c);
  const Manifest &manifest = *c.described;
  const std::optional<Stage> refused = refused_library(n, manifest, sha256, c, wanted, &how, host);
  for (const Stage stage : {Stage::kElf, Stage::kProbe, Stage::kLoad, Stage::kPlugin}) {
    if (stage == refused) {
      progress.end(stage);
      return;
    }
    progress.pass(stage == Stage::kLoad ? manifest.library : stage == Stage::kProbe ? how : "");
  }
}

// A shortage in `pass` belongs to the stage that has no result yet.
template <typename Pass>
void at_its_stage(const Candidate &c, Pass &&pass) {
  try {
    pass();
  } catch (ResourceUnavailable &s) {
    s.at(static_cast<Stage>(static_cast<size_t>(Stage::kDiscovery) + c.stages.size()));
    throw;
  }
}

// The plugin's own options count; a manifest that states others misleads who reads it alone.
void warn_of_stale_manifest(Candidate &c, const std::vector<DeclaredOption> &declared,
                            const octavo_host *host) {
  if (!c.described->options) return;
  const std::string difference = first_difference(*c.described->options, declared);
  if (difference.empty()) return;
  c.warnings.push_back(concat(c.described->path,
                              ": [options] differs from the plugin, which counts: ", difference,
                              "; print it again with `octavo plugin manifest ", c.id, " --options ",
                              c.plugin->library, " --only-options`"));
  warn(host, kOptionsDomain, c.warnings.back());
}

}  // namespace

void load_candidate(const Negotiation &n, Candidate &c, PluginRole wanted,
                    const octavo_host *host) {
  at_its_stage(c, [&] { pass_stages(n, c, wanted, host); });
}

bool read_candidate(const Negotiation &n, Candidate &c, const octavo_host *host) {
  std::string sha256;
  bool passed = false;
  at_its_stage(c, [&] { passed = pass_files(n, c, &sha256, host); });
  return passed;
}

void resolve_options(const Negotiation &n, Candidate &c,
                     const std::vector<DeclaredOption> &declared) {
  static const std::map<std::string, Setting> none;
  const auto given = n.config.backend_options.find(c.id);
  Failures wrong;
  c.options.clear();
  wrong.take([&] {
    c.options = effective_options(
        declared, c.id,
        with_environment(declared, c.id,
                         given == n.config.backend_options.end() ? none : given->second));
  });
  c.rule_options.clear();
  for (const LayerRule &rule : n.config.layer_rules)
    wrong.take(
        [&] { c.rule_options.push_back(differing_options(declared, c.id, rule, c.options)); });
  wrong.refuse();
}

octavo_session_desc describe_session(const Negotiation &n, const octavo_host *host,
                                     const std::vector<octavo_option_value> &options) {
  auto d = make<octavo_session_desc>(OCTAVO_KIND_SESSION_DESC);
  d.device = n.device->device();
  d.host = host;
  d.kernels = &n.device->kernels();
  d.caps = &n.device->caps();
  d.kernels_ctx = n.device->ctx();
  d.options = options.data();
  d.option_count = options.size();
  if (n.config[key::kDeterministic]) d.flags |= OCTAVO_SESSION_DETERMINISTIC;
  return d;
}

void ask_backend(const Negotiation &n, Candidate &c, const octavo_host *host) {
  const std::vector<octavo_option_value> options = lend_options(c.options);
  const octavo_session_desc desc = describe_session(n, host, options);
  const size_t before = c.verdicts.size();
  const VerdictSink sink(c.verdicts);
  std::string thrown;
  const octavo_status status =
      call_plugin(&thrown, [&] { return c.plugin->backend.check_session(&desc, sink.get()); });
  sink.check();
  pass_resource(status, concat("backend ", c.id, ": check_session"), Stage::kSession);
  if (status != OCTAVO_OK)
    c.verdicts.push_back({OCTAVO_LEVEL_SESSION, OCTAVO_DECLINE, OCTAVO_REASON_KERNEL,
                          concat("check_session failed with status ", status, thrown), "",
                          "see the diagnostics of the plugin"});
  else if (c.verdicts.size() == before)
    c.verdicts.push_back({OCTAVO_LEVEL_SESSION, OCTAVO_DECLINE, OCTAVO_REASON_ABI,
                          "check_session gave no verdict; expected one or more", "",
                          "install a corrected build of the plugin"});
  warn_of_reasons(c, before, host);
  if (!n.config[key::kNative]) return;
  for (size_t i = before; i < c.verdicts.size(); ++i)
    if (c.verdicts[i].decision == OCTAVO_ACCEPT_EMULATED) {
      c.verdicts.push_back(
          {OCTAVO_LEVEL_SESSION, OCTAVO_DECLINE, OCTAVO_REASON_REQUIRE,
           "fp8.require.native: FP8 units are required, backend " + c.id + " would emulate them",
           c.verdicts[i].text,
           set_key("fp8.require.native", "false", ", or run where the requirement is met")});
      return;
    }
}

void evaluate(Negotiation &n, Candidate &c, const octavo_host *host) {
  c.is_tried = true;
  if (c.is_precision) {
    c.verdicts.push_back({OCTAVO_LEVEL_SESSION, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
                          "the host's own linears run in " +
                              std::string(c.id == "no" ? "full precision" : c.id) + "; no FP8",
                          "", ""});
    Progress(c).end(Stage::kSession);
    return;
  }
  load_candidate(n, c, PluginRole::kBackend, host);
  if (c.plugin == nullptr) return;
  Progress progress(c);
  try {
    const std::vector<DeclaredOption> declared = declared_options(c.plugin->backend, c.id);
    warn_of_stale_manifest(c, declared, host);
    resolve_options(n, c, declared);
  } catch (const Failure &f) {
    if (f.status() == OCTAVO_INVALID) throw;  // the configuration is wrong, not the plugin
    c.verdicts.push_back({OCTAVO_LEVEL_PLUGIN, OCTAVO_DECLINE, OCTAVO_REASON_ABI, f.text(),
                          c.plugin->library, "install a corrected build of the plugin",
                          Stage::kPlugin});
    c.stages.back().passed = false;  // the handshake is not done before its options are
    return;
  }
  if (n.device == nullptr)
    c.verdicts.insert(c.verdicts.end(), n.device_verdicts.begin(), n.device_verdicts.end());
  else
    add_layers(n, c.described->requires_.layers, "[requires] layers of " + c.id, host, c.verdicts);
  if (n.device != nullptr)
    check_fp8_requirements(
        n.config, n.device->caps(),
        [&](const octavo_ability &question) { return n.device->serves(question); }, c.id,
        recipes_of(c), c.verdicts);
  if (!progress.end(Stage::kDevice, n.device_text)) return;
  ask_backend(n, c, host);
  progress.end(Stage::kSession);
}

}  // namespace octavo
