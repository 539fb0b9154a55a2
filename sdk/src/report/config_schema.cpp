// The JSON Schema (draft 7) of octavo.toml, which editors read: every core key, and the options of
// every backend in the search path as its manifest states them.
#include "sdk/src/config/config_keys.h"
#include "sdk/src/report/report_json.h"

namespace octavo {
namespace {

using Texts = std::vector<std::string>;

Json table() {
  return {{"type", "object"}, {"properties", Json::object()}, {"additionalProperties", false}};
}

Json text_of(const Texts &choices) {
  Json j = {{"type", "string"}};
  if (!choices.empty()) j["enum"] = choices;
  return j;
}

// What a value of the type of `initial` may be.
Json values_like(const TomlValue &initial, const Texts &choices) {
  if (std::holds_alternative<bool>(initial)) return {{"type", "boolean"}};
  if (std::holds_alternative<int64_t>(initial)) return {{"type", "integer"}};
  if (std::holds_alternative<double>(initial)) return {{"type", "number"}};
  const Json text = text_of(choices);
  if (std::holds_alternative<std::string>(initial)) return text;
  // One text is a list of one.
  return {{"anyOf", Json::array({text, {{"type", "array"}, {"items", text}}})}};
}

Json key_schema(const ConfigKey &key) {
  Json j = values_like(key.initial, key.choices);
  if (!key.range.words.empty()) {
    j["minimum"] = key.range.low;
    j["maximum"] = key.range.high;
  }
  j["default"] = to_json(key.initial);
  j["description"] = key.help;
  return j;
}

Json option_schema(const DeclaredOption &option) {
  Json j = values_like(option.initial, option.choices);
  if (!std::holds_alternative<OtherToml>(option.low)) j["minimum"] = to_json(option.low);
  if (!std::holds_alternative<OtherToml>(option.high)) j["maximum"] = to_json(option.high);
  j["default"] = to_json(option.initial);
  if (!option.help.empty()) j["description"] = option.help;
  return j;
}

// Where "fp8.require.native" is described, with the tables above it.
Json &place_of(Json &root, const std::string &key) {
  Json *at = &root;
  for (size_t begin = 0;;) {
    const size_t dot = key.find('.', begin);
    Json &properties = (*at)["properties"];
    const std::string name = key.substr(begin, dot - begin);
    if (dot == std::string::npos) return properties[name];
    if (!properties.contains(name)) properties[name] = table();
    at = &properties[name];
    begin = dot + 1;
  }
}

// [[layers.rule]]: patterns, and a place or options, never both.
Json rule_schema(const Json &backends) {
  Json rule = table();
  Json text = {{"type", "string"}, {"minLength", 1}};
  Json list = {{"type", "array"}, {"items", text}, {"minItems", 1}};
  rule["properties"]["match"] = {{"anyOf", Json::array({text, list})},
                                 {"description", "shell patterns of layer or weight names"}};
  rule["properties"]["place"] = text_of({"host", "fp8"});
  rule["properties"]["place"]["description"] = "where these layers run";
  rule["properties"]["fp8"] = table();
  rule["properties"]["fp8"]["properties"] = backends;
  rule["properties"]["fp8"]["description"] = "options of a backend, only for these layers";
  rule["required"] = {"match"};
  rule["minProperties"] = rule["maxProperties"] = 2;
  return rule;
}

}  // namespace

Json schema_model(const Negotiation &n) {
  Json root = {{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "octavo.toml"}};
  root.update(table());
  for (const ConfigKey &key : config_keys()) place_of(root, key.name) = key_schema(key);
  Json tables = Json::object(), declared = Json::object();
  for (const BackendOptions &backend : n.declared) {
    Json &options = declared[backend.id] = table();
    options["description"] = backend.problem.empty() ? "options of the backend " + backend.id
                                                     : "not checked: " + backend.problem;
    if (!backend.problem.empty()) options.erase("additionalProperties");
    for (const DeclaredOption &option : backend.declared)
      options["properties"][option.name] = option_schema(option);
    tables[backend.id] = {{"$ref", "#/$defs/" + backend.id}};
  }
  root["properties"]["fp8"]["properties"].update(tables);
  Json &rules = root["properties"]["layers"]["properties"]["rule"];
  rules = {{"type", "array"}, {"items", rule_schema(tables)}};
  rules["description"] = "what differs for some layers; the first rule that matches decides";
  Json manifest = table();
  manifest["properties"]["manifest"] = {{"type", "string"},
                                        {"description", "path of one manifest"}};
  manifest["required"] = {"manifest"};
  root["properties"]["plugin"] = {{"type", "array"}, {"items", manifest}};
  root["$defs"] = declared;
  return root;
}

}  // namespace octavo
