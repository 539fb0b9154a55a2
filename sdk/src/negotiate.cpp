// Tries what the configuration wants, in its order, and never anything that it does not name.
#include "negotiate.h"

#include <algorithm>

#include "failure.h"
#include "kernels/cpu/table.h"
#include "options_environment.h"
#include "text.h"
#include "trust.h"

namespace octavo {
namespace {

bool is_precision(const std::string &name) {
  return name == "no" || name == "fp16" || name == "bf16";
}

void choose_device(Negotiation &n, const octavo_open_desc &desc, const octavo_host *host) {
  std::string kind = n.config.device;
  if (desc.device.type == OCTAVO_DEVICE_CPU) kind = "cpu";
  if (desc.device.type == OCTAVO_DEVICE_CUDA) kind = "cuda";
  if (desc.device.type > OCTAVO_DEVICE_CUDA)
    throw Failure(OCTAVO_INVALID, "octavo.open",
                  "device: expected type 0 (auto), 1 (cpu) or 2 (cuda), found " +
                      std::to_string(desc.device.type));
  if (kind == "cuda") {
    const bool present = !n.hardware.cuda_devices.empty();
    n.device_text = "cuda";
    n.device_verdicts.push_back(
        {OCTAVO_LEVEL_DEVICE, OCTAVO_DECLINE,
         present ? uint32_t{OCTAVO_REASON_KERNEL} : uint32_t{OCTAVO_REASON_DRIVER},
         present ? "this build of liboctavo has no CUDA kernels"
                 : "device.kind = \"cuda\", but this machine offers no CUDA device",
         n.hardware.cuda_text, "set device.kind = \"cpu\" or \"auto\""});
    return;
  }
  n.device_text = kind == "auto" ? "cpu (auto; cuda: " +
                                       (n.hardware.cuda_devices.empty()
                                            ? n.hardware.cuda_text
                                            : std::string("no CUDA kernels in this build")) +
                                       ")"
                                 : "cpu";
  const octavo_kernels *kernels = octavo_cpu_kernels();
  const octavo_device device{OCTAVO_DEVICE_CPU, 0};
  const octavo_verdict_sink sink = collect(n.device_verdicts);
  kernels->probe_device(device, &sink);
  n.device = std::make_unique<OpenDevice>(device, *kernels, host);
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
           : "did you mean \"" + near + "\"?"});
}

// Manifest, trust, library, handshake.
void load(const Negotiation &n, Candidate &c, const octavo_host *host) {
  const FoundManifest *found = n.discovery.find(c.id);
  if (found == nullptr) return not_found(n, c);
  c.manifest = found->path;
  c.origin = found->origin;
  const std::optional<Manifest> manifest = read_manifest(found->path, c.verdicts);
  if (!manifest) return;
  for (const std::string &warning : manifest->warnings)
    diagnose(host, OCTAVO_SEVERITY_WARNING, OCTAVO_OK, "octavo.manifest",
             manifest->path + ": " + warning);
  std::string sha256;
  if (!check_trust(*manifest, n.config.trust, &sha256, c.verdicts)) return;
  c.plugin = load_plugin(*manifest, sha256, host, c.verdicts);
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

void evaluate(const Negotiation &n, Candidate &c, const octavo_host *host) {
  if (c.is_precision) {
    c.verdicts.push_back({OCTAVO_LEVEL_SESSION, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
                          "the host's own linears run in " +
                              std::string(c.id == "no" ? "full precision" : c.id) + "; no FP8",
                          "", ""});
    return;
  }
  load(n, c, host);
  if (c.plugin == nullptr) return;
  try {
    resolve_options(n, c);
  } catch (const Failure &f) {
    if (f.status() == OCTAVO_INVALID) throw;  // the configuration is wrong, not the plugin
    c.verdicts.push_back({OCTAVO_LEVEL_PLUGIN, OCTAVO_DECLINE, OCTAVO_REASON_ABI, f.text(),
                          c.plugin->library, "install a corrected build of the plugin"});
    return;
  }
  if (n.device == nullptr) {
    c.verdicts.insert(c.verdicts.end(), n.device_verdicts.begin(), n.device_verdicts.end());
    return;
  }
  const std::vector<octavo_option_value> options = lend_options(c.options);
  const octavo_session_desc desc = describe_session(n, host, options);
  const octavo_verdict_sink sink = collect(c.verdicts);
  const octavo_status status = c.plugin->backend.check_session(&desc, &sink);
  if (status != OCTAVO_OK)
    c.verdicts.push_back({OCTAVO_LEVEL_SESSION, OCTAVO_DECLINE, OCTAVO_REASON_KERNEL,
                          "check_session failed with status " + std::to_string(status), "",
                          "see the diagnostics of the plugin"});
}

// A table [fp8.<id>] whose backend is not installed is a misspelling, or a wish nobody can check.
void check_tables(const Negotiation &n) {
  const std::vector<std::string> names = n.discovery.names();
  for (const auto &[id, options] : n.config.backend_options) {
    if (std::find(names.begin(), names.end(), id) != names.end()) continue;
    const std::string near = nearest(id, names);
    const std::string where = options.empty() ? n.config.name : options.begin()->second.origin;
    throw Failure(
        OCTAVO_INVALID, "octavo.config",
        where + ": table [fp8." + id + "]: no backend \"" + id + "\" is installed; " +
            (near.empty() ? "found " + enumerate(names) + "; looked in " + n.discovery.places_text()
                          : "did you mean [fp8." + near + "]?"));
  }
}

}  // namespace

OpenDevice::OpenDevice(octavo_device device, const octavo_kernels &kernels, const octavo_host *host)
    : device_(device), kernels_(complete(kernels)) {
  caps_.size = sizeof(caps_);
  caps_.kind = OCTAVO_KIND_KERNELS_CAPS;
  octavo_status status = kernels_.open_device(device, host, &ctx_);
  if (status == OCTAVO_OK) status = kernels_.describe(ctx_, &caps_);
  if (status != OCTAVO_OK) {
    if (ctx_ != nullptr) kernels_.close_device(ctx_);
    throw Failure(OCTAVO_DEVICE, "octavo.device",
                  "the kernels of the device could not be opened: status " +
                      std::to_string(status) + "; see the diagnostics before this one");
  }
}

OpenDevice::~OpenDevice() {
  kernels_.close_device(ctx_);
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
  return d;
}

Negotiation prepare(const octavo_open_desc &desc) {
  Negotiation n;
  n.config = load_config(desc);
  n.discovery = discover(n.config, desc);
  n.hardware = probe_hardware();
  return n;
}

void negotiate(Negotiation &n, const octavo_open_desc &desc, const octavo_host *host) {
  check_tables(n);
  choose_device(n, desc, host);

  std::vector<Candidate> wanted;
  auto want = [&](const std::string &id, bool fallback) {
    Candidate c;
    c.id = id;
    // As a backend, a precision's name would be a fallback that nobody is warned of.
    c.is_precision = is_precision(id) && (fallback || n.config.mixed_precision != "fp8");
    c.is_fallback = fallback;
    wanted.push_back(std::move(c));
  };
  if (n.config.mixed_precision != "fp8") {
    want(n.config.mixed_precision, false);
  } else {
    if (n.config.backend == "auto")
      for (const std::string &id : n.config.preference) want(id, false);
    else
      want(n.config.backend, false);
    for (const std::string &id : n.config.fallback) want(id, true);
  }
  for (Candidate &c : wanted) {
    evaluate(n, c, host);
    n.candidates.push_back(std::move(c));
    if (!declined(n.candidates.back().verdicts)) {
      n.chosen = n.candidates.size() - 1;
      break;
    }
  }
}

void check_all_options(const Negotiation &n, const octavo_host *host) {
  check_tables(n);
  for (const auto &[id, options] : n.config.backend_options) {
    Candidate c;
    c.id = id;
    load(n, c, host);
    if (c.plugin != nullptr) {
      resolve_options(n, c);
      continue;
    }
    std::string text = "table [fp8." + id + "] cannot be checked, its backend cannot be loaded";
    for (const Verdict &v : c.verdicts) text += "; " + v.text;
    throw Failure(OCTAVO_UNSUPPORTED, "octavo.config", text);
  }
}

std::string refusal(const Negotiation &n) {
  std::string text = "nothing that the configuration allows can run here";
  for (const Candidate &c : n.candidates) {
    for (const Verdict &v : c.verdicts) {
      if (v.decision != OCTAVO_DECLINE) continue;
      text += "\n  " + c.id + ": " + v.text;
      if (!v.evidence.empty()) text += "\n    found: " + v.evidence;
      if (!v.remedy.empty()) text += "\n    remedy: " + v.remedy;
    }
  }
  if (n.config.fallback.empty()) text += "\n  fp8.fallback is empty, so nothing else was tried";
  return text;
}

}  // namespace octavo
