// Reports for people: lines with a name in front, columns, and what to do about a refusal.
#include "sdk/src/report/report_json.h"

#include <algorithm>

#include "sdk/src/base/text.h"

namespace octavo {

// Paths and names come from outside and need not be UTF-8; a report never fails for that.
std::string dump(const Json &j, int indent) {
  return j.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string scalar(const Json &j) {
  if (j.is_null()) return "nothing";
  return j.is_string() ? j.get<std::string>() : dump(j);
}

std::string leaf_text(const Json &j) {
  if (!j.is_structured()) return scalar(j);
  std::string text;
  for (const Json &e : j) text += (text.empty() ? "" : ", ") + scalar(e);
  return text.empty() ? "none" : text;
}

namespace {

std::string pad(std::string text, size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

// Further lines of one text stand below its first.
std::string indented(const std::string &text, size_t columns) {
  std::string all;
  for (const char c : text) all += c == '\n' ? "\n" + std::string(columns, ' ') : std::string(1, c);
  return all;
}

// What a page for people is called in a report: the files are in a checkout only.
std::string page_of(const Json &v) {
  const std::string file = scalar(v["page"]);
  return "page reasons" + file.substr(file.find('#'));  // docs/reasons.md#config: reasons#config
}

// The answer to "is FP8 on?", before all else.
std::string answer_of(const Json &j) {
  const std::string runs = scalar(j["runs"]);
  if (j["runs"].is_null() && !j.contains("wanted"))
    return scalar(j["first_refusal"]["reason"]) == "resource" ? "unknown: see what is refused"
                                                              : "no: the configuration is refused";
  if (j["runs"].is_null()) return "no: nothing that the configuration allows runs here";
  if (runs != "fp8") return "no: " + runs + " runs";
  const std::string device = scalar(j["device"]);
  return "yes: " + scalar(j["backend"]["id"]) + " " + scalar(j["backend"]["version"]) + " on " +
         device.substr(0, device.find(' ')) +
         (scalar(j["speed"]) == "native" ? "" : ", emulated (not faster)");
}

std::string verdict_line(const Json &v) {
  // Verdicts of the configuration have a stage, but no level of the ABI.
  const Json &where = scalar(v["level"]) == "other" ? v["stage"] : v["level"];
  std::string text =
      scalar(where) + " " + scalar(v["decision"]) + ": " + indented(scalar(v["text"]), 6);
  if (v.contains("evidence")) text += "\n      found: " + scalar(v["evidence"]);
  if (v.contains("remedy")) text += "\n      remedy: " + scalar(v["remedy"]);
  if (v.contains("apply")) text += "\n      apply: " + scalar(v["apply"]);
  if (scalar(v["decision"]) == "decline" && v.contains("page"))
    text += "\n      reason: " + scalar(v["reason"]) + ", see " + page_of(v);
  return text;
}

// "discovery, manifest and trust passed; elf refused; probe to session not reached".
std::string stages_line(const Json &stages) {
  std::vector<std::string> passed;
  std::string rest;
  for (const Json &s : stages) {
    const std::string result = scalar(s["result"]);
    if (result == "passed") passed.push_back(scalar(s["stage"]));
    if (result == "refused") rest = scalar(s["stage"]) + " refused";
  }
  if (passed.empty()) return rest.empty() ? "none was reached" : rest;
  return enumerate(passed) + " passed" + (rest.empty() ? "" : "; " + rest);
}

// How layers that are not converted come to FP8: each way once, with the layers that it is for.
void layer_remedies(const Json &layers, const Lines &lines) {
  std::vector<std::pair<std::string, std::vector<std::string>>> ways;
  for (const Json &l : layers) {
    const Json &v = l["verdict"];
    if (!v.contains("apply")) continue;
    const std::string way =
        scalar(v["apply"]) + "  (" + scalar(v["reason"]) + ", see " + page_of(v) + ")";
    auto found =
        std::find_if(ways.begin(), ways.end(), [&](const auto &w) { return w.first == way; });
    if (found == ways.end()) found = ways.insert(ways.end(), {way, {}});
    found->second.push_back(scalar(l["name"]));
  }
  for (const auto &[way, names] : ways) {
    const std::vector<std::string> some(names.begin(),
                                        names.begin() + std::min<ptrdiff_t>(3, std::ssize(names)));
    lines("  to run " + enumerate(some) +
          (names.size() > 3 ? concat(" and ", names.size() - 3, " more") : "") + " in FP8: " + way);
  }
}

// The author's claim, with the hash of the report that would prove it.
void conformance_text(const Json &j, const Lines &lines) {
  if (!j.contains("conformance")) return;
  const Json &c = j["conformance"];
  lines("    claims to conform: " + scalar(c["kit"]) + ", " + scalar(c["level"]) +
        (scalar(c["report_sha256"]).empty() ? "" : ", report " + scalar(c["report_sha256"])));
}

// 'place = "host"', or 'recipe = "block", margin = 2'.
std::string effect_of(const Json &rule) {
  if (rule.contains("place")) return "place = " + dump(rule["place"]);
  std::string text;
  for (const auto &[name, o] : rule["options"].items())
    text += (text.empty() ? "" : ", ") + name + " = " + dump(o["value"]);
  return text.empty() ? "the options of the session" : text;
}

void probes_text(const Json &plugins, const Lines &lines) {
  if (plugins.empty()) return;
  lines("plugins");
  for (const Json &p : plugins) {
    lines("  " + pad(scalar(p["name"]), 14) +
          (p["accepted"].get<bool>() ? "accepted, " : "refused, ") + scalar(p["how"]));
    if (p.contains("verdicts"))
      for (const Json &v : p["verdicts"]) lines("    " + verdict_line(v));
    for (const char *texts : {"warnings", "notes"})
      if (p.contains(texts))
        for (const Json &text : p[texts]) lines("    " + scalar(text));
  }
}

}  // namespace

void report_text(const Json &j, const Lines &lines) {
  auto row = [&](const std::string &name, const std::string &text) { lines(pad(name, 11) + text); };
  if (!j.contains("layers")) row("FP8", answer_of(j));
  row("octavo", scalar(j["octavo"]));
  row("config", scalar(j["config"]));
  if (j.contains("wanted"))
    row("wanted",
        scalar(j["wanted"]["mixed_precision"]) + ", backend " + scalar(j["wanted"]["backend"]));
  row("runs", scalar(j["runs"]));
  if (!j.contains("wanted")) {
    row("refused", verdict_line(j["first_refusal"]));
    return;
  }
  row("device",
      scalar(j["device"]) + (j.contains("kernels") ? ", kernels " + scalar(j["kernels"]) : ""));
  if (j.contains("gpu")) row("gpu", scalar(j["gpu"]["text"]) + "; " + scalar(j["gpu"]["remedy"]));
  if (j.contains("backend")) {
    const Json &b = j["backend"];
    row("backend", scalar(b["id"]) + " " + scalar(b["version"]) + ", ABI " + scalar(b["abi"]));
    row("library", scalar(b["library"]));
    row("sha256", scalar(b["sha256"]));
    size_t usual = 0;
    for (const auto &[name, o] : j["options"].items())
      if (scalar(o["origin"]) == "default")
        ++usual;
      else
        row("option", name + " = " + dump(o["value"]) + "  (" + scalar(o["origin"]) + ")");
    if (usual > 0)
      row("options",
          concat(usual, usual == 1 ? " more has its default" : " more have their defaults",
                 "; octavo config show prints all"));
    if (j.contains("min_gain"))
      row("min_gain", scalar(j["min_gain"]["value"]) + " (" + scalar(j["min_gain"]["origin"]) +
                          "): " + scalar(j["min_gain"]["effect"]));
    if (j.contains("rules"))
      for (const Json &r : j["rules"])
        row("rule", scalar(r["rule"]) + ": " + leaf_text(r["match"]) + ": " + effect_of(r) + "  (" +
                        scalar(r["origin"]) + ")");
  }
  if (j.contains("warnings"))
    for (const Json &warning : j["warnings"]) row("warning", scalar(warning));
  if (j.contains("requires"))
    for (const auto &[name, r] : j["requires"].items())
      row("requires", name + " = " + dump(r["value"]) + "  (" + scalar(r["origin"]) + ")");
  lines("candidates");
  for (const Json &c : j["candidates"]) {
    lines("  " + scalar(c["id"]) + (c["chosen"].get<bool>() ? "  <- chosen" : "") +
          (c.contains("fallback") ? "  (fallback)" : ""));
    if (c.contains("manifest"))
      lines("    " + scalar(c["manifest"]) + " (" + scalar(c["found"]) + ")");
    conformance_text(c, lines);
    if (c["tried"].get<bool>())
      lines("    stages: " + stages_line(c["stages"]));
    else
      lines("    not tried, since one before it runs");
    for (const Json &v : c["verdicts"]) lines("    " + verdict_line(v));
    if (c.contains("warnings"))
      for (const Json &warning : c["warnings"]) lines("    warning: " + scalar(warning));
  }
  if (!j.contains("layers")) return;
  lines("layers");
  size_t width = 0;
  for (const Json &l : j["layers"]) width = std::max(width, scalar(l["name"]).size());
  for (const Json &l : j["layers"])
    lines("  " + pad(scalar(l["name"]), width) + "  " +
          pad("[" + scalar(l["shape"][0]) + ", " + scalar(l["shape"][1]) + "]", 14) +
          pad(scalar(l["placed"]), 6) + scalar(l["verdict"]["text"]) +
          (l["verdict"].contains("evidence") ? " (" + scalar(l["verdict"]["evidence"]) + ")" : "") +
          (l.contains("rule") ? "; by " + scalar(l["rule"]["rule"]) + ": " + effect_of(l["rule"])
                              : ""));
  layer_remedies(j["layers"], lines);
  lines("slot bytes");
  for (const auto &[role, bytes] : j["slot_bytes"].items())
    lines("  " + pad(role, 14) + bytes.dump());
}

void list_text(const Json &j, const Lines &lines) {
  for (const Json &p : j["plugins"]) {
    lines(pad(scalar(p["name"]), 14) + pad(p.contains("version") ? scalar(p["version"]) : "-", 9) +
          (p.contains("shadowed_by") ? "shadowed by " + scalar(p["shadowed_by"])
           : p["usable"].get<bool>() ? scalar(p["description"])
                                     : "not usable"));
    lines("  " + scalar(p["manifest"]) + " (" + scalar(p["found"]) + ")");
    if (p.contains("kernels"))
      lines("  kernels " + scalar(p["kernels"]["kind"]) + " (device type " +
            dump(p["kernels"]["device_type"]) + ")");
    if (p.contains("layer_over")) lines("  layer over kernels for " + leaf_text(p["layer_over"]));
    if (p.contains("needs_layers")) lines("  needs the layers " + leaf_text(p["needs_layers"]));
    if (p.contains("provides"))
      for (const auto &[what, names] : p["provides"].items())
        lines("    claims to provide " + what + " " + leaf_text(names));
    conformance_text(p, lines);
    if (p.contains("verdicts"))
      for (const Json &v : p["verdicts"]) lines("    " + verdict_line(v));
  }
  if (j["plugins"].empty()) lines("no plugins found");
  lines("searched");
  for (const Json &s : j["searched"])
    lines("  " + scalar(s["directory"]) + " (" + scalar(s["origin"]) +
          (s.contains("ignored")     ? ", ignored: " + scalar(s["ignored"]) + ")"
           : s["exists"].get<bool>() ? ")"
                                     : ", does not exist)"));
}

void hardware_text(const Json &j, const Lines &lines) {
  const Json &cpu = j["cpu"];
  lines(pad("cpu", 11) + scalar(cpu["model"]));
  lines(pad("features", 11) + leaf_text(cpu["features"]));
  lines(pad("cores", 11) + scalar(cpu["cores"]));
  lines(concat(pad("memory", 11), cpu["memory_bytes"].get<uint64_t>() >> 20, " MiB"));
  lines(pad("cuda", 11) + scalar(j["cuda"]["text"]));
  for (const Json &d : j["cuda"]["devices"])
    lines(concat("  ", scalar(d["index"]), ": ", scalar(d["name"]), ", capability ",
                 scalar(d["capability"]), ", ", d["free_bytes"].get<uint64_t>() >> 20, " of ",
                 d["memory_bytes"].get<uint64_t>() >> 20, " MiB free"));
  lines(pad("cuda fp8", 11) + scalar(j["cuda"]["fp8"]));
  if (j.contains("loader"))
    for (const auto &[name, value] : j["loader"].items())
      lines(pad("loader", 11) + name + " = " + scalar(value));
  if (j.contains("duplicates"))
    for (const auto &[name, files] : j["duplicates"].items())
      lines(pad("loader", 11) + "several " + name + ": " + leaf_text(files));
  const Json &cache = j["probe_cache"];
  lines(pad("cache", 11) +
        (cache.contains("problem")
             ? "not used: " + scalar(cache["problem"])
             : concat(scalar(cache["directory"]), ": ", scalar(cache["results"]), " results of ",
                      "probes, ", scalar(cache["stale"]), " of files that changed")));
  probes_text(j["plugins"], lines);
}

void config_text(const Json &j, const Lines &lines) {
  size_t width = 0;
  for (const auto &[name, s] : j["settings"].items()) width = std::max(width, name.size());
  for (const auto &[name, s] : j["settings"].items())
    lines(pad(name, width) + " = " + dump(s["value"]) + "  (" + scalar(s["origin"]) + ")");
  if (j.contains("warnings"))
    for (const Json &warning : j["warnings"]) lines("warning: " + scalar(warning));
}

}  // namespace octavo
