// Builds the models. Keys are stable: they are what scripts read.
#include "report_json.h"

#include <algorithm>
#include <iterator>

#include "dtype.h"
#include "min_gain.h"
#include "text.h"
#include "trust.h"

namespace octavo {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const TomlValue &value) {
  if (const auto *i = std::get_if<int64_t>(&value)) return *i;
  if (const auto *f = std::get_if<double>(&value)) return *f;
  if (const auto *b = std::get_if<bool>(&value)) return *b;
  if (const auto *s = std::get_if<std::string>(&value)) return *s;
  if (const auto *l = std::get_if<std::vector<std::string>>(&value)) return *l;
  return std::get<OtherToml>(value).kind;
}

Json to_json(const Verdict &v) {
  Json j;
  j["level"] = level_name(v.level);
  j["decision"] = decision_name(v.decision);
  j["reason"] = reason_name(v.reason);
  j["text"] = v.text;
  if (!v.evidence.empty()) j["evidence"] = v.evidence;
  if (!v.remedy.empty()) j["remedy"] = v.remedy;
  return j;
}

Json verdicts_json(const std::vector<Verdict> &verdicts) {
  Json list = Json::array();
  for (const Verdict &v : verdicts) list.push_back(to_json(v));
  return list;
}

Json plugin_json(const LoadedPlugin &p) {
  Json j;
  j["id"] = p.id;
  j["version"] = p.version;
  j["abi"] = std::to_string(p.abi_major) + "." + std::to_string(p.abi_minor);
  j["library"] = p.library;
  j["sha256"] = p.sha256;
  return j;
}

Json candidate_json(const Candidate &c, bool chosen) {
  Json j;
  j["id"] = c.id;
  j["chosen"] = chosen;
  if (c.is_fallback) j["fallback"] = true;
  if (!c.manifest.empty()) j["manifest"] = c.manifest;
  if (!c.origin.empty()) j["found"] = c.origin;
  if (c.plugin != nullptr) j["plugin"] = plugin_json(*c.plugin);
  j["verdicts"] = verdicts_json(c.verdicts);
  return j;
}

}  // namespace

const char *role_name(uint32_t role) {
  static const char *const names[] = {
      "other",     "weight",    "master_weight", "gradient",     "exp_avg", "exp_avg_sq",
      "scale",     "scale_inv", "amax",          "amax_history", "counter", "weight_cache",
      "nonfinite", "other",     "saturated",     "underflow",    "signal",  "noise"};
  return role < std::size(names) ? names[role] : names[0];
}

std::vector<std::pair<uint32_t, uint64_t>> bytes_by_role(const octavo_run &run) {
  std::vector<std::pair<uint32_t, uint64_t>> sums;
  for (const octavo_slot &s : run.slots()) {
    if ((s.flags & OCTAVO_SLOT_NATIVE) != 0) continue;
    const uint64_t bytes = slot_bytes(s);
    auto found = std::find_if(sums.begin(), sums.end(),
                              [&](const auto &entry) { return entry.first == s.role; });
    if (found == sums.end())
      sums.emplace_back(s.role, bytes);
    else
      found->second += bytes;
  }
  return sums;
}

Json report_model(const Negotiation &n, const octavo_run *run) {
  Json j;
  j["octavo"] = view(octavo_version());
  j["config"] = n.config.name;
  j["wanted"] = {{"mixed_precision", n.config.mixed_precision}, {"backend", n.config.backend}};
  const Candidate *choice = n.choice();
  j["runs"] = choice == nullptr ? Json() : Json(choice->is_precision ? choice->id : "fp8");
  j["device"] = n.device_text;
  if (n.device != nullptr) j["kernels"] = view(n.device->caps().id);
  if (choice != nullptr && choice->plugin != nullptr) {
    j["backend"] = plugin_json(*choice->plugin);
    Json options = Json::object();
    for (const EffectiveOption &o : choice->options)
      options[o.name] = {{"value", to_json(o.setting.value)}, {"origin", o.setting.origin}};
    j["options"] = options;
    if (n.device != nullptr)
      j["min_gain"] = {{"value", n.config.min_gain},
                       {"origin", n.config.origin("layers.min_gain")},
                       {"effect", explain_min_gain(n.config.min_gain, n.device->caps())}};
  }
  Json candidates = Json::array();
  for (size_t i = 0; i < n.candidates.size(); ++i)
    candidates.push_back(candidate_json(n.candidates[i], n.chosen == i));
  j["candidates"] = candidates;
  if (run == nullptr) return j;
  Json layers = Json::array();
  for (const LayerPlacement &l : run->layers()) {
    Json layer;
    layer["name"] = l.name;
    layer["shape"] = {l.rows, l.cols};
    layer["placed"] = l.verdict.decision == OCTAVO_DECLINE ? "host" : "fp8";
    layer["verdict"] = to_json(l.verdict);
    layers.push_back(layer);
  }
  j["layers"] = layers;
  Json memory = Json::object();
  for (const auto &[role, bytes] : bytes_by_role(*run)) memory[role_name(role)] = bytes;
  j["slot_bytes"] = memory;
  return j;
}

Json list_model(const Negotiation &n) {
  Json plugins = Json::array();
  for (const FoundManifest &m : n.discovery.manifests) {
    Json j;
    j["name"] = m.name;
    j["manifest"] = m.path;
    j["found"] = m.origin;
    if (!m.shadowed_by.empty()) j["shadowed_by"] = m.shadowed_by;
    std::vector<Verdict> verdicts;
    if (const auto manifest = read_manifest(m.path, verdicts)) {
      std::string sha256;
      check_trust(*manifest, n.config.trust, &sha256, verdicts);
      j["version"] = manifest->version;
      j["description"] = manifest->description;
      j["abi"] = std::to_string(manifest->abi_major) + "." + std::to_string(manifest->abi_minor);
      j["library"] = manifest->library;
      if (!sha256.empty()) j["sha256"] = sha256;
    }
    j["usable"] = verdicts.empty();
    if (!verdicts.empty()) j["verdicts"] = verdicts_json(verdicts);
    plugins.push_back(j);
  }
  Json places = Json::array();
  for (const SearchPlace &p : n.discovery.places)
    places.push_back({{"directory", p.directory}, {"origin", p.origin}, {"exists", p.exists}});
  return {{"plugins", plugins}, {"searched", places}};
}

Json hardware_model(const Negotiation &n) {
  const Hardware &hw = n.hardware;
  Json j;
  j["cpu"] = {{"model", hw.cpu_model},
              {"features", hw.cpu_features},
              {"cores", hw.cores},
              {"memory_bytes", hw.memory_bytes}};
  Json devices = Json::array();
  for (const CudaDevice &d : hw.cuda_devices)
    devices.push_back({{"index", d.index},
                       {"name", d.name},
                       {"capability", std::to_string(d.capability_major) + "." +
                                          std::to_string(d.capability_minor)},
                       {"memory_bytes", d.memory_bytes}});
  j["cuda"] = {{"driver", hw.cuda_driver}, {"text", hw.cuda_text}, {"devices", devices}};
  return j;
}

Json config_model(const Negotiation &n) {
  Json settings = Json::object();
  for (const auto &[name, setting] : n.config.settings)
    settings[name] = {{"value", to_json(setting.value)}, {"origin", setting.origin}};
  for (const auto &[id, options] : n.config.backend_options)
    for (const auto &[name, setting] : options)
      settings["fp8." + id + "." + name] = {{"value", to_json(setting.value)},
                                            {"origin", setting.origin}};
  return {{"config", n.config.name}, {"settings", settings}};
}

}  // namespace octavo
