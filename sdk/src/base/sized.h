// Structs that grow with the ABI's minor versions: a caller of another age gives more fields or
// fewer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace octavo {

// `given` in this library's size: fields that `given.size` does not cover are 0, and so are those
// of `pointers` that it cuts in two, since half a pointer points anywhere. A text needs no naming:
// cut, its size is 0.
template <typename T, typename... Pointer>
T head_of(const T &given, Pointer T::*...pointers) {
  T own{};
  const size_t size = std::min<size_t>(given.size, sizeof(own));
  std::memcpy(&own, &given, size);
  const auto begin = reinterpret_cast<uintptr_t>(&own);
  [[maybe_unused]] const auto drop_if_cut = [&](auto &pointer) {
    if (size < reinterpret_cast<uintptr_t>(&pointer) + sizeof(pointer) - begin) pointer = nullptr;
  };
  (drop_if_cut(own.*pointers), ...);
  return own;
}

}  // namespace octavo
