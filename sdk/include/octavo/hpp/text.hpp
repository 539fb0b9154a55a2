// octavo/hpp/text.hpp: conversions of strings, values and statuses, for hosts and plugins in C++.
#ifndef OCTAVO_HPP_TEXT_HPP
#define OCTAVO_HPP_TEXT_HPP

#include <charconv>
#include <string>
#include <string_view>

#include "octavo/abi.h"

namespace octavo {
inline namespace hpp {

inline std::string_view view(octavo_str s) {
  return s.data == nullptr ? std::string_view() : std::string_view(s.data, s.size);
}
inline std::string text(octavo_str s) {
  return std::string(view(s));
}
// Borrows the characters of `s`, which must outlive the result.
inline octavo_str borrow(std::string_view s) {
  return {s.data(), s.size()};
}

// A growable struct with its size and kind set and all other fields 0.
template <typename Struct>
Struct make(uint32_t kind) {
  Struct s{};
  s.size = sizeof(Struct);
  s.kind = kind;
  return s;
}

inline const char *status_name(octavo_status status) {
  switch (status) {
    case OCTAVO_OK: return "OCTAVO_OK";
    case OCTAVO_UNSUPPORTED: return "OCTAVO_UNSUPPORTED";
    case OCTAVO_INVALID: return "OCTAVO_INVALID";
    case OCTAVO_WRONG_STATE: return "OCTAVO_WRONG_STATE";
    case OCTAVO_INCOMPATIBLE: return "OCTAVO_INCOMPATIBLE";
    case OCTAVO_FAILED_DEVICE: return "OCTAVO_FAILED_DEVICE";
    case OCTAVO_NO_RESOURCE: return "OCTAVO_NO_RESOURCE";
    case OCTAVO_INTERNAL: return "OCTAVO_INTERNAL";
    default: return "an unknown status";
  }
}

inline octavo_value value_of(bool b) {
  octavo_value v{};
  v.type = OCTAVO_VALUE_BOOL;
  v.integer = b ? 1 : 0;
  return v;
}
inline octavo_value value_of(int64_t i) {
  octavo_value v{};
  v.type = OCTAVO_VALUE_INT;
  v.integer = i;
  return v;
}
inline octavo_value value_of(double d) {
  octavo_value v{};
  v.type = OCTAVO_VALUE_REAL;
  v.real = d;
  return v;
}
// A value as text from which the same value is read: 8, 0.5, 1e-08, true. Empty for a list.
inline std::string text(const octavo_value &v) {
  switch (v.type) {
    case OCTAVO_VALUE_BOOL: return v.integer != 0 ? "true" : "false";
    case OCTAVO_VALUE_INT: return std::to_string(v.integer);
    case OCTAVO_VALUE_REAL: {
      char digits[32];
      return {digits, std::to_chars(digits, digits + sizeof digits, v.real).ptr};
    }
    case OCTAVO_VALUE_TEXT: return text(v.text);
    default: return {};
  }
}

// Borrows the characters of `s`, which must outlive the result.
inline octavo_value value_of(std::string_view s) {
  octavo_value v{};
  v.type = OCTAVO_VALUE_TEXT;
  v.text = borrow(s);
  return v;
}

}  // namespace hpp
}  // namespace octavo

#endif
