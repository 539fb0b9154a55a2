// What explains a result: scales, casts, reductions, and what else a program logged. Most of it is
// folded.
#include "sdk/page/diagnostics.h"

#include <map>
#include <set>

#include "sdk/page/parts.h"

namespace octavo {
namespace {

using nlohmann::json;
using namespace html;

std::string recorded(const json &runs) {
  std::string out;
  for (size_t r = 0; r < runs.size(); ++r) {
    const json &run = runs[r];
    std::string charts;
    bool has_scale = false;
    for (const std::string tensor : {"x", "dy"})
      for (const std::string kind : {"amax", "scale"}) {
        Chart c{kind + " of " + tensor, {}, 230, kHalf};
        c.is_log = true;
        for (const auto &[key, list] : part(run, kind.c_str()).items()) {
          if (key.rfind(tensor + "/", 0) != 0) continue;
          Series s{key.substr(tensor.size() + 1), c.series.size() + 2, "", {}, {}, {}};
          for (size_t i = 1; i < list.size(); ++i)  // no amax is known before the first step
            if (list[i].is_number())
              s.x.push_back(run.at("step")[i].get<double>()),
                  s.y.emplace_back(list[i].get<double>());
          c.series.push_back(std::move(s));
        }
        if (c.series.empty()) continue;
        has_scale |= kind == "scale";
        charts += headed(c.unit, chart(c));
      }
    if (!charts.empty())
      out += card(
          folded((has_scale ? "amax and scale in " : "amax in ") + label(run),
                 element("p", {{"class", "note"}},
                         has_scale ? "Of each step, on logarithmic axes, without the first step."
                                   : "Of each step, on logarithmic axes. This recipe derives the "
                                     "scale from it within the same cast.") +
                     element("div", {{"class", "two"}}, charts)));
  }
  return out;
}

std::string casts(const json &runs) {
  static const std::map<std::string, std::pair<std::string, size_t>> kKnown = {
      {"x", {"x, inputs", 3}}, {"w", {"w, weights", 2}}, {"dy", {"dy, gradients", 4}}};
  std::string out;
  for (size_t r = 0; r < runs.size(); ++r) {
    const json &operands = part(part(runs[r], "casts"), "operands");
    if (operands.empty()) continue;
    std::vector<std::string> names;
    for (const std::string known : {"x", "w", "dy"})
      if (operands.contains(known)) names.push_back(known);
    for (const auto &[name, found] : operands.items())
      if (kKnown.count(name) == 0) names.push_back(name);
    const std::vector<double> steps = steps_of(runs[r]["casts"].at("step"));
    Chart c{"worst signal-to-noise ratio in decibels against step", {}, 210, kWide};
    c.value = decibels;
    Rows rows;
    for (const std::string &name : names) {
      const auto known = kKnown.find(name);
      const size_t color = known == kKnown.end() ? 5 : known->second.second;
      const json &of = operands[name], &worst = part(of, "worst");
      const bool has = !worst.empty();
      rows.push_back({swatch(color) + escaped(known == kKnown.end() ? name : known->second.first),
                      has ? decibels(worst.at("db").get<double>()) : kNone,
                      has ? escaped(worst.at("tensor").get<std::string>()) : kNone,
                      has ? grouped(worst.at("step").get<double>()) : kNone,
                      counted(of, "saturated"), counted(of, "underflow"),
                      number(of, "amax") ? brief(*number(of, "amax")) : kNone});
      Series s{name, color, "", steps, values_of(of.at("sqnr_db")), {}};
      for (size_t i = 0; i < s.y.size(); ++i)
        if (s.y[i]) s.marks.emplace_back(s.x[i], *s.y[i]);
      c.series.push_back(std::move(s));
    }
    out += card(folded(
        "Casts in " + label(runs[r]),
        element("p", {{"class", "note"}},
                "How well codes represent values, in " +
                    grouped(static_cast<double>(steps.size())) +
                    " sampled steps: the ratio of the squares of a tensor to the squares of "
                    "its rounding errors, in decibels, of the worst layer. More is better; a cast "
                    "that neither saturates nor underflows has about 31&nbsp;dB in E4M3 and "
                    "25&nbsp;dB in E5M2. Counts are of elements, in all sampled steps.") +
            table({"Operand", "Worst ratio", "In layer", "At step", "Saturated", "Became 0",
                   "Largest amax"},
                  rows, {"", "num", "", "num extra", "num", "num", "num extra"}) +
            element("h3", {}, "Worst ratio of each sampled step") + chart(c)));
  }
  return out;
}

std::string reductions(const json &data) {
  const json &runs = data.at("runs");
  std::string charts;
  for (const auto &[kind, title] :
       {std::pair("prescale", "Pre-scale"), std::pair("saturated", "Values that saturated")}) {
    Chart c{title, {}, 190, kHalf};
    c.is_log = kind == std::string("prescale");
    for (size_t i = 0; i < runs.size(); ++i) {
      if (!part(runs[i], "reduce").contains(kind)) continue;
      Series s = series_of(runs[i], i);
      s.x = steps_of(runs[i].at("step")), s.y = values_of(runs[i]["reduce"][kind]);
      c.series.push_back(std::move(s));
    }
    if (!c.series.empty()) charts += headed(title, chart(c));
  }
  if (charts.empty() || number(data, "ranks").value_or(2) == 1) return "";
  return card(
      folded("Gradient reduction",
             element("p", {{"class", "note"}},
                     "Before ranks add their FP8 gradients they multiply by the pre-scale, so "
                     "that the sum fits into the format. "
                     "The backend lowers it when too many values saturate; otherwise it grows.") +
                 element("div", {{"class", "two"}}, charts)));
}

std::string others(const json &runs) {
  std::set<std::string> names;
  for (const json &run : runs)
    for (const auto &[name, points] : part(run, "others").items()) names.insert(name);
  std::string charts;
  for (const std::string &name : names) {
    Chart c{name + " against step", {}, 190, kHalf};
    for (size_t i = 0; i < runs.size(); ++i) {
      if (!part(runs[i], "others").contains(name)) continue;
      Series s = series_of(runs[i], i);
      put_points(runs[i]["others"][name], s);
      c.series.push_back(std::move(s));
    }
    charts += headed(name, chart(c));
  }
  return charts.empty() ? ""
                        : card(folded("Other values that the program logged",
                                      element("div", {{"class", "two"}}, charts), true));
}

}  // namespace

std::string diagnostics(const json &data) {
  const json &runs = data.at("runs");
  std::string inner = recorded(runs) + casts(runs) + reductions(data) + others(runs);
  return inner.empty() ? ""
                       : section("Diagnostics",
                                 "x: inputs of a linear layer. w: weights. dy: gradients of its "
                                 "outputs. amax: the largest absolute value. "
                                 "scale: the factor before the cast to FP8.",
                                 inner);
}

}  // namespace octavo
