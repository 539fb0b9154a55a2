// Takes one candidate from its name to an answer, stage by stage, and notes who said what where.
#include "negotiate_candidate.h"

#include "failure.h"
#include "manifest_requires.h"
#include "options_environment.h"
#include "probe.h"
#include "text.h"
#include "wall.h"

namespace octavo {
namespace {

// Notes what happens to one candidate: a stage that was reached, and who said what there.
class Progress {
 public:
  explicit Progress(Candidate &c) : c_(c), seen_(c.verdicts.size()) {}

  // Returns whether the stage was passed: whether no verdict since the last one declines.
  bool reach(const char *name, std::string text = {}) {
    bool passed = true;
    for (; seen_ < c_.verdicts.size(); ++seen_) {
      Verdict &v = c_.verdicts[seen_];
      if (v.stage.empty()) v.stage = name;
      if (v.decision == OCTAVO_DECLINE) passed = false;
    }
    c_.stages.push_back({name, passed, std::move(text)});
    return passed;
  }

 private:
  Candidate &c_;
  size_t seen_;
};

// The key that names a candidate, and what its value is with another name in its place.
Mend renamed(const Config &config, const Candidate &c, const std::string &name) {
  const auto changed = [&](std::vector<std::string> list) {
    for (std::string &one : list)
      if (one == c.id) one = name;
    return show(TomlValue(std::move(list)));
  };
  if (c.is_fallback)
    return {.key = "fp8.fallback",
            .origin = config.origin("fp8.fallback"),
            .value = changed(config.fallback)};
  if (config.backend == "auto")
    return {.key = "fp8.preference",
            .origin = config.origin("fp8.preference"),
            .value = changed(config.preference)};
  return {
      .key = "fp8.backend", .origin = config.origin("fp8.backend"), .value = show(TomlValue(name))};
}

void not_found(const Negotiation &n, Candidate &c) {
  const std::vector<std::string> names = n.discovery.names();
  const std::string near = nearest(c.id, names);
  c.verdicts.push_back(
      {OCTAVO_LEVEL_MANIFEST, OCTAVO_DECLINE, OCTAVO_REASON_MANIFEST,
       "no backend \"" + c.id + "\" is installed; found " + enumerate(names),
       "looked for " + c.id + ".octavo-plugin.toml in " + n.discovery.places_text(),
       near.empty()
           ? "install the plugin, or name its directory in OCTAVO_PLUGIN_PATH or plugins.path"
           : "did you mean \"" + near + "\"?",
       "discovery", near.empty() ? Mend{} : renamed(n.config, c, near)});
}

bool offers(const LoadedPlugin &plugin, Offer wanted) {
  return wanted == Offer::kBackend ? plugin.has_backend : plugin.kernels.has_value();
}

Verdict offers_another(const Manifest &manifest, Offer wanted) {
  const bool backend = wanted == Offer::kBackend;
  return {OCTAVO_LEVEL_PLUGIN,
          OCTAVO_DECLINE,
          OCTAVO_REASON_ABI,
          manifest.library + ": expected the interface " +
              (backend ? OCTAVO_BACKEND_ID : OCTAVO_KERNELS_ID) + ", found " +
              (backend ? OCTAVO_KERNELS_ID : OCTAVO_BACKEND_ID) + " only",
          manifest.path,
          backend ? "the plugin is no FP8 backend; name one in fp8.backend"
                  : "the plugin has no kernels; reinstall the plugin " + manifest.name,
          "plugin"};
}

// The check of the file, the helper that tries it, the load and the handshake.
void load_library(const Negotiation &n, const Manifest &manifest, const std::string &sha256,
                  Candidate &c, Offer wanted, Progress &progress, const octavo_host *host) {
  const size_t before = c.verdicts.size();
  const bool may_load = check_probe(n.config, n.hardware, manifest, sha256, host, c.verdicts);
  if (may_load) c.plugin = load_plugin(manifest, sha256, host, c.verdicts);
  if (c.plugin != nullptr && !offers(*c.plugin, wanted)) {
    c.verdicts.push_back(offers_another(manifest, wanted));
    c.plugin = nullptr;
  }
  // Both add a verdict when they refuse, with its stage, and none otherwise.
  const std::string refused_at = c.verdicts.size() > before ? c.verdicts[before].stage : "";
  for (const std::string stage : {"elf", "probe", "load", "plugin"}) {
    if (stage == refused_at) {
      progress.reach(stage.c_str());
      return;
    }
    c.stages.push_back({stage, true, stage == "load" ? manifest.library : ""});
  }
}

std::string recipe_of(const Candidate &c) {
  for (const EffectiveOption &o : c.options)
    if (const auto *text = std::get_if<std::string>(&o.setting.value); text && o.name == "recipe")
      return *text;
  return {};
}

}  // namespace

void load_candidate(const Negotiation &n, Candidate &c, Offer wanted, const octavo_host *host) {
  Progress progress(c);
  const FoundManifest *found = n.discovery.find(c.id);
  if (found == nullptr) not_found(n, c);
  if (!progress.reach("discovery", found ? found->path + " (" + found->origin + ")" : "")) return;
  c.manifest = found->path;
  c.origin = found->origin;
  std::optional<Manifest> &manifest = c.described = read_manifest(found->path, c.verdicts);
  if (manifest) {
    if (const std::optional<Verdict> abi = abi_verdict(*manifest)) c.verdicts.push_back(*abi);
    check_requirements(*manifest, n.hardware, c.verdicts);
  }
  if (!progress.reach("manifest", manifest ? manifest->name + " " + manifest->version : "")) return;
  for (const std::string &warning : manifest->warnings)
    diagnose(host, OCTAVO_SEVERITY_WARNING, OCTAVO_OK, "octavo.manifest",
             manifest->path + ": " + warning);
  std::string sha256;
  check_trust(*manifest, n.trust, &sha256, c.verdicts);
  if (!progress.reach("trust", "plugins.trust = \"" + n.config.trust + "\"")) return;
  load_library(n, *manifest, sha256, c, wanted, progress, host);
}

void resolve_options(const Negotiation &n, Candidate &c) {
  static const std::map<std::string, Setting> none;
  const auto given = n.config.backend_options.find(c.id);
  const std::vector<DeclaredOption> declared = declared_options(c.plugin->backend, c.id);
  c.options = effective_options(
      declared, c.id,
      with_environment(declared, c.id,
                       given == n.config.backend_options.end() ? none : given->second));
}

octavo_session_desc describe_session(const Negotiation &n, const octavo_host *host,
                                     const std::vector<octavo_option_value> &options) {
  octavo_session_desc d{};
  d.size = sizeof(d);
  d.kind = OCTAVO_KIND_SESSION_DESC;
  d.device = n.device->device();
  d.host = host;
  d.kernels = &n.device->kernels();
  d.caps = &n.device->caps();
  d.kernels_ctx = n.device->ctx();
  d.options = options.data();
  d.option_count = options.size();
  if (n.config.require.deterministic) d.flags |= OCTAVO_SESSION_DETERMINISTIC;
  return d;
}

void ask_backend(const Negotiation &n, Candidate &c, const octavo_host *host) {
  const std::vector<octavo_option_value> options = lend_options(c.options);
  const octavo_session_desc desc = describe_session(n, host, options);
  const size_t before = c.verdicts.size();
  const octavo_verdict_sink sink = collect(c.verdicts);
  std::string thrown;
  const octavo_status status =
      call_plugin(&thrown, [&] { return c.plugin->backend.check_session(&desc, &sink); });
  if (status != OCTAVO_OK)
    c.verdicts.push_back({OCTAVO_LEVEL_SESSION, OCTAVO_DECLINE, OCTAVO_REASON_KERNEL,
                          "check_session failed with status " + std::to_string(status) + thrown, "",
                          "see the diagnostics of the plugin"});
  if (!n.config.require.native) return;
  for (size_t i = before; i < c.verdicts.size(); ++i)
    if (c.verdicts[i].decision == OCTAVO_ACCEPT_EMULATED) {
      c.verdicts.push_back(
          {OCTAVO_LEVEL_SESSION, OCTAVO_DECLINE, OCTAVO_REASON_REQUIRE,
           "fp8.require.native: FP8 units are required, backend " + c.id + " would emulate them",
           c.verdicts[i].text,
           "set fp8.require.native = false, or run where the requirement is met"});
      return;
    }
}

void evaluate(const Negotiation &n, Candidate &c, const octavo_host *host) {
  c.is_tried = true;
  if (c.is_precision) {
    c.verdicts.push_back({OCTAVO_LEVEL_SESSION, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
                          "the host's own linears run in " +
                              std::string(c.id == "no" ? "full precision" : c.id) + "; no FP8",
                          "", ""});
    Progress(c).reach("session");
    return;
  }
  load_candidate(n, c, Offer::kBackend, host);
  if (c.plugin == nullptr) return;
  Progress progress(c);
  try {
    resolve_options(n, c);
  } catch (const Failure &f) {
    if (f.status() == OCTAVO_INVALID) throw;  // the configuration is wrong, not the plugin
    c.verdicts.push_back({OCTAVO_LEVEL_PLUGIN, OCTAVO_DECLINE, OCTAVO_REASON_ABI, f.text(),
                          c.plugin->library, "install a corrected build of the plugin"});
    c.stages.pop_back();  // the handshake is not done before its options are
    progress.reach("plugin");
    return;
  }
  if (n.device == nullptr)
    c.verdicts.insert(c.verdicts.end(), n.device_verdicts.begin(), n.device_verdicts.end());
  else
    check_fp8_requirements(n.config.require, n.device->caps(), c.id, recipe_of(c), c.verdicts);
  if (!progress.reach("device", n.device_text)) return;
  ask_backend(n, c, host);
  progress.reach("session");
}

}  // namespace octavo
