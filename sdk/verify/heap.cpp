// The program's malloc and its family forward to glibc's own functions under their other names.
#include "heap.h"

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

}  // namespace

void note_heap_call() {
  if (counting) ++count;
}

bool heap_is_counted() {
  return OCTAVO_COUNTS_HEAP != 0;
}

uint64_t heap_in_use() {
#if OCTAVO_COUNTS_HEAP
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
#else
  return 0;
#endif
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

#define OCTAVO_TO_LIBC __attribute__((visibility("default")))
OCTAVO_TO_LIBC void *malloc(size_t size) {
  octavo::conformance::note_heap_call();
  return __libc_malloc(size);
}
OCTAVO_TO_LIBC void *calloc(size_t count, size_t size) {
  octavo::conformance::note_heap_call();
  return __libc_calloc(count, size);
}
OCTAVO_TO_LIBC void *realloc(void *old, size_t size) {
  octavo::conformance::note_heap_call();
  return __libc_realloc(old, size);
}
OCTAVO_TO_LIBC void *aligned_alloc(size_t alignment, size_t size) {
  octavo::conformance::note_heap_call();
  return __libc_memalign(alignment, size);
}
OCTAVO_TO_LIBC int posix_memalign(void **out, size_t alignment, size_t size) {
  octavo::conformance::note_heap_call();
  *out = __libc_memalign(alignment, size);
  return *out == nullptr ? ENOMEM : 0;
}
}
#endif
