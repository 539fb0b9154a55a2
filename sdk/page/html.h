// Text of HTML, with everything escaped that is not an element, and numbers as a reader sees them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octavo::html {

std::string escaped(std::string_view text);

// <name a="b">inner</name>; the values are escaped, and an attribute with an empty value is left
// out.
using Attributes = std::initializer_list<std::pair<std::string_view, std::string>>;
std::string element(std::string_view name, const Attributes &attributes, std::string_view inner);

// Cells are HTML. classes: one a column, such as "num".
std::string table(const std::vector<std::string> &head,
                  const std::vector<std::vector<std::string>> &rows,
                  const std::vector<std::string> &classes);

// "var(--c3)": a colour of style.css, which has 8.
std::string color(size_t number);

// Closed until a reader opens it.
std::string folded(std::string_view summary, std::string_view inner, bool is_open = false);

std::string fixed(double value, int digits);    // 0.125 -> "0.13"
std::string signed_(double value, int digits);  // with its sign: "+0.13"
std::string grouped(double value);              // 12 345
std::string brief(double value);                // three digits: 0.125, 1.2e5

}  // namespace octavo::html
