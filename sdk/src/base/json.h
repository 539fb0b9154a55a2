// Json: the JSON values of liboctavo. Ordered, and safe when memory is short.
//
// The destructor of nlohmann's values takes them apart with the help of a vector, so it allocates,
// and where it cannot, the process ends. The allocator of that vector is specialized here: a
// reserve inside liboctavo stands in for the heap.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace octavo {

template <typename T>
struct JsonAllocator : std::allocator<T> {
  template <typename Other>
  struct rebind {
    using other = JsonAllocator<Other>;
  };
  JsonAllocator() = default;
  template <typename Other>
  JsonAllocator(const JsonAllocator<Other> &) noexcept {}
};

using Json = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, int64_t,
                                  uint64_t, double, JsonAllocator>;

// Memory that is left when the heap has none; throws std::bad_alloc when this has none either.
void *allocate_or_use_reserve(size_t bytes);
void free_or_return_to_reserve(void *memory) noexcept;

}  // namespace octavo

template <>
struct std::allocator<octavo::Json> {
  using value_type = octavo::Json;
  using size_type = size_t;
  using difference_type = ptrdiff_t;
  using propagate_on_container_move_assignment = std::true_type;
  using is_always_equal = std::true_type;

  allocator() = default;
  template <typename Other>
  constexpr allocator(const allocator<Other> &) noexcept {}
  octavo::Json *allocate(size_t count);
  void deallocate(octavo::Json *memory, size_t) noexcept {
    octavo::free_or_return_to_reserve(memory);
  }
  friend bool operator==(const allocator &, const allocator &) noexcept { return true; }
};
