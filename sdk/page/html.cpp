// Numbers have a minus sign, not a hyphen, and no-break spaces between groups of digits.
#include "sdk/page/html.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace octavo::html {
namespace {

std::string with_minus(std::string text) {
  for (size_t at = 0; (at = text.find('-', at)) != std::string::npos;) text.replace(at, 1, "−");
  return text;
}

std::string printed(const char *format, int digits, double value) {
  char text[400];
  std::snprintf(text, sizeof text, format, digits, value);
  return text;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  return out;
}

std::string element(std::string_view name, const Attributes &attributes, std::string_view inner) {
  std::string out = "<" + std::string(name);
  for (const auto &[key, value] : attributes)
    if (!value.empty())
      out.append(" ").append(key).append("=\"").append(escaped(value)).append("\"");
  return out.append(">").append(inner).append("</").append(name).append(">");
}

std::string table(const std::vector<std::string> &head,
                  const std::vector<std::vector<std::string>> &rows,
                  const std::vector<std::string> &classes) {
  std::string heads, body;
  for (size_t i = 0; i < head.size(); ++i)
    heads += element("th", {{"scope", "col"}, {"class", classes[i]}}, escaped(head[i]));
  for (const auto &row : rows) {
    std::string cells;
    for (size_t i = 0; i < row.size(); ++i) cells += element("td", {{"class", classes[i]}}, row[i]);
    body += element("tr", {}, cells) + "\n";
  }
  return element(
      "div", {{"class", "scroll"}},
      element("table", {},
              element("thead", {}, element("tr", {}, heads)) + element("tbody", {}, body)));
}

std::string color(size_t number) {
  return "var(--c" + std::to_string(number % 8) + ")";
}

std::string folded(std::string_view summary, std::string_view inner, bool is_open) {
  return (is_open ? "<details open>" : "<details>") + element("summary", {}, escaped(summary)) +
         std::string(inner) + "</details>";
}

std::string fixed(double value, int digits) {
  return with_minus(printed("%.*f", digits, value));
}

std::string signed_(double value, int digits) {
  const std::string size = printed("%.*f", digits, std::abs(value));
  return (value > 0 ? "+" : value < 0 ? "−" : "±") + size;
}

std::string grouped(double value) {
  const std::string digits = printed("%.*f", 0, std::abs(value));
  std::string out = value < 0 ? "−" : "";
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && (digits.size() - i) % 3 == 0) out += "\u00a0";
    out += digits[i];
  }
  return out;
}

std::string brief(double value) {
  if (value == 0) return "0";
  if (std::abs(value) >= 1e4 || std::abs(value) < 1e-3) {
    std::string text = printed("%.*e", 1, value);
    const size_t e = text.find('e');
    const int power = std::atoi(text.c_str() + e + 1);
    return with_minus(text.substr(0, e) + "e" + std::to_string(power));
  }
  return with_minus(printed("%.*g", 6, std::strtod(printed("%.*e", 2, value).c_str(), nullptr)));
}

}  // namespace octavo::html
