// Plain calls of the system, in the order that a crash between any two of them permits.
#include "sdk/src/file/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "octavo/hpp/size_signal.hpp"
#include "sdk/src/base/descriptor.h"
#include "sdk/src/base/text.h"

namespace octavo {

AtomicFile::AtomicFile(const std::string &path, mode_t mode) : path_(path) {
  static std::atomic<uint64_t> number{0};
  sigset_t held;
  sigemptyset(&held);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&held, signal);
  pthread_sigmask(SIG_BLOCK, &held, &outer_);
  name_ = concat(path, ".tmp.", getpid(), ".", number++);
  unlink(name_.c_str());  // of a process with this number that was killed
  file_ = open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) ::close(file_);
  if (!name_.empty()) unlink(name_.c_str());
  pthread_sigmask(SIG_SETMASK, &outer_, nullptr);
}

namespace {

// Calls put(next, bytes) until everything is written.
template <typename Put>
bool write_all(const void *from, uint64_t bytes, Put put) {
  const HeldSizeSignal held;
  const char *next = static_cast<const char *>(from);
  while (bytes > 0) {
    const ssize_t written = put(next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0) return false;
    next += written;
    bytes -= static_cast<uint64_t>(written);
  }
  return true;
}

}  // namespace

bool AtomicFile::write(const void *from, uint64_t bytes) {
  return write_all(from, bytes,
                   [&](const char *next, uint64_t left) { return ::write(file_, next, left); });
}

bool AtomicFile::write_at(uint64_t offset, const void *from, uint64_t bytes) const {
  const char *first = static_cast<const char *>(from);
  return write_all(from, bytes, [&](const char *next, uint64_t left) {
    return pwrite(file_, next, left, static_cast<off_t>(offset) + (next - first));
  });
}

bool AtomicFile::close() {
  return ::close(std::exchange(file_, -1)) == 0;
}

bool AtomicFile::commit() {
  if (std::rename(name_.c_str(), path_.c_str()) != 0) return false;
  name_.clear();
  return true;
}

// EINVAL: a file system whose directories have nothing to write.
bool sync_parent_directory(const std::string &path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const Descriptor directory(
      open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return directory.get() >= 0 && (fsync(directory.get()) == 0 || errno == EINVAL);
}

}  // namespace octavo
