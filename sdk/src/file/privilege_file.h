// CheckedFile: one regular file, opened once. What is read, hashed and judged is this descriptor,
// not whatever has the name later.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

#include "sdk/src/base/descriptor.h"

namespace octavo {

// A regular file, open for reading, and its status; none: *problem has the reason. It neither waits
// for a FIFO nor opens a device. Throws ResourceUnavailable when that says nothing about the file.
Descriptor open_regular(const std::string &path, struct stat *status, std::string *problem);

class CheckedFile {
 public:
  // By open_regular. Throws Failure(OCTAVO_INVALID, domain, ...) when there is no regular file or
  // it cannot be read. What follows throws ResourceUnavailable, too.
  CheckedFile(const std::string &path, const char *domain);
  // What another process opened by that and handed on.
  CheckedFile(const std::string &path, Descriptor file, const char *domain);

  const std::string &path() const { return path_; }
  int descriptor() const { return file_.get(); }
  // For a longer life than this one has. Throws ResourceUnavailable.
  Descriptor another(int least = 0) const;
  uint64_t size() const { return static_cast<uint64_t>(status_.st_size); }
  // Device and inode are the same.
  bool is(const struct stat &other) const;
  // Nobody wrote to it, renamed it or changed its mode since it was opened.
  bool unchanged() const;
  // Fewer bytes only at the end of the file.
  size_t read_at(void *to, size_t bytes, uint64_t offset) const;
  // All of it. Throws Failure when it is longer than `most` bytes.
  std::string read(size_t most) const;
  // In hex. Throws Failure when it cannot be read.
  std::string sha256() const;

 private:
  const std::string path_;
  const char *domain_;
  struct stat status_ {};
  const Descriptor file_;
};

// SHA-256 as Octavo's files write it: 64 digits of lower-case hex.
constexpr size_t kSha256Bytes = 32;
constexpr size_t kSha256Digits = 2 * kSha256Bytes;

std::string hex_of(const unsigned char (&hash)[kSha256Bytes]);
std::string sha256_of(std::string_view bytes);

bool is_sha256(std::string_view text);

}  // namespace octavo
