// Small text helpers of liboctavo: the border between octavo_str and C++, and "did you mean".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "octavo/abi.h"

namespace octavo {

inline std::string_view view(octavo_str s) {
  return s.data == nullptr ? std::string_view() : std::string_view(s.data, s.size);
}
// Borrows: the result is valid as long as the characters of `s` are.
inline octavo_str str(std::string_view s) {
  return {s.data(), s.size()};
}

// The candidate that is fewest edits away from `word`, or empty when none is near (more than a
// third of the letters differ).
std::string nearest(std::string_view word, const std::vector<std::string> &candidates);

// "a, b and c", or with another word before the last; "nothing" when empty.
std::string enumerate(const std::vector<std::string> &items, const char *word = "and");

// Shell-style match: * ? [...], case-sensitive, * crosses dots.
bool matches(const std::string &pattern, const std::string &name);

}  // namespace octavo
