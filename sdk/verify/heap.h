// Counts what a thread takes from the heap, by functions that the program puts before libc's.
#pragma once

#include <cstdint>

namespace octavo::conformance {

// False where the heap belongs to somebody else: a sanitizer, or another libc.
bool heap_is_counted();

// Bytes that the process has from malloc and has not given back; 0 where the heap is not counted.
uint64_t heap_in_use();

// While it lives, calls of malloc and its family by this thread are counted.
class HeapCount {
 public:
  HeapCount();
  ~HeapCount();
  HeapCount(const HeapCount &) = delete;
  HeapCount &operator=(const HeapCount &) = delete;
  uint64_t calls() const;
};

// Not while one of these does: in kernels, which answer for themselves.
class HeapPause {
 public:
  HeapPause();
  ~HeapPause();
  HeapPause(const HeapPause &) = delete;
  HeapPause &operator=(const HeapPause &) = delete;

 private:
  bool counted_;
};

}  // namespace octavo::conformance
