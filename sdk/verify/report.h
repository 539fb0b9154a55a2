// How a check ends early: Failure with what was expected and found, or Skip with a reason.
//
// These are thrown in the suite's own code only; none of them may pass through a backend, so the
// callbacks that a backend calls record what they saw and leave the judgement to their caller.
#ifndef OCTAVO_CONFORMANCE_REPORT_H
#define OCTAVO_CONFORMANCE_REPORT_H

#include <sstream>
#include <stdexcept>
#include <string>

#include "octavo/abi.h"

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

inline std::string text_of(octavo_str s) {
  return {s.data == nullptr ? "" : s.data, s.size};
}
inline octavo_str str_of(const std::string &s) {
  return {s.data(), s.size()};
}
// "OCTAVO_INVALID (2)".
std::string status_name(octavo_status status);

}  // namespace octavo::conformance

#endif
