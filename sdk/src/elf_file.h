// One regular file, read by offset and length; every access is checked against its size.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace octavo {

// Never maps: a file that shrinks while it is read gives a short read and no signal. Opening does
// not block on a FIFO and does not wake a device.
class ElfFile {
 public:
  // Nothing when it cannot be opened or is no regular file; then *problem says why.
  static std::optional<ElfFile> open(const std::string &path, std::string *problem);
  ElfFile(ElfFile &&other) noexcept;
  ElfFile &operator=(ElfFile &&) = delete;
  ~ElfFile();

  uint64_t size() const { return size_; }
  bool holds(uint64_t offset, uint64_t bytes) const {
    return offset <= size_ && bytes <= size_ - offset;
  }
  // False when the range is not wholly inside the file, or cannot be read.
  bool read(uint64_t offset, void *out, uint64_t bytes) const;
  template <typename T>
  bool read(uint64_t offset, T &out) const {
    return read(offset, &out, sizeof(out));
  }

 private:
  ElfFile(int fd, uint64_t size) : fd_(fd), size_(size) {}
  int fd_;
  uint64_t size_;
};

}  // namespace octavo
