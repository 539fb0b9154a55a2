// What liboctavo accepts as a host's collective: the caller's table in this library's size, usable.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "failure.h"
#include "octavo/octavo.h"

namespace octavo {

// Throws Failure(OCTAVO_INVALID) for a table without run, or without ranks; `verb` is named.
inline octavo_collective own_collective(const octavo_collective *given, const char *domain,
                                        const char *verb) {
  octavo_collective c{};
  if (given != nullptr) std::memcpy(&c, given, std::min<size_t>(given->size, sizeof(c)));
  if (c.run == nullptr)
    throw Failure(OCTAVO_INVALID, domain,
                  std::string(verb) + ": expected a collective with a run function, found " +
                      (given == nullptr ? "no collective" : "null"));
  if (c.world < 1)
    throw Failure(OCTAVO_INVALID, domain,
                  std::string(verb) + ": expected a collective of at least 1 rank, found world 0");
  return c;
}

}  // namespace octavo
