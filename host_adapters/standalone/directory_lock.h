// One run at a time writes a directory of checkpoints: a lock that ends with the program.
#pragma once

#include <string>

namespace octavo::standalone {

class DirectoryLock {
 public:
  // Takes the lock on DIR/lock and writes process and host into it. Throws UserError that names
  // those of the holder when another program has it, as the value of `option`.
  DirectoryLock(const std::string &option, const std::string &directory);
  DirectoryLock(DirectoryLock &&other) noexcept : file_(other.file_) { other.file_ = -1; }
  DirectoryLock &operator=(DirectoryLock &&) = delete;
  ~DirectoryLock();

 private:
  int file_ = -1;
};

}  // namespace octavo::standalone
