// Prints the models: JSON as it is, trees generically, text with columns for people.
#include "report.h"

#include <algorithm>
#include <sstream>

#include "failure.h"
#include "report_json.h"
#include "text.h"

namespace octavo {
namespace {

using Json = nlohmann::ordered_json;

// Paths and names come from outside and need not be UTF-8; a report never fails for that.
std::string dump(const Json &j, int indent = -1) {
  return j.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string scalar(const Json &j) {
  if (j.is_null()) return "nothing";
  return j.is_string() ? j.get<std::string>() : dump(j);
}

bool leaf(const Json &j) {
  if (j.is_object()) return j.empty();
  return !j.is_array() ||
         std::none_of(j.begin(), j.end(), [](const Json &e) { return e.is_structured(); });
}

std::string leaf_text(const Json &j) {
  if (!j.is_structured()) return scalar(j);
  std::string text;
  for (const Json &e : j) text += (text.empty() ? "" : ", ") + scalar(e);
  return text.empty() ? "none" : text;
}

void tree(const Json &j, const std::string &indent, const Lines &lines) {
  size_t left = j.size();
  size_t index = 0;
  for (const auto &[key, value] : j.items()) {
    const bool last = --left == 0;
    std::string label = key;
    if (j.is_array()) {
      label = std::to_string(++index);
      for (const char *name : {"id", "name", "text"})
        if (value.is_object() && value.contains(name)) {
          label = scalar(value[name]);
          break;
        }
    }
    const std::string branch = indent + (last ? "└─ " : "├─ ") + label;
    if (leaf(value)) {
      lines(branch + ": " + leaf_text(value));
    } else {
      lines(branch);
      tree(value, indent + (last ? "   " : "│  "), lines);
    }
  }
}

std::string pad(std::string text, size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

std::string verdict_line(const Json &v) {
  std::string text = scalar(v["level"]) + " " + scalar(v["decision"]) + ": " + scalar(v["text"]);
  if (v.contains("evidence")) text += "\n      found: " + scalar(v["evidence"]);
  if (v.contains("remedy")) text += "\n      remedy: " + scalar(v["remedy"]);
  return text;
}

void report_text(const Json &j, const Lines &lines) {
  auto row = [&](const std::string &name, const std::string &text) { lines(pad(name, 11) + text); };
  row("octavo", scalar(j["octavo"]));
  row("config", scalar(j["config"]));
  row("wanted",
      scalar(j["wanted"]["mixed_precision"]) + ", backend " + scalar(j["wanted"]["backend"]));
  row("runs", scalar(j["runs"]));
  row("device",
      scalar(j["device"]) + (j.contains("kernels") ? ", kernels " + scalar(j["kernels"]) : ""));
  if (j.contains("backend")) {
    const Json &b = j["backend"];
    row("backend", scalar(b["id"]) + " " + scalar(b["version"]) + ", ABI " + scalar(b["abi"]));
    row("library", scalar(b["library"]));
    row("sha256", scalar(b["sha256"]));
    for (const auto &[name, o] : j["options"].items())
      row("option", name + " = " + dump(o["value"]) + "  (" + scalar(o["origin"]) + ")");
    if (j.contains("min_gain"))
      row("min_gain", scalar(j["min_gain"]["value"]) + " (" + scalar(j["min_gain"]["origin"]) +
                          "): " + scalar(j["min_gain"]["effect"]));
  }
  lines("candidates");
  for (const Json &c : j["candidates"]) {
    lines("  " + scalar(c["id"]) + (c["chosen"].get<bool>() ? "  <- chosen" : "") +
          (c.contains("fallback") ? "  (fallback)" : ""));
    if (c.contains("manifest"))
      lines("    " + scalar(c["manifest"]) + " (" + scalar(c["found"]) + ")");
    for (const Json &v : c["verdicts"]) lines("    " + verdict_line(v));
  }
  if (!j.contains("layers")) return;
  lines("layers");
  size_t width = 0;
  for (const Json &l : j["layers"]) width = std::max(width, scalar(l["name"]).size());
  for (const Json &l : j["layers"])
    lines("  " + pad(scalar(l["name"]), width) + "  " +
          pad("[" + scalar(l["shape"][0]) + ", " + scalar(l["shape"][1]) + "]", 14) +
          pad(scalar(l["placed"]), 6) + scalar(l["verdict"]["text"]) +
          (l["verdict"].contains("evidence") ? " (" + scalar(l["verdict"]["evidence"]) + ")" : ""));
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
    if (p.contains("verdicts"))
      for (const Json &v : p["verdicts"]) lines("    " + verdict_line(v));
  }
  if (j["plugins"].empty()) lines("no plugins found");
  lines("searched");
  for (const Json &s : j["searched"])
    lines("  " + scalar(s["directory"]) + " (" + scalar(s["origin"]) +
          (s["exists"].get<bool>() ? ")" : ", does not exist)"));
}

void hardware_text(const Json &j, const Lines &lines) {
  const Json &cpu = j["cpu"];
  lines(pad("cpu", 11) + scalar(cpu["model"]));
  lines(pad("features", 11) + leaf_text(cpu["features"]));
  lines(pad("cores", 11) + scalar(cpu["cores"]));
  lines(pad("memory", 11) + std::to_string(cpu["memory_bytes"].get<uint64_t>() >> 20) + " MiB");
  lines(pad("cuda", 11) + scalar(j["cuda"]["text"]));
  for (const Json &d : j["cuda"]["devices"])
    lines("  " + scalar(d["index"]) + ": " + scalar(d["name"]) + ", capability " +
          scalar(d["capability"]) + ", " + std::to_string(d["memory_bytes"].get<uint64_t>() >> 20) +
          " MiB");
}

void config_text(const Json &j, const Lines &lines) {
  size_t width = 0;
  for (const auto &[name, s] : j["settings"].items()) width = std::max(width, name.size());
  for (const auto &[name, s] : j["settings"].items())
    lines(pad(name, width) + " = " + dump(s["value"]) + "  (" + scalar(s["origin"]) + ")");
}

void write(const Json &model, Format format, const Lines &lines,
           void (*text)(const Json &, const Lines &)) {
  if (format == Format::kJson)
    lines(dump(model, 2));
  else if (format == Format::kTree)
    tree(model, "", lines);
  else
    text(model, lines);
}

}  // namespace

Format parse_format(std::string_view name) {
  if (name == "text" || name.empty()) return Format::kText;
  if (name == "tree") return Format::kTree;
  if (name == "json") return Format::kJson;
  throw Failure(
      OCTAVO_INVALID, "octavo.report",
      "format: expected \"text\", \"tree\" or \"json\", found \"" + std::string(name) + "\"");
}

void Lines::operator()(const std::string &text) const {
  std::istringstream in(text);
  for (std::string one; std::getline(in, one);) line_(ctx_, str(one));
}

void write_report(const Negotiation &n, const octavo_run *run, Format format, const Lines &lines) {
  write(report_model(n, run), format, lines, report_text);
}

void write_list(const Negotiation &n, const octavo_run *, Format format, const Lines &lines) {
  write(list_model(n), format, lines, list_text);
}

void write_hardware(const Negotiation &n, const octavo_run *, Format format, const Lines &lines) {
  write(hardware_model(n), format, lines, hardware_text);
}

void write_config(const Negotiation &n, const octavo_run *, Format format, const Lines &lines) {
  write(config_model(n), format, lines, config_text);
}

}  // namespace octavo
