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

// JSON of a file that anybody may have written. What is nested deeper than `most` levels is refused
// like what is malformed, since code that walks over values calls itself for each level: the value
// is discarded. With `throws`, what is malformed throws nlohmann's parse_error.
template <typename Value>
Value parse_json(const std::string &text, bool throws = false, int most = 32) {
  bool is_deep = false;
  const auto shallow = [&](int depth, typename Value::parse_event_t, Value &) {
    is_deep = is_deep || depth > most;
    return depth <= most;
  };
  Value found = Value::parse(text, shallow, throws);
  return is_deep ? Value(Value::value_t::discarded) : found;
}

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
