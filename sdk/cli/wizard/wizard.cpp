// What liboctavo says to each answer, by the same call as `octavo check`.
#include "sdk/cli/wizard/wizard.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sdk/src/base/failure.h"

namespace octavo::cli::wizard {
namespace {

// te and msamp first, and in this order.
std::vector<Choice> installed(const octavo::Settings &settings) {
  std::vector<Choice> found;
  const nlohmann::json listed = nlohmann::json::parse(list_json(settings));
  for (const auto &plugin : listed["plugins"])
    if (plugin.value("usable", false))
      found.push_back({plugin["name"], plugin.value("description", "")});
  const auto rank = [](const Choice &c) {
    return c.value == "te" ? 0 : c.value == "msamp" ? 1 : 2;
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const Choice &a, const Choice &b) { return rank(a) < rank(b); });
  return found;
}

}  // namespace

Wizard::Wizard(const Request &request, std::string output, std::map<std::string, std::string> given,
               bool yes)
    : request_(request),
      output_(std::move(output)),
      given_(std::move(given)),
      yes_(yes),
      backends_(installed(request.settings())),
      lines_({{"schema", int64_t{1}, ""},
              {"mixed_precision", std::string("fp8"),
               "no, fp16 and bf16 leave every layer as it is."}}) {
  if (backends_.empty())
    throw Failure(
        OCTAVO_UNSUPPORTED, kInitDomain,
        "expected a backend, found none that can be loaded; octavo plugin list shows where they "
        "are searched");
}

std::string Wizard::toml_of(const std::vector<TomlLine> &lines) const {
  return toml_text("Made by octavo init. Page config has every key; octavo check shows what runs.",
                   lines);
}

Verdict Wizard::verdict(const std::vector<TomlLine> &lines) const {
  const octavo::Answer answer =
      octavo::explain(request_.settings().path(output_).text(toml_of(lines)), "json");
  Verdict v{answer.status == OCTAVO_OK, ""};
  if (v.runs) return v;
  const nlohmann::json report = nlohmann::json::parse(answer.text, nullptr, false);
  if (!report.is_object() || !report.contains("first_refusal")) {
    for (const octavo::Diagnostic &d : answer.diagnostics) v.reason = d.text;
    return v;
  }
  const nlohmann::json &refusal = report["first_refusal"];
  v.reason = refusal.value("text", "");
  // Of a file that is not there yet, a place helps nobody.
  if (v.reason.starts_with(output_ + ":")) v.reason.erase(0, v.reason.find(": ") + 2);
  if (refusal.contains("evidence")) v.reason += " (" + refusal["evidence"].get<std::string>() + ")";
  if (refusal.value("stage", "") != "config") v.reason += "; " + refusal.value("remedy", "");
  return v;
}

Verdict Wizard::verdict_with(const Question &q, const TomlValue &value) const {
  std::vector<TomlLine> lines = lines_;
  lines.push_back({q.key, value, ""});
  if (std::string_view(q.key) != "device.kind") return verdict(lines);
  Verdict first;
  for (const Choice &backend : backends_) {
    std::vector<TomlLine> with = lines;
    with.push_back({"fp8.backend", backend.value, ""});
    const Verdict v = verdict(with);
    if (v.runs) return v;
    if (first.reason.empty()) first = v;
  }
  return first;
}

void Wizard::add(const Question &q, const TomlValue &value) {
  lines_.push_back({q.key, value, q.comment});
}

std::string Wizard::answered(const std::string &key) const {
  for (const TomlLine &line : lines_)
    if (line.key == key) return std::get<std::string>(line.value);
  return "";
}

bool Wizard::applies(const Question &q) const {
  return (q.backend == nullptr || answered("fp8.backend") == q.backend) &&
         (q.recipe == nullptr || answered("fp8.te.recipe") == q.recipe);
}

void Wizard::ask_all() {
  std::vector<std::string> placed;
  for (const Question &q : questions()) {
    if (!applies(q)) continue;
    placed.emplace_back(q.flag);
    if (!q.is_asked && given_.find(q.flag) == given_.end()) continue;
    answer(q);
  }
  for (const auto &[flag, text] : given_)
    if (std::find(placed.begin(), placed.end(), flag) == placed.end())
      throw Failure(OCTAVO_INVALID, kInitDomain, flag, " ", text, ": backend ",
                    answered("fp8.backend"),
                    answered("fp8.te.recipe").empty() ? "" : " with recipe ",
                    answered("fp8.te.recipe"), " has no such setting; leave it out");
}

std::string Wizard::short_form() const {
  const octavo::Answer answer =
      octavo::explain(request_.settings().path(output_).text(toml()), "text");
  std::string all;
  for (const std::string &line : split_lines(answer.text))
    for (const char *first : {"wanted ", "runs ", "device ", "backend ", "min_gain "})
      if (line.starts_with(first)) all += line + "\n";
  return all;
}

}  // namespace octavo::cli::wizard
