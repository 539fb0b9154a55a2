// Structs that grow with the ABI's minor versions: a caller of another age gives more fields or
// fewer.
#pragma once

#include <cstdint>

#include "octavo/abi.h"

namespace octavo {

// Whether the size that `own` states contains its member `field` whole.
template <typename T, typename Field>
bool covers(const T &own, const Field &field) {
  return reinterpret_cast<uintptr_t>(&field) + sizeof(field) - reinterpret_cast<uintptr_t>(&own) <=
         own.size;
}

// As OCTAVO_TAKE. Those of `pointers` that the size cuts in two are null, since half a pointer
// points anywhere. A text needs no naming: cut, its size is 0.
template <typename T, typename... Pointer>
T copy_known_fields(const T &given, Pointer T::*...pointers) {
  T own;
  OCTAVO_TAKE(own, &given);
  ((covers(own, own.*pointers) ? void() : void(own.*pointers = nullptr)), ...);
  return own;
}

}  // namespace octavo
