// Numbers and tables for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace octavo::standalone {

// Whether this file descriptor is a terminal and NO_COLOR is unset.
bool wants_color(int descriptor);
// 3.14159, 2 -> "3.14"
std::string fixed(double value, int digits);
// 1234567 -> "1 234 567"
std::string grouped(uint64_t value);
// The first row is the header. `left` columns from the left are text, the others are numbers.
std::string table(const std::vector<std::vector<std::string>> &rows, size_t left, bool color);

}  // namespace octavo::standalone
