// Prints the models: JSON as it is, trees generically, text by report_text.cpp.
#include "sdk/src/report/report.h"

#include <algorithm>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/utf8.h"
#include "sdk/src/report/report_json.h"

namespace octavo {
namespace {

bool leaf(const Json &j) {
  if (j.is_object()) return j.empty();
  return !j.is_array() ||
         std::none_of(j.begin(), j.end(), [](const Json &e) { return e.is_structured(); });
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

void write(const Json &model, Format format, const Lines &lines,
           void (*text)(const Json &, const Lines &)) {
  if (format == Format::kJson)
    lines(plain_json(dump(model, 2)));
  else if (format == Format::kTree)
    tree(model, "", lines.for_terminal());
  else
    text(model, lines.for_terminal());
}

}  // namespace

Format parse_format(std::string_view name) {
  if (name == "text" || name.empty()) return Format::kText;
  if (name == "tree") return Format::kTree;
  if (name == "json") return Format::kJson;
  throw Failure(OCTAVO_INVALID, "octavo.report",
                "format: expected \"text\", \"tree\" or \"json\", found \"", name, "\"");
}

void Lines::operator()(const std::string &text) const {
  for (std::string one : split_lines(text)) {
    if (is_terminal_) one = plain_text(one, SIZE_MAX);
    line_(ctx_, borrow(one));
  }
}

void write_report(View view, const Negotiation &n, const octavo_run *run, Format format,
                  const Lines &lines) {
  switch (view) {
    case View::kRun: {
      Json model = report_model(n, run);
      if (format == Format::kJson && run == nullptr && n.device != nullptr)
        model["ability"] = ability_json(*n.device);
      return write(model, format, lines, report_text);
    }
    case View::kPlugins: return write(list_model(n), format, lines, list_text);
    case View::kHardware: return write(hardware_model(n), format, lines, hardware_text);
    case View::kConfig: return write(config_model(n), format, lines, config_text);
    case View::kSchema: return write(schema_model(n), format, lines, nullptr);  // JSON alone
  }
}

void write_problem(const octavo_open_desc &desc, const Verdict &problem, Format format,
                   const Lines &lines) {
  write(problem_model(desc, problem), format, lines, report_text);
}

}  // namespace octavo
