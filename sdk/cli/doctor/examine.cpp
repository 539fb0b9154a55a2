// The reports of explain, list and probe, put together, with values of the configuration. Nothing
// is found out here that one of them does not say, but the umask.
#include <sys/stat.h>

#include <cstdio>

#include "octavo/octavo.hpp"
#include "sdk/cli/doctor/doctor.h"

namespace octavo::cli::doctor {
namespace {

Json parsed(const octavo::Answer &answer) {
  Json report = Json::parse(answer.text, nullptr, false);
  return report.is_object() ? report : Json::object();
}

std::string last_words(const octavo::Answer &answer) {
  return answer.diagnostics.empty() ? "" : answer.diagnostics.back().text;
}

// "0022"
std::string octal_umask() {
  const mode_t now = umask(0);
  umask(now);
  char text[8];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(now));
  return text;
}

// How a layer would come to FP8, in the words of the report of a run.
std::string edit_to_fp8(const octavo::Settings &settings) {
  try {
    octavo::Run run(settings);
    run.add_linear("layer", run.add_parameter({"layer.weight", 16, 16}).id);
    run.seal();
    const Json report = Json::parse(run.report("json"), nullptr, false);
    return report["layers"][0]["verdict"].value("apply", "");
  } catch (const octavo::Error &) {
    return {};
  }
}

// The device of a model decides where the configuration names none: with a GPU that computes FP8,
// *explained becomes the answer for it, unless it is refused. Then the refusal is returned.
Json on_usable_gpu(const octavo::Settings &settings, const Json &probed,
                   octavo::Answer *explained) {
  if (!probed.contains("cuda") || probed["cuda"]["fp8"] != "has FP8 units") return {};
  const auto values = octavo::configuration(settings).values;
  const auto kind = values.find("device.kind");
  const Json on_cpu = parsed(*explained);
  if (kind == values.end() || kind->second.text != "auto" ||
      on_cpu.value("runs", Json()) != "fp8" || !text_of(on_cpu, "device").starts_with("cpu"))
    return {};
  octavo::Settings other = settings;
  other.set("device.kind", "cuda");
  octavo::Answer answer = octavo::explain(other, "json");
  Json report = parsed(answer);
  if (report.value("runs", Json()) == "fp8") {
    *explained = std::move(answer);
    return {};
  }
  return report.value("first_refusal", Json());
}

Json verdicts_of(const Json &of) {
  return of.contains("verdicts") ? of["verdicts"] : Json::array();
}

// The trial of each plugin, with what its manifest says.
Json plugins_of(const Json &probed, const Json &listed) {
  Json plugins = Json::array();
  for (const Json &p : probed["plugins"]) {
    Json one = p;
    for (const Json &l : listed["plugins"])
      if (l["manifest"] == p["manifest"])
        for (const char *key : {"found", "version", "sha256"})
          if (l.contains(key)) one[key] = l[key];
    one["verdicts"] = verdicts_of(p);
    plugins.push_back(one);
  }
  return plugins;
}

Json trust_of(const std::map<std::string, octavo::ConfigValue> &values, const Json &listed) {
  Json trust = Json::object();
  trust["mode"] = values.at("plugins.trust").text;
  trust["origin"] = values.at("plugins.trust").origin;
  trust["pins"] = values.at("plugins.pins").list.size();
  trust["keys"] = values.at("plugins.keys").list.size();
  trust["locked"] = values.at("plugins.locked").text == "true";
  trust["umask"] = octal_umask();
  Json folders = Json::array();
  for (const Json &place : listed["searched"])
    if (place["exists"].get<bool>()) folders.push_back(place);
  trust["folders"] = folders;
  return trust;
}

}  // namespace

Json examine(const octavo::Settings &settings, const std::string &python, octavo_status *status) {
  // First, since a plugin that this process has opened is not tried again. What a wrong
  // configuration keeps from being looked at is looked at without it.
  octavo::Settings looked = settings;
  octavo::Answer probe = octavo::probe(looked, "json");
  const bool without = probe.status != OCTAVO_OK;
  if (without) {
    looked = octavo::Settings();
    probe = octavo::probe(looked, "json");
  }
  octavo::Answer explained = octavo::explain(settings, "json");
  const Json on_gpu = on_usable_gpu(settings, parsed(probe), &explained);
  *status = explained.status;
  Json report = parsed(explained);
  if (!report.contains("runs")) report["runs"] = nullptr;
  if (report["runs"].is_null() && !report.contains("first_refusal"))
    report["first_refusal"] = {{"text", last_words(explained)}};
  Json j = versions_and_system();
  j["config"] = report.value("config", "(no file)");
  j["runs"] = report["runs"];
  for (const char *key : {"wanted", "device", "kernels", "speed", "deterministic", "backend"})
    if (report.contains(key)) j[key] = report[key];
  if (j["runs"].is_string() && j["runs"] != "fp8")
    if (const std::string edit = edit_to_fp8(settings); !edit.empty()) j["to_fp8"] = edit;
  if (without) j["without_configuration"] = true;
  if (!on_gpu.is_null()) j["gpu_refusal"] = on_gpu;
  if (probe.status == OCTAVO_OK) {
    const Json probed = parsed(probe);
    const Json listed = parsed(octavo::list(looked, "json"));
    const auto values = octavo::configuration(looked).values;
    j["machine"] = {{"cpu", probed["cpu"]}, {"cuda", probed["cuda"]}};
    for (const char *key : {"loader", "duplicates"})
      if (probed.contains(key)) j["machine"][key] = probed[key];
    j["plugins"] = plugins_of(probed, listed);
    if (!values.empty()) j["trust"] = trust_of(values, listed);
    j["cache"] = probed["probe_cache"];
  }
  if (!python.empty()) j["python"] = ask_python(python);
  j["findings"] = findings_of(j, report);
  j["first"] = j["findings"].empty() ? Json() : j["findings"][0];
  return j;
}

}  // namespace octavo::cli::doctor
