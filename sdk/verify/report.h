// How a check ends early: Failure with what was expected and found, or Skip with a reason.
//
// These are thrown in the suite's own code only; none of them may pass through a backend, so the
// callbacks that a backend calls record what they saw and leave the judgement to their caller.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "octavo/abi.h"
#include "octavo/hpp/text.hpp"

namespace octavo::conformance {

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Skip : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Parts>
std::string text(const Parts &...parts) {
  std::ostringstream out;
  out.precision(9);
  (out << ... << parts);
  return out.str();
}

// The parts are evaluated in any case: in a loop over bytes, compare first and throw.
template <typename... Parts>
void expect(bool condition, const Parts &...parts) {
  if (!condition) throw Failure(text(parts...));
}

// Texts of a plugin are data: no more than this is read of one.
inline constexpr uint64_t kLongestText = 1 << 16;
inline std::string text_of(octavo_str s) {
  if (s.data == nullptr) return {};
  if (s.size <= kLongestText) return {s.data, s.size};
  return text("(a text that states ", s.size, " bytes; at most ", kLongestText, " are read)");
}
// With control characters and bytes that are no UTF-8 as \xNN: a text of a plugin may neither
// steer the terminal nor look like a line of the suite.
std::string shown(const std::string &s);
inline octavo_str str_of(const std::string &s) {
  return {s.data(), s.size()};
}
// Begins a sub-check, and ends the one before it as passed. A name that comes again is one
// sub-check, which fails when one of its turns does.
void step(const std::string &name);
struct Step {
  std::string name;
  bool passed = false;
};
// The sub-checks since the last call, in order; the last of them passed or failed.
std::vector<Step> take_steps(bool last_passed);

// "OCTAVO_INVALID (2)".
std::string status_name(octavo_status status);

}  // namespace octavo::conformance
