// One unit for the whole table, so that numbers compare by their length.
#include "sdk/cli/estimate/print.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "sdk/cli/text_layout.h"
#include "sdk/src/base/text.h"

namespace octavo::cli::estimate {
namespace {

constexpr size_t kNameColumns = 20, kNumberColumns = 10;

struct Group {
  const char *name, *block;
  std::vector<Part> parts;
};

const std::vector<Group> &groups() {
  static const std::vector<Group> all = {
      {"weights", "█", {kWeight}},
      {"gradients", "▓", {kGradient}},
      {"optimizer", "▒", {kExpAvg, kExpAvgSq, kMasterWeight, kStep}},
      {"caches", "░", {kWeightCache, kFp8State}},
      {"saved", "·", {kSaved}}};
  return all;
}

uint64_t bytes_of(const Column &c, const Group &group) {
  uint64_t sum = 0;
  for (const Part part : group.parts) sum += c.bytes[part];
  return sum;
}

uint64_t largest(const std::vector<Column> &columns) {
  uint64_t most = 1;
  for (const Column &c : columns) most = std::max(most, c.total());
  return most;
}

std::string right(const std::string &text) {
  const size_t wide = columns_of(text);
  return std::string(wide < kNumberColumns ? kNumberColumns - wide : 1, ' ') + text;
}

// A name that is longer is followed by its numbers on the next line.
std::string front(const TextLayout &page, const std::string &name) {
  if (columns_of(name) < kNameColumns) return padded(name, kNameColumns);
  page.line(name);
  return std::string(kNameColumns, ' ');
}

}  // namespace

void print_table(const std::vector<Column> &columns, bool with_saved, const char *refused) {
  const uint64_t most = largest(columns);
  const int unit = most < (uint64_t{1} << 23) ? 10 : most < (uint64_t{1} << 33) ? 20 : 30;
  const TextLayout page;
  std::string head = padded(unit == 10 ? "KiB" : unit == 20 ? "MiB" : "GiB", kNameColumns);
  for (const Group &g : groups()) head += right(g.name);
  page.line(head + right("sum"));
  const auto number = [&](uint64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", std::ldexp(static_cast<double>(bytes), -unit));
    return right(text);
  };
  for (const Column &c : columns) {
    std::string line = front(page, c.name);
    if (!c.refused.empty()) {
      page.line(concat(line, "  ", refused));
      continue;
    }
    for (const Group &g : groups())
      line += g.parts[0] == kSaved && !with_saved ? right("-") : number(bytes_of(c, g));
    page.line(line + number(c.total()));
  }
}

std::string grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

void print_bars(const std::vector<Column> &columns) {
  const double most = static_cast<double>(largest(columns));
  const TextLayout page;
  std::string key = std::string(kNameColumns - 2, ' ');
  for (const Group &g : groups()) key += concat("  ", g.block, " ", g.name);
  for (const Column &c : columns) {
    if (!c.refused.empty()) continue;
    std::string line = front(page, c.name);
    double sum = 0;
    long drawn = 0;
    for (const Group &g : groups()) {
      sum += static_cast<double>(bytes_of(c, g));
      // By the sum so far, so that the bar as a whole is as long as its total.
      const long end = std::lround(sum / most * static_cast<double>(page_columns() - kNameColumns));
      for (; drawn < end; ++drawn) line += g.block;
    }
    page.line(line);
  }
  page.line(key);
}

}  // namespace octavo::cli::estimate
