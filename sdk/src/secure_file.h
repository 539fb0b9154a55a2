// SecureFile: one regular file, opened once. What is read, hashed and judged is this descriptor,
// not whatever lies under the name later.
#pragma once

#include <sys/stat.h>

#include <string>

namespace octavo {

class SecureFile {
 public:
  // Opens for reading; neither waits on a pipe nor opens a device. Throws Failure(OCTAVO_INVALID,
  // domain, ...) when there is no regular file or it cannot be read.
  SecureFile(const std::string &path, const char *domain);
  ~SecureFile();
  SecureFile(const SecureFile &) = delete;
  SecureFile &operator=(const SecureFile &) = delete;

  const std::string &path() const { return path_; }
  int descriptor() const { return file_; }
  // Device and inode are the same.
  bool is(const struct stat &other) const;
  // Nobody wrote to it, renamed it or changed its mode since it was opened.
  bool unchanged() const;
  // All of it. Throws Failure when it is longer than `most` bytes.
  std::string read(size_t most) const;
  // In hex; empty when reading fails.
  std::string sha256() const;

 private:
  const std::string path_;
  const char *domain_;
  int file_ = -1;
  struct stat status_ {};
};

}  // namespace octavo
