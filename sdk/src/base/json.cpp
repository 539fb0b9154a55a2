// A stack of bytes that costs nothing until it is used: its pages are touched then.
#include "sdk/src/base/json.h"

#include <cstddef>
#include <mutex>
#include <new>

namespace octavo {
namespace {

// A vector of 100,000 values and the next smaller one that it grows out of.
constexpr size_t kReserve = size_t{4} << 20;

struct Reserve {
  std::mutex mutex;
  size_t used = 0;
  size_t owners = 0;  // pieces that are handed out; with the last one all of it is free again
  alignas(std::max_align_t) unsigned char bytes[kReserve];
};
Reserve reserve;

bool is_of_reserve(const void *memory) {
  const auto *byte = static_cast<const unsigned char *>(memory);
  return byte >= reserve.bytes && byte < reserve.bytes + kReserve;
}

}  // namespace

void *allocate_or_use_reserve(size_t bytes) {
  if (void *memory = ::operator new(bytes, std::nothrow)) return memory;
  const std::lock_guard lock(reserve.mutex);
  constexpr size_t kAlign = alignof(std::max_align_t);
  const size_t whole = (bytes + kAlign - 1) / kAlign * kAlign;
  if (whole > kReserve - reserve.used) throw std::bad_alloc();
  void *memory = reserve.bytes + reserve.used;
  reserve.used += whole;
  ++reserve.owners;
  return memory;
}

void free_or_return_to_reserve(void *memory) noexcept {
  if (!is_of_reserve(memory)) return ::operator delete(memory);
  const std::lock_guard lock(reserve.mutex);
  if (--reserve.owners == 0) reserve.used = 0;
}

}  // namespace octavo

octavo::Json *std::allocator<octavo::Json>::allocate(size_t count) {
  if (count > SIZE_MAX / sizeof(octavo::Json)) throw std::bad_array_new_length();
  return static_cast<octavo::Json *>(octavo::allocate_or_use_reserve(count * sizeof(octavo::Json)));
}
