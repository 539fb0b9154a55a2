// Between the contract's plain values and C++.
#pragma once

#include <octavo/octavo.h>

#include <string>

namespace octavo::torch {

inline octavo_str view(const std::string &s) {
  return {s.data(), s.size()};
}
inline std::string text(octavo_str s) {
  return s.size > 0 ? std::string(s.data, s.size) : std::string();
}
// A zeroed struct of the contract with its header filled in.
template <class T>
T make(uint32_t kind) {
  T t = {};
  t.size = sizeof t;
  t.kind = kind;
  return t;
}

}  // namespace octavo::torch
