// What is not there has no value: a run that was interrupted lacks some.
#include "sdk/page/parts.h"

#include <algorithm>
#include <cmath>

namespace octavo {

using nlohmann::json;
using namespace html;

std::optional<double> number(const json &of, const char *key) {
  const auto found = of.find(key);
  return found != of.end() && found->is_number() ? std::optional(found->get<double>())
                                                 : std::nullopt;
}

std::string text(const json &of, const char *key) {
  const auto found = of.find(key);
  return found != of.end() && found->is_string() ? found->get<std::string>() : "";
}

const json &part(const json &of, const char *key) {
  static const json empty = json::object();
  const auto found = of.find(key);
  return found != of.end() && !found->is_null() ? *found : empty;
}

Values values_of(const json &list) {
  Values out;
  for (const json &v : list)
    out.push_back(v.is_number() ? std::optional(v.get<double>()) : std::nullopt);
  return out;
}

std::vector<double> steps_of(const json &list) {
  std::vector<double> out;
  for (const json &v : list) out.push_back(v.get<double>());
  return out;
}

// [[step, value]] as a series' x and y.
void put_points(const json &points, Series &series) {
  for (const json &p : points)
    if (p[1].is_number())
      series.x.push_back(p[0].get<double>()), series.y.emplace_back(p[1].get<double>());
}

// Means over a fifteenth of the run: single batches are noisy.
Values smooth(const Values &values) {
  const auto half =
      static_cast<long>(std::max(1L, std::lround(static_cast<double>(values.size()) / 30)));
  Values out(values.size());
  for (long i = 0; i < static_cast<long>(values.size()); ++i) {
    double sum = 0;
    long count = 0;
    for (long k = std::max(0L, i - half);
         k <= std::min(static_cast<long>(values.size()) - 1, i + half); ++k)
      if (values[static_cast<size_t>(k)]) sum += *values[static_cast<size_t>(k)], ++count;
    if (count != 0) out[static_cast<size_t>(i)] = sum / static_cast<double>(count);
  }
  return out;
}

std::string ratio(double v) {
  return fixed(v, 4);
}
std::string percent(double v) {
  return signed_(v, 2) + "\u00a0%";
}
std::string decibels(double v) {
  return fixed(v, 1) + "\u00a0dB";
}
std::string counted(const json &of, const char *key) {
  const auto n = number(of, key);
  return n ? grouped(*n) : kNone;
}

std::string card(const std::string &inner) {
  return element("div", {{"class", "card"}}, inner);
}
std::string headed(const std::string &title, const std::string &inner) {
  return card(element("h3", {}, escaped(title)) + inner);
}
std::string section(const std::string &title, const std::string &note, const std::string &inner) {
  return element("section", {},
                 element("h2", {}, escaped(title)) +
                     (note.empty() ? "" : element("p", {{"class", "note"}}, escaped(note))) +
                     inner) +
         "\n";
}

std::string label(const json &run) {
  std::string name = run.at("name");
  for (const std::string prefix : {"recipe=", "opt_level="})
    if (const size_t at = name.find(prefix); at != std::string::npos) name.erase(at, prefix.size());
  return name;
}
std::string swatch(size_t i) {
  return element("span", {{"class", "swatch"}, {"style", "background:" + color(i)}}, "");
}
Series series_of(const json &run, size_t i) {
  static const char *const kDashes[] = {
      "", "", "", "", "6 5", "", "6 5", "2 4"};  // the same line twice shows both colours
  return {label(run), i, kDashes[i % 8], {}, {}, {}};
}

}  // namespace octavo
