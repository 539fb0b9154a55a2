// Writers of the suite's results. Texts of a plugin are escaped in each of them.
#include "results.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/checks.h"

namespace octavo::conformance {
namespace {

using nlohmann::json;

const char *word_of(Outcome outcome) {
  return outcome == Outcome::kPass ? "pass" : outcome == Outcome::kSkip ? "skip" : "FAIL";
}

const Step *failed_step(const Record &r) {
  const auto found = std::find_if(r.result.steps.begin(), r.result.steps.end(),
                                  [](const Step &s) { return !s.passed; });
  return found == r.result.steps.end() ? nullptr : &*found;
}

std::string for_xml(const std::string &s) {
  std::string all;
  for (const char c : shown(s)) {
    if (c == '<')
      all += "&lt;";
    else if (c == '&')
      all += "&amp;";
    else if (c == '"')
      all += "&quot;";
    else
      all += c;
  }
  return all;
}

}  // namespace

Counts count(const Results &results) {
  Counts counts;
  for (const Record &r : results.records) {
    const Outcome o = r.result.outcome;
    ++(o == Outcome::kPass ? counts.passed : o == Outcome::kSkip ? counts.skipped : counts.failed);
    if (o == Outcome::kSkip) continue;
    for (const Step &s : r.result.steps) counts.sub_checks += s.passed ? 1 : 0;
  }
  return counts;
}

namespace {

// A text of several lines stays one, below its first.
std::string lines_of(const std::string &all) {
  std::string out;
  for (size_t at = 0; at <= all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    out += (at == 0 ? "" : "\n      ") + shown(all.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

}  // namespace

std::string line_of(const Record &r) {
  const std::string detail = lines_of(r.result.detail);
  std::string line = text(word_of(r.result.outcome), "  ", r.check);
  if (r.result.outcome == Outcome::kPass) line += r.place;
  if (!detail.empty()) line += text(": ", detail);
  if (r.result.outcome == Outcome::kPass)
    for (const std::string &one : r.not_offered) line += "\n      not offered: " + shown(one);
  if (r.result.outcome != Outcome::kFail) return line;
  if (const Step *step = failed_step(r)) line += text("\n      sub-check: ", shown(step->name));
  line += text("\n      last call: ", shown(r.calling));
  for (const std::string &message : r.messages) line += text("\n      ", lines_of(message));
  return line;
}

std::string summary_of(const Results &results) {
  const Counts c = count(results);
  return text(c.passed, " passed, ", c.failed, " failed, ", c.skipped, " skipped; ", c.sub_checks,
              " sub-checks passed");
}

std::string json_of(const Results &results) {
  const Counts c = count(results);
  json checks = json::array();
  for (const Record &r : results.records) {
    json one = {
        {"name", r.check},
        {"outcome", r.result.outcome == Outcome::kFail ? "fail" : word_of(r.result.outcome)},
        {"detail", shown(r.result.detail)},
        {"sub_checks", json::array()}};
    if (const Check *check = find_check(r.check)) one["clauses"] = check->clauses;
    for (const kernels::Check &check : kernels::checks()) {
      if (r.check != check.name) continue;
      one["clauses"] = check.clauses;
      one["not_offered"] = json::array();
      for (const std::string &what : r.not_offered) one["not_offered"].push_back(shown(what));
    }
    for (const Step &s : r.result.steps)
      one["sub_checks"].push_back({{"name", s.name}, {"passed", s.passed}});
    if (r.result.outcome == Outcome::kFail) {
      one["last_call"] = shown(r.calling);
      for (const std::string &m : r.messages) one["messages"].push_back(shown(m));
    }
    checks.push_back(one);
  }
  const json all = {{"kit", results.kit},
                    {results.is_kernels ? "kernels" : "backend", results.backend},
                    {"settings", results.settings},
                    {"passed", c.passed},
                    {"failed", c.failed},
                    {"skipped", c.skipped},
                    {"sub_checks_passed", c.sub_checks},
                    {"checks", checks}};
  return all.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string junit_of(const Results &results) {
  const Counts c = count(results);
  std::string all =
      text("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"octavo plugin verify ",
           for_xml(results.backend), "\" tests=\"", results.records.size(), "\" failures=\"",
           c.failed, "\" skipped=\"", c.skipped, "\">\n");
  for (const Record &r : results.records) {
    all += text("  <testcase classname=\"", for_xml(results.backend), "\" name=\"", r.check,
                "\" time=\"", r.seconds, "\"");
    const std::string detail = for_xml(r.result.detail);
    if (r.result.outcome == Outcome::kFail) {
      all += text(">\n    <failure message=\"", detail, "\">last call: ", for_xml(r.calling),
                  "</failure>\n  </testcase>\n");
    } else if (r.result.outcome == Outcome::kSkip) {
      all += text(">\n    <skipped message=\"", detail, "\"/>\n  </testcase>\n");
    } else {
      all += "/>\n";
    }
  }
  return all + "</testsuite>\n";
}

}  // namespace octavo::conformance
