// Takes the place of the C library's malloc in the program that links it.
#include "tests/support/failing_heap.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

extern "C" {
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
}

namespace octavo::test {
namespace {

std::atomic<bool> armed = false;
std::atomic<int64_t> asked = 0;
std::atomic<int64_t> first = 0;
std::atomic<int64_t> last = 0;

bool fails() {
  if (!armed.load(std::memory_order_relaxed)) return false;
  const int64_t number = ++asked;
  if (number < first || number > last) return false;
  errno = ENOMEM;
  return true;
}

}  // namespace

void arm_heap(int64_t which, int64_t count) {
  asked = 0;
  first = which;
  last = which == 0 ? 0 : which + count - 1;
  armed = true;
}

int64_t disarm_heap() {
  armed = false;
  return asked;
}

}  // namespace octavo::test

using octavo::test::fails;

extern "C" {

void *malloc(size_t bytes) {
  return fails() ? nullptr : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
  return fails() ? nullptr : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes) {
  return bytes > 0 && fails() ? nullptr : __libc_realloc(old, bytes);
}

void *memalign(size_t alignment, size_t bytes) {
  return fails() ? nullptr : __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  return fails() ? nullptr : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **to, size_t alignment, size_t bytes) {
  if (fails()) return ENOMEM;
  *to = __libc_memalign(alignment, bytes);
  return *to == nullptr ? ENOMEM : 0;
}

}  // extern "C"
