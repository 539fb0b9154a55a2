// Long series keep the least and the largest value of each part, so no peak is lost.
#include "sdk/page/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sdk/page/html.h"

namespace octavo::html {
namespace {

constexpr size_t kMostPoints = 600;  // of a line
constexpr int kPhone = 340;          // pixels
constexpr double kLeft = 50, kRight = 20, kTop = 12, kBottom = 36;

// A coordinate, in tenths of a pixel. What is far outside of the axes ends at a million pixels.
std::string at(double v) {
  const long tenths = std::lround(std::min(std::abs(v), 1e6) * 10);
  return (v < 0 && tenths != 0 ? "-" : "") + std::to_string(tenths / 10) +
         (tenths % 10 != 0 ? "." + std::to_string(tenths % 10) : "");
}

// From the first multiple of a round step on.
std::vector<double> ticks_of(double low, double high, int count) {
  const double raw = (high - low) / count, power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double m : {5.0, 2.5, 2.0, 1.0})
    if (m * power >= raw * 0.999) step = m * power;
  std::vector<double> ticks;
  for (double k = std::ceil(low / step - 1e-9); k <= std::floor(high / step + 1e-9); ++k)
    ticks.push_back(k * step);
  return ticks;
}

std::vector<double> whole(std::vector<double> ticks) {
  ticks.erase(
      std::remove_if(ticks.begin(), ticks.end(), [](double t) { return t != std::floor(t); }),
      ticks.end());
  return ticks;
}

std::string text(double x, double y, const char *anchor, const std::string &inner) {
  return element("text", {{"x", at(x)}, {"y", at(y)}, {"text-anchor", anchor}}, inner);
}

std::string line(const char *kind, double x1, double y1, double x2, double y2) {
  return element("line",
                 {{"class", kind}, {"x1", at(x1)}, {"y1", at(y1)}, {"x2", at(x2)}, {"y2", at(y2)}},
                 "");
}

std::string shown(const Chart &c, double value) {
  return c.value != nullptr ? c.value(value) : brief(value);
}

// The places of a series that a line of kMostPoints goes through.
std::vector<size_t> kept(const Series &s) {
  std::vector<size_t> all;
  const size_t part = std::max<size_t>(1, 2 * s.y.size() / kMostPoints);
  for (size_t from = 0; from < s.y.size(); from += part) {
    const size_t to = std::min(from + part, s.y.size());
    size_t least = from, most = from;
    for (size_t i = from; i < to; ++i) {
      if (!s.y[i] || !s.y[least] || *s.y[i] < *s.y[least]) least = i;
      if (s.y[i] && (!s.y[most] || *s.y[i] > *s.y[most])) most = i;
    }
    all.push_back(std::min(least, most));
    if (least != most) all.push_back(std::max(least, most));
  }
  if (!s.y.empty() && all.back() != s.y.size() - 1) all.push_back(s.y.size() - 1);
  return all;
}

class Drawing {
 public:
  Drawing(const Chart &chart, int width)
      : c_(chart),
        width_(width),
        height_(width == kPhone ? std::min(chart.height, 250) : chart.height) {}

  std::string svg() {
    if (!measure()) return "";
    std::string out = axes(), lines;
    for (const Series &s : c_.series) lines += drawn(s);
    // A picture within the picture cuts what is outside of the axes.
    const std::string width = at(right() - kLeft), height = at(bottom() - kTop);
    out += element("svg",
                   {{"x", at(kLeft)},
                    {"y", at(kTop)},
                    {"width", width},
                    {"height", height},
                    {"viewBox", at(kLeft) + " " + at(kTop) + " " + width + " " + height}},
                   lines);
    return element("svg",
                   {{"class", width_ == kPhone ? "phone" : "desk"},
                    {"viewBox", "0 0 " + std::to_string(width_) + " " + std::to_string(height_)},
                    {"role", "img"},
                    {"aria-label", c_.unit}},
                   out);
  }

 private:
  double f(double v) const { return c_.is_log ? std::log2(v) : v; }
  double right() const { return width_ - kRight; }
  double bottom() const { return height_ - kBottom; }
  double x(double v) const {
    return kLeft + (v - first_) / (last_ > first_ ? last_ - first_ : 1) * (right() - kLeft);
  }
  double y(double v) const {
    return kTop + (f(high_) - f(v)) / (f(high_) - f(low_)) * (bottom() - kTop);
  }

  // The ranges of both axes. False: there is no value.
  bool measure() {
    const double far = std::numeric_limits<double>::infinity();
    first_ = low_ = far;
    last_ = high_ = -far;
    const auto each = [&](const auto &use) {
      for (const Series &s : c_.series) {
        for (size_t i = 0; i < s.y.size(); ++i)
          if (s.y[i] && std::isfinite(f(*s.y[i]))) use(s.x[i], *s.y[i]);
        for (const auto &[at, value] : s.marks)
          if (std::isfinite(f(value))) use(at, value);
      }
    };
    each([&](double at, double) { first_ = std::min(first_, at), last_ = std::max(last_, at); });
    if (first_ > last_) return false;
    const double from = first_ + c_.fit_from * (last_ - first_);
    each([&](double at, double value) {
      if (at >= from) low_ = std::min(low_, value), high_ = std::max(high_, value);
    });
    if (c_.reference && c_.shows_reference)
      low_ = std::min(low_, c_.reference->first), high_ = std::max(high_, c_.reference->first);
    if (c_.is_log) {
      low_ = std::exp2(std::floor(std::log2(low_) - 0.1)),
      high_ = std::exp2(std::ceil(std::log2(high_) + 0.1));
    } else {
      const double pad = (high_ > low_ ? high_ - low_ : high_ != 0 ? std::abs(high_) : 1) * 0.06;
      low_ -= pad, high_ += pad;
    }
    return true;
  }

  std::string axes() const {
    std::string out;
    std::vector<double> ticks =
        c_.is_log ? whole(ticks_of(f(low_), f(high_), 6)) : ticks_of(low_, high_, 5);
    for (const double tick : ticks) {
      const double value = c_.is_log ? std::exp2(tick) : tick;
      const bool is_power = c_.is_log && (value >= 1e3 || value < 0.1);
      out += line("grid", kLeft, y(value), right(), y(value)) +
             text(kLeft - 8, y(value) + 4, "end",
                  is_power ? "2<tspan class=\"power\" dy=\"-5\">" + brief(tick) + "</tspan>"
                           : brief(value));
    }
    for (const double tick :
         whole(ticks_of(first_, last_ > first_ ? last_ : first_ + 1, width_ == kPhone ? 3 : 6)))
      out += line("grid", x(tick), kTop, x(tick), bottom()) +
             text(x(tick), bottom() + 17, "middle", grouped(tick));
    out += line("axis", kLeft, bottom(), right(), bottom()) +
           text(right(), bottom() + 32, "end", "step");
    if (c_.reference && c_.reference->first >= low_ && c_.reference->first <= high_)
      out += line("reference", kLeft, y(c_.reference->first), right(), y(c_.reference->first)) +
             text(right() - 4, y(c_.reference->first) - 6, "end", escaped(c_.reference->second));
    return out;
  }

  std::string drawn(const Series &s) const {
    std::string path;
    bool pen = false;
    for (const size_t i : kept(s)) {
      const bool is_there = s.y[i] && std::isfinite(f(*s.y[i]));
      if (is_there)
        path.append(pen ? "L" : "M").append(at(x(s.x[i]))).append(" ").append(at(y(*s.y[i])));
      pen = is_there;
    }
    const std::string stroke = color(s.color);
    std::string out = element(
        "path",
        {{"d", path}, {"class", "series"}, {"stroke", stroke}, {"stroke-dasharray", s.dash}},
        element("title", {}, escaped(s.name)));
    for (const auto &[step, value] : s.marks)
      if (std::isfinite(f(value)))
        out += element(
            "circle", {{"cx", at(x(step))}, {"cy", at(y(value))}, {"r", "3.2"}, {"stroke", stroke}},
            element("title", {}, escaped(s.name) + ": " + shown(c_, value)));
    return out;
  }

  const Chart &c_;
  const int width_, height_;
  double first_ = 0, last_ = 0, low_ = 0, high_ = 0;
};

}  // namespace

std::string chart(const Chart &c) {
  const std::string desk = Drawing(c, c.width).svg();
  if (desk.empty()) return element("p", {{"class", "note"}}, "No values.");
  std::string names;
  for (const Series &s : c.series) {
    const auto last =
        std::find_if(s.y.rbegin(), s.y.rend(), [](const auto &v) { return v.has_value(); });
    const std::string value = last == s.y.rend() ? "–" : shown(c, **last);
    names += element(
        "span", {},
        element("b", {{"style", "color:" + color(s.color)}}, escaped(s.name)) + " " + value);
  }
  return desk + Drawing(c, kPhone).svg() +
         element("p", {{"class", "read"}}, "At the end: " + names);
}

}  // namespace octavo::html
