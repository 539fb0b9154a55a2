// The models of a negotiation and of a run. Keys are stable: they are what scripts read.
#include "sdk/src/report/report_json.h"

#include <algorithm>

#include "octavo/hpp/roles.hpp"
#include "sdk/src/base/dtype.h"
#include "sdk/src/base/text.h"
#include "sdk/src/config/requirements.h"
#include "sdk/src/negotiate/min_gain.h"

namespace octavo {
namespace {

Json plugin_json(const LoadedPlugin &p) {
  Json j = Json::object();
  j["id"] = p.id;
  j["version"] = p.version;
  j["abi"] = concat(p.abi_major, ".", p.abi_minor);
  j["library"] = p.library;
  j["sha256"] = p.sha256;
  return j;
}

// Every stage of a backend, reached or not; a precision has the last one only.
Json stages_json(const Candidate &c) {
  Json list = Json::array();
  auto stage = static_cast<size_t>(c.is_precision ? Stage::kSession : Stage::kDiscovery);
  for (size_t i = 0; stage <= static_cast<size_t>(Stage::kSession); ++i, ++stage) {
    const StageResult *reached = i < c.stages.size() ? &c.stages[i] : nullptr;
    Json j = {{"stage", stage_name(static_cast<Stage>(stage))},
              {"result", reached == nullptr ? "not-reached"
                         : reached->passed  ? "passed"
                                            : "refused"}};
    if (reached != nullptr && !reached->text.empty()) j["text"] = reached->text;
    list.push_back(j);
  }
  return list;
}

Json candidate_json(const Negotiation &n, const Source &source, const Candidate &c, bool chosen) {
  Json j = Json::object();
  j["id"] = c.id;
  j["chosen"] = chosen;
  j["tried"] = c.is_tried;
  if (c.is_fallback) j["fallback"] = true;
  if (!c.manifest.empty()) j["manifest"] = c.manifest;
  if (!c.origin.empty()) j["found"] = c.origin;
  if (c.described)
    if (const Json hints = provides_json(*c.described); !hints.empty()) j["provides"] = hints;
  if (c.described)
    if (const Json claim = conformance_json(*c.described); !claim.is_null())
      j["conformance"] = claim;
  if (c.plugin != nullptr) j["plugin"] = plugin_json(*c.plugin);
  j["stages"] = stages_json(c);
  Json verdicts = Json::array();
  for (const Verdict &v : c.verdicts)
    verdicts.push_back(to_json(v, how_to_apply(source, n, &c, v)));
  j["verdicts"] = verdicts;
  if (!c.warnings.empty()) j["warnings"] = c.warnings;
  return j;
}

Json requirements_json(const Negotiation &n) {
  Json j = Json::object();
  for (const auto &[name, setting] : n.config.settings)
    if (name.starts_with("fp8.require.") && setting.origin != "default")
      j[name.substr(12)] = to_json(setting);
  return j;
}

// What a rule gives to its layers: a place, or the options of the backend that runs.
Json rule_json(const Negotiation &n, const LayerRule &rule) {
  Json j = {{"rule", rule.key}, {"origin", rule.match.origin}};
  if (rule.place) j["place"] = to_json(rule.place->value);
  Json options = Json::object();
  for (const EffectiveOption &o : n.options_of(rule)) options[o.name] = to_json(o.setting);
  if (!rule.place) j["options"] = options;
  return j;
}

}  // namespace

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
  Json j = Json::object();
  j["octavo"] = view(octavo_version());
  j["config"] = n.config.name;
  j["wanted"] = {{"mixed_precision", n.config[key::kMixedPrecision]},
                 {"backend", n.config[key::kBackend]}};
  const Candidate *choice = n.choice();
  j["runs"] = choice == nullptr ? Json() : Json(choice->is_precision ? choice->id : "fp8");
  j["device"] = n.device_text;
  if (run == nullptr && n.device_kind == "cpu") {
    const Json cuda = cuda_model(n);
    if (cuda.contains("remedy"))
      j["gpu"] = {{"text", "is idle: " + (cuda.contains("apply") ? "device.kind = \"cpu\""
                                                                 : scalar(cuda["fp8"]))},
                  {"remedy", cuda.contains("apply") ? cuda["apply"] : cuda["remedy"]}};
    else if (scalar(cuda["fp8"]) == kHasUnits)
      j["gpu"] = {{"text", "is not looked at: the device of your model decides"},
                  {"remedy", "add --set device.kind=cuda"}};
  }
  if (n.device != nullptr) {
    const octavo_kernels_caps &caps = n.device->caps();
    j["kernels"] = view(caps.id);
    for (const Candidate &layer : n.layers)
      j["kernel_layers"].push_back(plugin_json(*layer.plugin));
    j["speed"] = speed_class(caps);
    j["deterministic"] = (caps.flags & OCTAVO_CAPS_DETERMINISTIC) != 0;
  }
  if (Json required = requirements_json(n); !required.empty()) j["requires"] = required;
  std::vector<std::string> warnings = n.warnings;
  if (choice != nullptr)
    warnings.insert(warnings.end(), choice->warnings.begin(), choice->warnings.end());
  if (run != nullptr)
    for (std::string &warning : run->unmet()) warnings.push_back(std::move(warning));
  if (!warnings.empty()) j["warnings"] = warnings;
  if (choice != nullptr && choice->plugin != nullptr) {
    j["backend"] = plugin_json(*choice->plugin);
    Json options = Json::object();
    for (const EffectiveOption &o : choice->options) options[o.name] = to_json(o.setting);
    j["options"] = options;
    if (n.device != nullptr)
      j["min_gain"] = {{"value", n.config[key::kMinGain]},
                       {"origin", n.config.origin(key::kMinGain)},
                       {"effect", explain_min_gain(n.config[key::kMinGain], n.device->caps())}};
    Json rules = Json::array();
    for (const LayerRule &rule : n.config.layer_rules) {
      rules.push_back(rule_json(n, rule));
      rules.back()["match"] = rule.patterns();
    }
    if (!rules.empty()) j["rules"] = rules;
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
    Json layer = Json::object();
    layer["name"] = l.name;
    layer["shape"] = {l.rows, l.cols};
    layer["placed"] = l.verdict.decision == OCTAVO_DECLINE ? "host" : "fp8";
    layer["verdict"] = to_json(l.verdict, how_to_apply(source, n, nullptr, l.verdict));
    if (l.rule != nullptr) layer["rule"] = rule_json(n, *l.rule);
    layers.push_back(layer);
  }
  j["layers"] = layers;
  Json memory = Json::object();
  for (const auto &[role, bytes] : bytes_by_role(*run)) memory[role_name(role)] = bytes;
  j["slot_bytes"] = memory;
  return j;
}

Json problem_model(const octavo_open_desc &desc, const Verdict &problem) {
  Json j = Json::object();
  j["octavo"] = view(octavo_version());
  j["config"] = desc.config_path.size > 0          ? std::string(view(desc.config_path))
                : desc.config_text.data != nullptr ? "octavo.toml"
                                                   : "(no file)";
  j["runs"] = nullptr;
  // Where something is short, the file is not read again.
  const bool is_short = problem.reason == OCTAVO_REASON_RESOURCE;
  j["first_refusal"] =
      to_json(problem, is_short ? std::string() : source_of(desc).apply(problem.remedy.fix));
  j["candidates"] = Json::array();
  return j;
}

Json to_json(const TomlValue &value) {
  if (const auto *i = std::get_if<int64_t>(&value)) return *i;
  if (const auto *f = std::get_if<double>(&value)) return *f;
  if (const auto *b = std::get_if<bool>(&value)) return *b;
  if (const auto *s = std::get_if<std::string>(&value)) return *s;
  if (const auto *l = std::get_if<std::vector<std::string>>(&value)) return *l;
  return std::get<OtherToml>(value).kind;
}

Json to_json(const Setting &setting) {
  return {{"value", to_json(setting.value)}, {"origin", setting.origin}};
}

Json to_json(const Verdict &v, const std::string &apply) {
  Json j = Json::object();
  j["level"] = level_name(v.level);
  j["stage"] = v.stage == Stage::kNone ? level_name(v.level) : stage_name(v.stage);
  j["decision"] = decision_name(v.decision);
  j["reason"] = reason_name(v.reason);
  if (const std::string page = reason_page(v.reason); !page.empty()) j["page"] = page;
  j["text"] = v.text;
  if (!v.evidence.empty()) j["evidence"] = v.evidence;
  if (!v.remedy.empty()) j["remedy"] = v.remedy.text;
  if (!apply.empty()) j["apply"] = apply;
  return j;
}

Json verdicts_json(const Negotiation &n, const std::vector<Verdict> &verdicts) {
  const Source source = source_of(n.config);
  Json list = Json::array();
  for (const Verdict &v : verdicts) list.push_back(to_json(v, how_to_apply(source, n, nullptr, v)));
  return list;
}

Json provides_json(const Manifest &m) {
  Json j = Json::object();
  if (!m.provides.recipes.empty()) j["recipes"] = m.provides.recipes;
  if (!m.provides.encodings.empty()) j["encodings"] = m.provides.encodings;
  if (!m.provides.interfaces.empty()) j["interfaces"] = m.provides.interfaces;
  return j;
}

Json conformance_json(const Manifest &m) {
  if (m.conformance.kit.empty()) return nullptr;
  return {{"kit", m.conformance.kit},
          {"level", m.conformance.level},
          {"report_sha256", m.conformance.report_sha256}};
}

}  // namespace octavo
