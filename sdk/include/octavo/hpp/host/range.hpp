// octavo/hpp/host/range.hpp: a C++ range over objects that C functions return by index.
#ifndef OCTAVO_HPP_HOST_RANGE_HPP
#define OCTAVO_HPP_HOST_RANGE_HPP

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

namespace octavo {
inline namespace hpp {

// get(i) returns a pointer that is not null for i < size. The range is valid as long as the object
// that `get` reads from.
template <typename Element, typename Get>
class Range {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Element;
    using difference_type = std::ptrdiff_t;
    using pointer = const Element *;
    using reference = const Element &;

    Iterator(const Get *get, uint32_t at) : get_(get), at_(at) {}
    reference operator*() const { return *(*get_)(at_); }
    pointer operator->() const { return (*get_)(at_); }
    Iterator &operator++() {
      ++at_;
      return *this;
    }
    Iterator operator++(int) {
      Iterator old = *this;
      ++at_;
      return old;
    }
    bool operator==(const Iterator &other) const { return at_ == other.at_; }
    bool operator!=(const Iterator &other) const { return at_ != other.at_; }

   private:
    const Get *get_;
    uint32_t at_;
  };

  Range(uint32_t size, Get get) : size_(size), get_(std::move(get)) {}
  uint32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const Element &operator[](uint32_t i) const { return *get_(i); }
  Iterator begin() const { return {&get_, 0}; }
  Iterator end() const { return {&get_, size_}; }

 private:
  uint32_t size_;
  Get get_;
};

template <typename Element, typename Get>
Range<Element, Get> range(uint32_t size, Get get) {
  return {size, std::move(get)};
}

}  // namespace hpp
}  // namespace octavo

#endif
