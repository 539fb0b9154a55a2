// One range of addresses per process. The runtime and the fake cuBLASLt are libraries that do not
// see each other's symbols: they find its description by way of the environment.
#include "sealed.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace cuda_on_cpu {
namespace {

constexpr size_t kBytes = size_t{1} << 40;  // of addresses, not of memory
constexpr size_t kPage = 4096;
constexpr const char *kPlace = "CUDA_ON_CPU_ARENA";  // "<process>:<address>"

// Freed memory of one size, the oldest first.
struct Freed {
  static constexpr size_t kMost = 4096, kWaiting = 8;
  size_t first = 0, count = 0;
  void *data[kMost];
};

struct Arena {
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
  unsigned accesses = 0;
  size_t used = 0;
  unsigned char *pages = nullptr;
  unsigned char *open = nullptr;  // the same pages, for copies
  const pid_t process = getpid();
  Freed freed[40];  // by the power of two of the number of pages

  void lock() {
    while (busy.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  }
  void unlock() { busy.clear(std::memory_order_release); }
};

void *mapped(void *pages) {
  if (pages != MAP_FAILED) return pages;
  std::perror("cuda_on_cpu: mmap");
  std::abort();
}

// Two ranges of addresses of the same pages, of which the first is closed. A process that forks
// shares them with its child, which therefore frees nothing.
void map_pages(Arena *a) {
  a->pages = static_cast<unsigned char *>(mapped(mmap(
      nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)));
  a->open = static_cast<unsigned char *>(mapped(mremap(a->pages, 0, kBytes, MREMAP_MAYMOVE)));
  if (mprotect(a->pages, kBytes, PROT_NONE) != 0) mapped(MAP_FAILED);
}

Arena &arena() {
  static Arena *const found = [] {
    if (const char *place = std::getenv(kPlace)) {
      long process = 0;
      void *address = nullptr;
      const bool is_ours = std::sscanf(place, "%ld:%p", &process, &address) == 2;
      if (is_ours && process == getpid()) return static_cast<Arena *>(address);
    }
    auto *made = new Arena;  // for as long as the process
    map_pages(made);
    char place[64];
    std::snprintf(place, sizeof place, "%ld:%p", static_cast<long>(getpid()),
                  static_cast<void *>(made));
    setenv(kPlace, place, 1);
    return made;
  }();
  return *found;
}

// Of the smallest block of 2^n pages that holds so much.
int power_of(size_t bytes) {
  int power = 0;
  while ((kPage << power) < bytes) ++power;
  return power;
}

void protect(const Arena &a, int protection) {
  if (a.used == 0 || mprotect(a.pages, a.used, protection) == 0) return;
  std::perror("cuda_on_cpu: mprotect");
  std::abort();
}

// To forget the addresses of pages first takes time for each page that a kernel has touched; to
// close them by mprotect, and to open them again, would for each page that there is.
void close_pages(const Arena &a) {
  madvise(a.pages, a.used, MADV_DONTNEED);
  protect(a, PROT_NONE);
}

// Fresh pages cost a fault each, so a few are written instead.
void clear(void *data, size_t bytes) {
  if (bytes > 4 * kPage && madvise(data, bytes, MADV_REMOVE) == 0) return;
  std::memset(data, 0, bytes);
}

}  // namespace

bool is_sealed() {
  static const bool sealed = [] {
    const char *said = std::getenv("CUDA_ON_CPU_SEALED");
    return said != nullptr && std::strcmp(said, "1") == 0;
  }();
  return sealed;
}

void *sealed_allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  Arena &a = arena();
  const int power = power_of(bytes);
  const size_t size = kPage << power;
  Freed &freed = a.freed[power];
  a.lock();
  void *data = nullptr;
  if (freed.count > Freed::kWaiting) {
    data = freed.data[freed.first % Freed::kMost];
    ++freed.first;
    --freed.count;
  } else if (size <= kBytes - a.used) {
    data = a.pages + a.used;
    a.used += size;
    if (a.accesses > 0) protect(a, PROT_READ | PROT_WRITE);
  }
  a.unlock();
  return data;
}

void sealed_free(void *data, size_t bytes) {
  if (data == nullptr) return;
  const int power = power_of(bytes);
  Arena &a = arena();
  if (getpid() != a.process) return;
  clear(open_address(data), kPage << power);
  Freed &freed = a.freed[power];
  a.lock();
  if (freed.count < Freed::kMost) freed.data[(freed.first + freed.count++) % Freed::kMost] = data;
  a.unlock();
}

bool is_sealed_address(const void *data) {
  const auto *byte = static_cast<const unsigned char *>(data);
  return byte >= arena().pages && byte < arena().pages + kBytes;
}

void *open_address(void *data) {
  if (!is_sealed() || !is_sealed_address(data)) return data;
  return arena().open + (static_cast<unsigned char *>(data) - arena().pages);
}

bool points_to_host(const void *argument, size_t bytes) {
  const Arena &a = arena();
  for (size_t at = 0; at + sizeof(uintptr_t) <= bytes; at += sizeof(uintptr_t)) {
    uintptr_t word = 0;
    std::memcpy(&word, static_cast<const unsigned char *>(argument) + at, sizeof word);
    const auto pages = reinterpret_cast<uintptr_t>(a.pages);
    const bool is_address = word >= uintptr_t{1} << 32 && word < uintptr_t{1} << 47;
    if (!is_address || (word >= pages && word < pages + kBytes)) continue;
    void *page = reinterpret_cast<void *>(word / kPage * kPage);
    if (msync(page, kPage, MS_ASYNC) != 0) continue;  // nothing is mapped there
    std::fprintf(stderr,
                 "cuda_on_cpu: byte %zu of an argument of %zu is an address of the host, %p\n", at,
                 bytes, reinterpret_cast<void *>(word));
    return true;
  }
  return false;
}

DeviceAccess::DeviceAccess() {
  if (!is_sealed()) return;
  Arena &a = arena();
  a.lock();
  if (a.accesses++ == 0) protect(a, PROT_READ | PROT_WRITE);
  a.unlock();
}

DeviceAccess::~DeviceAccess() {
  if (!is_sealed()) return;
  Arena &a = arena();
  a.lock();
  if (--a.accesses == 0) close_pages(a);
  a.unlock();
}

}  // namespace cuda_on_cpu
