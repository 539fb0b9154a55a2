// What a fuzzer holds against its target: a broken promise is said, and ends the program.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace octavo::fuzz {

[[noreturn]] inline void broken(const char *promise, const std::string &found) {
  std::fprintf(stderr, "broken promise: %s\nfound: %s\n", promise, found.c_str());
  std::abort();
}

inline void expect(bool kept, const char *promise, const std::string &found = {}) {
  if (!kept) broken(promise, found);
}

// Whether `text` is "<name>:<line>:<column>: <something>", with numbers of at least 1.
inline bool names_place(const std::string &text, const std::string &name) {
  size_t at = name.size();
  if (text.compare(0, at, name) != 0) return false;
  for (int number = 0; number < 2; ++number) {
    if (at >= text.size() || text[at] != ':') return false;
    const size_t first = ++at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
    if (at == first || text[first] == '0') return false;
  }
  return text.compare(at, 2, ": ") == 0 && text.size() > at + 2;
}

}  // namespace octavo::fuzz
