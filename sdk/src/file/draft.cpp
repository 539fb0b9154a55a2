// Plain calls of the system, in the order that a crash between any two of them permits.
#include "sdk/src/file/draft.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "sdk/src/base/descriptor.h"
#include "sdk/src/base/text.h"

namespace octavo {

Draft::Draft(const std::string &path, mode_t mode) : path_(path) {
  static std::atomic<uint64_t> number{0};
  name_ = concat(path, ".tmp.", getpid(), ".", number++);
  unlink(name_.c_str());  // of a process with this number that was killed
  file_ = open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
}

Draft::~Draft() {
  if (file_ >= 0) ::close(file_);
  if (!name_.empty()) unlink(name_.c_str());
}

bool Draft::write(const void *from, uint64_t bytes) {
  const char *next = static_cast<const char *>(from);
  while (bytes > 0) {
    const ssize_t written = ::write(file_, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0) return false;
    next += written;
    bytes -= static_cast<uint64_t>(written);
  }
  return true;
}

bool Draft::close() {
  return ::close(std::exchange(file_, -1)) == 0;
}

bool Draft::commit() {
  if (std::rename(name_.c_str(), path_.c_str()) != 0) return false;
  name_.clear();
  return true;
}

bool Draft::sync_directory() const {
  const std::string parent = std::filesystem::path(path_).parent_path().string();
  const Descriptor directory(
      open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return directory.get() >= 0 && (fsync(directory.get()) == 0 || errno == EINVAL);
}

}  // namespace octavo
