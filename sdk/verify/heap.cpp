// The program's malloc and its family forward to glibc's own functions under their other names.
//
// Bytes in use are counted here. What mallinfo2 says also has the freed blocks that glibc keeps for
// each thread, and these grow for a dozen sessions of a backend that leaks nothing.
#include "heap.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define OCTAVO_COUNTS_HEAP 1
#else
#define OCTAVO_COUNTS_HEAP 0
#endif

namespace octavo::conformance {
namespace {

thread_local bool counting = false;
thread_local uint64_t count = 0;
std::atomic<uint64_t> in_use{0};

}  // namespace

bool heap_is_counted() {
  return OCTAVO_COUNTS_HEAP != 0;
}

uint64_t heap_in_use() {
  return in_use.load(std::memory_order_relaxed);
}

HeapCount::HeapCount() {
  count = 0;
  counting = true;
}
HeapCount::~HeapCount() {
  counting = false;
}
uint64_t HeapCount::calls() const {
  return count;
}

HeapPause::HeapPause() : counted_(counting) {
  counting = false;
}
HeapPause::~HeapPause() {
  counting = counted_;
}

}  // namespace octavo::conformance

#if OCTAVO_COUNTS_HEAP
extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void *__libc_valloc(size_t);
void *__libc_pvalloc(size_t);
void __libc_free(void *);
}

namespace octavo::conformance {
namespace {

// A block that glibc gave.
void *taken(void *block) {
  if (counting) ++count;
  in_use.fetch_add(malloc_usable_size(block), std::memory_order_relaxed);
  return block;
}

// A block that glibc is about to take back.
void *given_back(void *block) {
  in_use.fetch_sub(malloc_usable_size(block), std::memory_order_relaxed);
  return block;
}

}  // namespace
}  // namespace octavo::conformance

extern "C" {
#define OCTAVO_TO_LIBC __attribute__((visibility("default")))
using octavo::conformance::given_back;
using octavo::conformance::taken;
OCTAVO_TO_LIBC void *malloc(size_t size) {
  return taken(__libc_malloc(size));
}
OCTAVO_TO_LIBC void *calloc(size_t count, size_t size) {
  return taken(__libc_calloc(count, size));
}
OCTAVO_TO_LIBC void *realloc(void *old, size_t size) {
  const size_t before = malloc_usable_size(old);
  void *block = __libc_realloc(old, size);
  if (block != nullptr || size == 0) octavo::conformance::in_use.fetch_sub(before);
  return taken(block);
}
OCTAVO_TO_LIBC void *memalign(size_t alignment, size_t size) {
  return taken(__libc_memalign(alignment, size));
}
OCTAVO_TO_LIBC void *aligned_alloc(size_t alignment, size_t size) {
  return taken(__libc_memalign(alignment, size));
}
OCTAVO_TO_LIBC int posix_memalign(void **out, size_t alignment, size_t size) {
  *out = taken(__libc_memalign(alignment, size));
  return *out == nullptr ? ENOMEM : 0;
}
OCTAVO_TO_LIBC void *valloc(size_t size) {
  return taken(__libc_valloc(size));
}
OCTAVO_TO_LIBC void *pvalloc(size_t size) {
  return taken(__libc_pvalloc(size));
}
OCTAVO_TO_LIBC void free(void *block) {
  __libc_free(given_back(block));
}
}
#endif
