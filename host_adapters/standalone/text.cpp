// NO_COLOR and pipes get plain text.
#include "host_adapters/standalone/text.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace octavo::standalone {

bool wants_color(int descriptor) {
  const char *no_color = std::getenv("NO_COLOR");
  return isatty(descriptor) == 1 && (no_color == nullptr || *no_color == '\0');
}

std::string fixed(double value, int digits) {
  char buffer[512];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return buffer;
}

std::string grouped(uint64_t value) {
  std::string digits = std::to_string(value);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ' ');
  return digits;
}

std::string table(const std::vector<std::vector<std::string>> &rows, size_t left, bool color) {
  std::vector<size_t> widths;
  for (const auto &row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  size_t width = 2 * (widths.size() - 1);
  for (const size_t w : widths) width += w;
  std::string all;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < rows[r].size(); ++i) {
      const std::string pad(widths[i] - rows[r][i].size(), ' ');
      line += i == 0 ? "" : "  ";
      line += i < left ? rows[r][i] + pad : pad + rows[r][i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    if (r == 0 && color) line = std::string("\033[1m").append(line).append("\033[0m");
    all += line + "\n";
    if (r == 0) all += std::string(width, '-') + "\n";
  }
  return all;
}

}  // namespace octavo::standalone
