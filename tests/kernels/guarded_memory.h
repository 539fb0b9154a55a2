/* tests/kernels/guarded_memory.h: buffers between two pages that nobody may touch.
 *
 * A read beyond the end or before the start raises SIGSEGV at once, on every instruction set, where
 * a sanitizer sees only what it has instrumented. One buffer touches one guard: the one behind it
 * (kEnd) or the one before it (kBegin), and what is left of its pages is a margin that must stay as
 * it was.
 */
#ifndef OCTAVO_TESTS_KERNELS_GUARDED_MEMORY_H
#define OCTAVO_TESTS_KERNELS_GUARDED_MEMORY_H

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace octavo::test {

enum class Place {
  kEnd,  /* the last byte lies before a guard page */
  kBegin /* the first byte lies behind a guard page */
};

/* `bytes` bytes that start at a multiple of `alignment`; with kEnd up to alignment - 1 bytes of
 * margin lie behind the last one. */
class GuardedBuffer {
 public:
  GuardedBuffer(size_t bytes, Place place, size_t alignment = 1) : bytes_(bytes) {
    const size_t page = page_size();
    const size_t used = (bytes + alignment - 1) / alignment * alignment;
    /* Without an element there is still an address, and touching it faults. */
    inner_bytes_ = (used + page - 1) / page * page;
    inner_ = take_pages(inner_bytes_);
    data_ = place == Place::kBegin ? inner_ : inner_ + inner_bytes_ - used;
    if (inner_bytes_ > 0) std::memset(inner_, kMargin, inner_bytes_);
  }
  ~GuardedBuffer() {
    set_writable(true);
    spare_pages()[inner_bytes_].push_back(inner_);
  }
  GuardedBuffer(const GuardedBuffer &) = delete;
  GuardedBuffer &operator=(const GuardedBuffer &) = delete;

  uint8_t *data() { return data_; }
  const uint8_t *data() const { return data_; }
  size_t size() const { return bytes_; }

  /* false: a write faults, as a read beyond the ends does. */
  void set_writable(bool writable) {
    if (inner_bytes_ == 0 || writable == is_writable_) return;
    is_writable_ = writable;
    const int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    if (mprotect(inner_, inner_bytes_, access) != 0) fail("mprotect");
  }

  /* Whether nothing was written around the buffer in its own pages. */
  bool margin_is_clean() const {
    const size_t before = static_cast<size_t>(data_ - inner_);
    const size_t behind = inner_bytes_ - before - bytes_;
    return is_margin(inner_, before) && is_margin(data_ + bytes_, behind);
  }

  static size_t page_size() {
    static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return size;
  }

  /* Bytes of NaN in every format: a value that is read from the margin shows in the result. */
  static constexpr uint8_t kMargin = 0xFF;

 private:
  /* Pages between two guards, writable. They are kept for the next buffer of their size, since a
   * test maps some hundred thousand; only the main thread maps. */
  static uint8_t *take_pages(size_t bytes) {
    std::vector<uint8_t *> &spare = spare_pages()[bytes];
    if (!spare.empty()) {
      uint8_t *pages = spare.back();
      spare.pop_back();
      return pages;
    }
    const size_t page = page_size();
    void *mapped = mmap(nullptr, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) fail("mmap");
    uint8_t *pages = static_cast<uint8_t *>(mapped) + page;
    if (bytes > 0 && mprotect(pages, bytes, PROT_READ | PROT_WRITE) != 0) fail("mprotect");
    return pages;
  }
  static std::map<size_t, std::vector<uint8_t *>> &spare_pages() {
    static std::map<size_t, std::vector<uint8_t *>> pages;
    return pages;
  }
  static bool is_margin(const uint8_t *from, size_t bytes) {
    return bytes == 0 || (from[0] == kMargin && std::memcmp(from, from + 1, bytes - 1) == 0);
  }
  [[noreturn]] static void fail(const char *what) {
    std::perror(what);
    std::abort();
  }

  size_t bytes_;
  size_t inner_bytes_;
  uint8_t *inner_;
  uint8_t *data_;
  bool is_writable_ = true;
};

/* While it lives, a fault prints which case was running, then takes its usual course: the handler
 * that was there before runs, be it the default or a sanitizer's. */
class FaultReport {
 public:
  explicit FaultReport(const std::string &what) {
    std::snprintf(text(), kText, "\nfault in: %s\n", what.c_str());
    struct sigaction action = {};
    action.sa_handler = &print_and_restore;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &previous());
  }
  ~FaultReport() { sigaction(SIGSEGV, &previous(), nullptr); }
  FaultReport(const FaultReport &) = delete;
  FaultReport &operator=(const FaultReport &) = delete;

 private:
  static constexpr size_t kText = 512;

  static char *text() {
    static char kept[kText];
    return kept;
  }
  static struct sigaction &previous() {
    static struct sigaction kept;
    return kept;
  }
  static void print_and_restore(int) {
    if (write(STDERR_FILENO, text(), std::strlen(text())) < 0) _exit(3);
    sigaction(SIGSEGV, &previous(), nullptr); /* the instruction runs again and faults again */
  }
};

}  // namespace octavo::test

#endif
