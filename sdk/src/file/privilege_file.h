// CheckedFile: one regular file, opened once. What is read, hashed and judged is this descriptor,
// not whatever has the name later.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

#include "sdk/src/base/descriptor.h"

namespace octavo {

class CheckedFile {
 public:
  // Opens for reading; neither waits on a pipe nor opens a device. Throws Failure(OCTAVO_INVALID,
  // domain, ...) when there is no regular file or it cannot be read. This and what follows throw
  // Shortage when that says nothing about the file.
  CheckedFile(const std::string &path, const char *domain);

  const std::string &path() const { return path_; }
  int descriptor() const { return file_.get(); }
  // Device and inode are the same.
  bool is(const struct stat &other) const;
  // Nobody wrote to it, renamed it or changed its mode since it was opened.
  bool unchanged() const;
  // All of it. Throws Failure when it is longer than `most` bytes.
  std::string read(size_t most) const;
  // In hex. Throws Failure when it cannot be read.
  std::string sha256() const;

 private:
  [[noreturn]] void unreadable(int error) const;

  const std::string path_;
  const char *domain_;
  const Descriptor file_;
  struct stat status_ {};
};

// SHA-256 as Octavo's files write it: 64 digits of lower-case hex.
constexpr size_t kSha256Bytes = 32;
constexpr size_t kSha256Digits = 2 * kSha256Bytes;

std::string hex_of(const unsigned char (&hash)[kSha256Bytes]);
std::string sha256_of(std::string_view bytes);

bool is_sha256(std::string_view text);

}  // namespace octavo
