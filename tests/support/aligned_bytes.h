// Memory for `saved` and workspaces of hosts in tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace octavo::test {

// Memory filled with a pattern, which starts at a multiple of 256 bytes.
class AlignedBytes {
 public:
  explicit AlignedBytes(uint64_t bytes)
      : size_(bytes), memory_(::operator new (bytes + 1, std::align_val_t{256})) {
    std::memset(memory_.get(), 0xA5, bytes + 1);
  }
  void *get() const { return memory_.get(); }
  uint64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(void *p) const { ::operator delete (p, std::align_val_t{256}); }
  };
  uint64_t size_;
  std::unique_ptr<void, Free> memory_;
};

}  // namespace octavo::test
