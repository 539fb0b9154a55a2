// The models of what is there before anything is negotiated: plugins, machine, configuration.
#include <cstdlib>

#include "sdk/src/file/privilege_path.h"
#include "sdk/src/machine/open_libraries.h"
#include "sdk/src/plugin/manifest_requires.h"
#include "sdk/src/probe/probe_cache.h"
#include "sdk/src/report/report_json.h"

namespace octavo {

Json list_model(const Negotiation &n) {
  Json plugins = Json::array();
  for (const FoundManifest &m : n.discovery.manifests) {
    Json j = Json::object();
    j["name"] = m.name;
    j["manifest"] = m.path;
    j["found"] = m.origin;
    if (!m.shadowed_by.empty()) j["shadowed_by"] = m.shadowed_by;
    std::vector<Verdict> verdicts;
    if (auto manifest = read_manifest(m.path, verdicts)) {
      std::string sha256;
      check_requirements(*manifest, n.hardware, verdicts);
      check_trust(*manifest, n.trust, &sha256, verdicts);
      j["version"] = manifest->version;
      j["description"] = manifest->description;
      if (!manifest->vendor.empty()) j["vendor"] = manifest->vendor;
      if (!manifest->license.empty()) j["license"] = manifest->license;
      if (const Json hints = provides_json(*manifest); !hints.empty()) j["provides"] = hints;
      if (const Json claim = conformance_json(*manifest); !claim.is_null())
        j["conformance"] = claim;
      j["abi"] = concat(manifest->abi_major, ".", manifest->abi_minor);
      j["library"] = manifest->library;
      if (!manifest->kernels.kind.empty())
        j["kernels"] = {{"kind", manifest->kernels.kind},
                        {"device_type", manifest->kernels.device_type}};
      if (!manifest->kernels.over.empty()) j["layer_over"] = manifest->kernels.over;
      if (!manifest->requires_.layers.empty()) j["needs_layers"] = manifest->requires_.layers;
      if (!sha256.empty()) j["sha256"] = sha256;
    }
    j["usable"] = verdicts.empty();
    if (!verdicts.empty()) j["verdicts"] = verdicts_json(n, verdicts);
    plugins.push_back(j);
  }
  Json places = Json::array();
  for (const SearchPlace &p : n.discovery.places) {
    places.push_back({{"directory", p.directory}, {"origin", p.origin}, {"exists", p.exists}});
    if (!p.ignored.empty()) places.back()["ignored"] = p.ignored;
    if (p.waits) places.back()["waits"] = true;
    if (!p.exists || !p.ignored.empty() || n.trust.mode == "dev") continue;
    Remedy remedy;
    const std::string problem =
        folder_problem(p.directory, trusted_owner(n.trust.privileged), &remedy);
    if (problem.empty()) continue;
    places.back()["problem"] = problem;
    if (!remedy.empty()) places.back()["apply"] = source_of(n.config).apply(remedy.fix);
  }
  return {{"plugins", plugins}, {"searched", places}};
}

Json cuda_model(const Negotiation &n) {
  const Hardware &hw = n.hardware;
  Json devices = Json::array();
  for (const CudaDevice &d : hw.cuda_devices)
    devices.push_back({{"index", d.index},
                       {"name", d.name},
                       {"capability", concat(d.capability_major, ".", d.capability_minor)},
                       {"memory_bytes", d.memory_bytes},
                       {"free_bytes", d.free_bytes}});
  Json j = {{"driver", hw.cuda_driver}, {"text", hw.cuda_text}, {"devices", devices}};
  if (!hw.driver_version.empty()) j["driver_version"] = hw.driver_version;
  if (hw.mig_devices > 0) j["mig_devices"] = hw.mig_devices;
  const unsigned idle = hw.cuda_library ? 0 : count_bus_gpus();
  if (idle > 0) j["bus_gpus"] = idle;
  std::string repair = install_kernels(hw, "cuda");
  j["fp8"] = no_kernels("cuda");
  for (const InstalledKernels &k : installed_kernels(n)) {
    if (k.serves.kind != "cuda") continue;
    std::vector<Verdict> verdicts;
    const bool met = check_requirements(k.manifest, hw, verdicts);
    j["fp8"] = met ? kHasUnits : verdicts[0].text;
    repair = met ? std::string() : verdicts[0].remedy.text;
    if (!met) continue;
    for (size_t i = 0; i < hw.cuda_devices.size(); ++i) {
      Hardware one = hw;
      one.cuda_devices = {hw.cuda_devices[i]};
      std::vector<Verdict> lacks;
      if (!check_requirements(k.manifest, one, lacks)) j["devices"][i]["lacks"] = lacks[0].text;
    }
    if (n.config[key::kDevice] == "cpu") {
      repair = "set device.kind to \"auto\"";
      j["apply"] = source_of(n.config).apply(n.config.change(key::kDevice, "auto"));
    }
    break;
  }
  // Where a GPU or a driver is, somebody means to use it.
  if ((hw.cuda_library || idle > 0) && !repair.empty()) j["remedy"] = repair;
  return j;
}

Json hardware_model(const Negotiation &n) {
  const Hardware &hw = n.hardware;
  Json j = Json::object();
  j["cpu"] = {{"model", hw.cpu_model},
              {"features", hw.cpu_features},
              {"cores", hw.cores},
              {"memory_bytes", hw.memory_bytes}};
  j["cuda"] = cuda_model(n);
  // What brings other code into this process than it was linked with, or other libraries.
  Json loader = Json::object();
  for (const char *name : {"LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH"})
    if (const char *value = std::getenv(name); value != nullptr && *value != '\0')
      loader[name] = value;
  if (!loader.empty()) j["loader"] = loader;
  Json several = Json::object();
  for (const auto &[name, files] : open_libraries())
    if (files.size() > 1) several[name] = files;
  if (!several.empty()) j["duplicates"] = several;
  const ProbeCacheSurvey cache = survey_probe_cache();
  j["probe_cache"] = {
      {"directory", cache.directory}, {"results", cache.results}, {"stale", cache.stale}};
  if (!cache.problem.empty()) {
    j["probe_cache"]["problem"] = cache.problem;
    j["probe_cache"]["remedy"] = cache.remedy.text;
    if (!cache.remedy.fix.command.empty())
      j["probe_cache"]["apply"] = source_of(n.config).apply(cache.remedy.fix);
  }
  Json plugins = Json::array();
  for (const ProbedPlugin &p : n.probes) {
    Json one = Json::object();
    one["name"] = p.name;
    one["manifest"] = p.manifest;
    one["accepted"] = p.report.accepted;
    one["how"] = p.report.how;
    if (p.report.stage != ProbeStage::kNone) one["stage"] = stage_name(p.report.stage);
    if (!p.report.verdicts.empty()) one["verdicts"] = verdicts_json(n, p.report.verdicts);
    if (!p.report.warnings.empty()) one["warnings"] = p.report.warnings;
    if (!p.report.notes.empty()) one["notes"] = p.report.notes;
    plugins.push_back(one);
  }
  j["plugins"] = plugins;
  return j;
}

Json config_model(const Negotiation &n) {
  Json settings = Json::object();
  const LentSettings in_effect = settings_of(n);
  for (const auto &e : in_effect.entries()) settings[e.name] = to_json(e.setting);
  Json j = {{"config", n.config.name}, {"settings", settings}};
  if (!n.warnings.empty()) j["warnings"] = n.warnings;
  return j;
}

}  // namespace octavo
