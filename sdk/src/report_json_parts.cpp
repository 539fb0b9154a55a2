// Values, verdicts and what a manifest provides, as JSON.
#include "report_json_parts.h"

namespace octavo {

using Json = nlohmann::ordered_json;

Json to_json(const TomlValue &value) {
  if (const auto *i = std::get_if<int64_t>(&value)) return *i;
  if (const auto *f = std::get_if<double>(&value)) return *f;
  if (const auto *b = std::get_if<bool>(&value)) return *b;
  if (const auto *s = std::get_if<std::string>(&value)) return *s;
  if (const auto *l = std::get_if<std::vector<std::string>>(&value)) return *l;
  return std::get<OtherToml>(value).kind;
}

Json to_json(const Verdict &v, const std::string &apply) {
  Json j;
  j["level"] = level_name(v.level);
  j["stage"] = v.stage.empty() ? level_name(v.level) : v.stage;
  j["decision"] = decision_name(v.decision);
  j["reason"] = reason_name(v.reason);
  if (const std::string page = reason_page(v.reason); !page.empty()) j["page"] = page;
  j["text"] = v.text;
  if (!v.evidence.empty()) j["evidence"] = v.evidence;
  if (!v.remedy.empty()) j["remedy"] = v.remedy;
  if (!apply.empty()) j["apply"] = apply;
  return j;
}

Json verdicts_json(const std::vector<Verdict> &verdicts) {
  Json list = Json::array();
  for (const Verdict &v : verdicts) list.push_back(to_json(v));
  return list;
}

Json provides_json(const Manifest &m) {
  Json j = Json::object();
  if (!m.provides.recipes.empty()) j["recipes"] = m.provides.recipes;
  if (!m.provides.encodings.empty()) j["encodings"] = m.provides.encodings;
  if (!m.provides.interfaces.empty()) j["interfaces"] = m.provides.interfaces;
  return j;
}

}  // namespace octavo
