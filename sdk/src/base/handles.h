// Handles of the C API: numbers that name objects. A closed handle is detected however late it
// comes back, and never names an object that was opened since.
//
// A handle looks like a pointer but is not an address: it holds a place in a table and a count of
// that place's uses. No valid address has that form, so dereferencing one ends the program at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "octavo/octavo.h"
#include "sdk/src/base/exception_boundary.h"

namespace octavo {

// Without a lock: a child of fork can use and close what it inherited, whatever other threads did.
class HandleTable {
 public:
  // `places`: how many objects may be open at once, at most 2^20.
  explicit HandleTable(uint64_t kind, uint64_t places = kChunk * kChunks)
      : kind_(kind), places_(places) {}
  // Throws Failure when that many are open.
  uint64_t open(void *object);
  // Null: not open.
  void *find(uint64_t handle) const noexcept;
  // As find; of all threads that close the same handle only the first gets the object.
  // Retired, its place is not used again and keeps the object's address.
  enum class After { kReuse, kRetire };
  void *close(uint64_t handle, After after = After::kReuse) noexcept;

 private:
  static constexpr uint64_t kChunk = 1024;
  static constexpr uint64_t kChunks = 1024;
  struct Entry {
    std::atomic<uint64_t> handle{0};  // 0: free
    std::atomic<void *> object{nullptr};
    uint64_t generation = 0;  // of whoever took the entry
  };

  Entry *entry(uint64_t place) const noexcept;
  Entry &made_entry(uint64_t place);

  const uint64_t kind_;
  const uint64_t places_;
  std::atomic<Entry *> chunks_[kChunks] = {};  // never freed: handles come back at any time
};

// The table of one type; alive until the process has ended, since destructors of the host may
// close.
template <typename T>
HandleTable &handle_table();

template <typename T>
T *open_handle(std::unique_ptr<T> object) {
  const uint64_t handle = handle_table<T>().open(object.get());
  object.release();
  return reinterpret_cast<T *>(handle);
}

template <typename T>
T *find_handle(const T *handle) noexcept {
  return static_cast<T *>(handle_table<T>().find(reinterpret_cast<uint64_t>(handle)));
}

template <typename T>
std::unique_ptr<T> close_handle(T *handle) noexcept {
  return std::unique_ptr<T>(
      static_cast<T *>(handle_table<T>().close(reinterpret_cast<uint64_t>(handle))));
}

// body(object), or an empty value of its type for a handle that is not open.
template <typename T, typename Body>
auto with_object(const T *handle, Body &&body) -> decltype(body(*handle)) {
  const T *object = find_handle(handle);
  if (object == nullptr) return {};
  return body(*object);
}

// For objects with threads or locks: in a child of fork nothing would answer their destructors, so
// there the object is left as it is.
template <typename T>
void close_or_retire(T *handle) noexcept {
  const T *object = find_handle(handle);
  if (object != nullptr && object->is_inherited())
    handle_table<T>().close(reinterpret_cast<uint64_t>(handle), HandleTable::After::kRetire);
  else
    close_handle(handle);
}

// Calls body(object) inside guarded. Null is no handle (OCTAVO_INVALID); what was closed, or never
// opened, cannot be used any more (OCTAVO_WRONG_STATE).
template <typename T, typename Body>
octavo_status call_guarded(const T *handle, Body &&body) noexcept {
  if (handle == nullptr) return OCTAVO_INVALID;
  T *object = find_handle(handle);
  if (object == nullptr || !object->is_usable()) return OCTAVO_WRONG_STATE;
  return guarded(object->host(), [&] { return body(*object); });
}

}  // namespace octavo
