// Small text helpers of liboctavo: messages from their parts, and "did you mean".
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "octavo/hpp/text.hpp"

namespace octavo {

inline void append(std::string &to, std::string_view part) {
  to += part;
}
inline void append(std::string &to, char part) {
  to += part;
}
// The ABI's constants are enums: as digits too, never as the character of that code.
template <typename Number>
concept Digits = std::integral<Number> || std::is_enum_v<Number>;
template <Digits Number>
void append(std::string &to, Number part) {
  to += std::to_string(part);
}
// Texts as they are, numbers in digits, one after the other.
template <typename... Part>
std::string concat(const Part &...parts) {
  std::string all;
  (append(all, parts), ...);
  return all;
}

// The parts between the marks, empty ones too. A stream would end at a part that it has no memory
// for, as if there were no more.
std::vector<std::string> split(std::string_view text, char mark);
// The same for lines: an end of line at the end of the text begins no other.
std::vector<std::string> split_lines(std::string_view text);

// Without the marks at both ends.
std::string_view trimmed(std::string_view text, const char *marks);

// The candidate that is fewest edits away from `word`, or empty when none is near: at most `most`
// edits, where 0 stands for a third of the letters.
std::string nearest(std::string_view word, const std::vector<std::string> &candidates,
                    size_t most = 0);

// "a, b and c", or with another word before the last; "nothing" when empty.
std::string enumerate(const std::vector<std::string> &items, const char *word = "and");

// "a" or "b", in quotes each, and the text found in their place, with a hint when one of them is
// near to it: *near receives that one, else nothing.
std::string not_a_choice(const std::string &found, const std::vector<std::string> &choices,
                         std::string *near);

// Shell-style match: * ? [...], case-sensitive, * crosses dots.
bool matches(const std::string &pattern, const std::string &name);
// What makes a pattern match another text than its author meant; empty: nothing.
std::string problem_of_pattern(const std::string &pattern);

}  // namespace octavo
