// What a function of octavo.h says about an argument that is null and must not be.
#pragma once

#include <string>

#include "failure.h"

namespace octavo {

// Throws Failure(OCTAVO_INVALID) when `address` is null; `function` and `argument` as octavo.h
// names them. Due behind the wall (guarded, on), which hands the words to the host of the run or of
// the description.
template <typename T>
T *given(T *address, const char *function, const char *argument) {
  if (address == nullptr)
    throw Failure(OCTAVO_INVALID, "octavo.arguments",
                  std::string(function) + ": expected an address as \"" + argument +
                      "\", found null; pass what octavo/octavo.h asks for there");
  return address;
}

}  // namespace octavo
