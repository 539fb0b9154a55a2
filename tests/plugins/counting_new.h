// Replaces the global operator new and counts its calls in `allocations`.
//
// For the one source file of a program: the definitions are not inline, as the language wants it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace octavo::test {

inline std::atomic<uint64_t> allocations{0};
constexpr std::size_t kUsualAlignment = alignof(std::max_align_t);

inline void *counted(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t whole = bytes == 0 ? 1 : bytes;
  void *p = std::aligned_alloc(alignment, (whole + alignment - 1) / alignment * alignment);
  if (p == nullptr) std::abort();
  return p;
}

// Not inlined, where a compiler would see operator new beside free and warn of a mismatch.
[[gnu::noinline]] inline void release(void *p) {
  std::free(p);
}

}  // namespace octavo::test

void *operator new(std::size_t n) {
  return octavo::test::counted(n, octavo::test::kUsualAlignment);
}
void *operator new[](std::size_t n) {
  return octavo::test::counted(n, octavo::test::kUsualAlignment);
}
void *operator new(std::size_t n, const std::nothrow_t &) noexcept {
  return octavo::test::counted(n, octavo::test::kUsualAlignment);
}
void *operator new[](std::size_t n, const std::nothrow_t &) noexcept {
  return octavo::test::counted(n, octavo::test::kUsualAlignment);
}
void *operator new(std::size_t n, std::align_val_t a) {
  return octavo::test::counted(n, static_cast<std::size_t>(a));
}
void *operator new[](std::size_t n, std::align_val_t a) {
  return octavo::test::counted(n, static_cast<std::size_t>(a));
}
void operator delete(void *p) noexcept {
  octavo::test::release(p);
}
void operator delete[](void *p) noexcept {
  octavo::test::release(p);
}
void operator delete(void *p, std::size_t) noexcept {
  octavo::test::release(p);
}
void operator delete[](void *p, std::size_t) noexcept {
  octavo::test::release(p);
}
void operator delete(void *p, const std::nothrow_t &) noexcept {
  octavo::test::release(p);
}
void operator delete[](void *p, const std::nothrow_t &) noexcept {
  octavo::test::release(p);
}
void operator delete(void *p, std::align_val_t) noexcept {
  octavo::test::release(p);
}
void operator delete[](void *p, std::align_val_t) noexcept {
  octavo::test::release(p);
}
void operator delete(void *p, std::size_t, std::align_val_t) noexcept {
  octavo::test::release(p);
}
void operator delete[](void *p, std::size_t, std::align_val_t) noexcept {
  octavo::test::release(p);
}
