// A chart of lines over steps, as SVG that stands in the page.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace octavo::html {

struct Series {
  std::string name;
  size_t color = 0;       // a number for html::color
  std::string dash;       // of stroke-dasharray
  std::vector<double> x;  // increasing
  std::vector<std::optional<double>> y;
  std::vector<std::pair<double, double>> marks;  // circles
};

struct Chart {
  std::string unit;  // for those who do not see it
  std::vector<Series> series;
  int height = 0, width = 0;  // on a desk
  bool is_log = false;
  double fit_from =
      0;  // the part of the run, from 0 to 1, after which the vertical axis fits all values
  std::optional<std::pair<double, std::string>> reference = {};  // a horizontal line and its name
  bool shows_reference = false;                                  // the axis reaches to it
  std::string (*value)(double) = nullptr;  // as the line below the chart has it
};

// Twice, for a desk and for a phone; style.css shows one. Below: each series with its last value.
std::string chart(const Chart &chart);

}  // namespace octavo::html
