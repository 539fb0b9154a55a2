// What the sections of the page share: reading the data, series of runs, cards.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sdk/page/chart.h"
#include "sdk/page/html.h"

namespace octavo {

using Values = std::vector<std::optional<double>>;
using Rows = std::vector<std::vector<std::string>>;

inline constexpr int kWide = 1000, kHalf = 490;  // pixels of a chart
inline constexpr char kNone[] = "–";

// Of an object: a number, a text or "", an object or an empty one.
std::optional<double> number(const nlohmann::json &of, const char *key);
std::string text(const nlohmann::json &of, const char *key);
const nlohmann::json &part(const nlohmann::json &of, const char *key);
std::string counted(const nlohmann::json &of, const char *key);

Values values_of(const nlohmann::json &list);
std::vector<double> steps_of(const nlohmann::json &list);
void put_points(const nlohmann::json &points, html::Series &series);
Values smooth(const Values &values);

std::string label(const nlohmann::json &run);
std::string swatch(size_t color);
html::Series series_of(const nlohmann::json &run, size_t i);

std::string ratio(double v);
std::string percent(double v);
std::string decibels(double v);

std::string card(const std::string &inner);
std::string headed(const std::string &title, const std::string &inner);
std::string section(const std::string &title, const std::string &note, const std::string &inner);

}  // namespace octavo
