// The models of a negotiation and of a run. Keys are stable: they are what scripts read.
#include "report_json.h"

#include <algorithm>
#include <iterator>

#include "dtype.h"
#include "min_gain.h"
#include "report_json_parts.h"
#include "text.h"

namespace octavo {
namespace {

using Json = nlohmann::ordered_json;

Json plugin_json(const LoadedPlugin &p) {
  Json j;
  j["id"] = p.id;
  j["version"] = p.version;
  j["abi"] = std::to_string(p.abi_major) + "." + std::to_string(p.abi_minor);
  j["library"] = p.library;
  j["sha256"] = p.sha256;
  return j;
}

// Every stage of a backend, those that were not reached included; a precision has the last one.
Json stages_json(const Candidate &c) {
  Json list = Json::array();
  bool is_past = c.stages.empty();  // behind the last stage that was reached
  for (const char *name : kStages) {
    const auto found = std::find_if(c.stages.begin(), c.stages.end(),
                                    [&](const Stage &s) { return s.name == name; });
    if (c.is_precision && std::string_view(name) != "session") continue;
    Json j = {{"stage", name},
              {"result", found == c.stages.end() ? (is_past ? "not-reached" : "skipped")
                         : found->passed         ? "passed"
                                                 : "refused"}};
    if (!c.stages.empty() && c.stages.back().name == name) is_past = true;
    if (found != c.stages.end() && !found->text.empty()) j["text"] = found->text;
    list.push_back(j);
  }
  return list;
}

Json candidate_json(const Negotiation &n, const Source &source, const Candidate &c, bool chosen) {
  Json j;
  j["id"] = c.id;
  j["chosen"] = chosen;
  j["tried"] = c.is_tried;
  if (c.is_fallback) j["fallback"] = true;
  if (!c.manifest.empty()) j["manifest"] = c.manifest;
  if (!c.origin.empty()) j["found"] = c.origin;
  if (c.described)
    if (const Json hints = provides_json(*c.described); !hints.empty()) j["provides"] = hints;
  if (c.plugin != nullptr) j["plugin"] = plugin_json(*c.plugin);
  j["stages"] = stages_json(c);
  Json verdicts = Json::array();
  for (const Verdict &v : c.verdicts)
    verdicts.push_back(to_json(v, how_to_apply(source, n, &c, v)));
  j["verdicts"] = verdicts;
  return j;
}

Json requirements_json(const Negotiation &n) {
  Json j = Json::object();
  for (const auto &[name, setting] : n.config.settings)
    if (name.starts_with("fp8.require.") && setting.origin != "default")
      j[name.substr(12)] = {{"value", to_json(setting.value)}, {"origin", setting.origin}};
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
  if (n.device != nullptr) {
    const octavo_kernels_caps &caps = n.device->caps();
    j["kernels"] = view(caps.id);
    j["speed"] = speed_class(caps);
    j["deterministic"] = (caps.flags & OCTAVO_CAPS_DETERMINISTIC) != 0;
  }
  if (Json required = requirements_json(n); !required.empty()) j["requires"] = required;
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
  const Source source = source_of(n.config);
  Json candidates = Json::array();
  for (size_t i = 0; i < n.candidates.size(); ++i)
    candidates.push_back(candidate_json(n, source, n.candidates[i], n.chosen == i));
  const Candidate *refused = nullptr;
  if (const Verdict *first = first_refusal(n, &refused)) {
    j["first_refusal"] = to_json(*first, how_to_apply(source, n, refused, *first));
    j["first_refusal"]["candidate"] = refused->id;
  }
  j["candidates"] = candidates;
  if (run == nullptr) return j;
  Json layers = Json::array();
  for (const LayerPlacement &l : run->layers()) {
    Json layer;
    layer["name"] = l.name;
    layer["shape"] = {l.rows, l.cols};
    layer["placed"] = l.verdict.decision == OCTAVO_DECLINE ? "host" : "fp8";
    layer["verdict"] = to_json(l.verdict, how_to_apply(source, n, nullptr, l.verdict));
    layers.push_back(layer);
  }
  j["layers"] = layers;
  Json memory = Json::object();
  for (const auto &[role, bytes] : bytes_by_role(*run)) memory[role_name(role)] = bytes;
  j["slot_bytes"] = memory;
  return j;
}

Json problem_model(const octavo_open_desc &desc, const Failure &failure) {
  Json j;
  j["octavo"] = view(octavo_version());
  j["config"] = desc.config_path.size > 0          ? std::string(view(desc.config_path))
                : desc.config_text.data != nullptr ? "octavo.toml"
                                                   : "(no file)";
  j["runs"] = nullptr;
  Verdict v{0,
            OCTAVO_DECLINE,
            OCTAVO_REASON_CONFIG,
            failure.text(),
            "",
            "correct the configuration",
            "config"};
  j["first_refusal"] = to_json(v, source_of(desc).mend(failure.mend()));
  j["candidates"] = Json::array();
  return j;
}

}  // namespace octavo
