// Calls that a signal interrupts are made again where they may be.
#include "sdk/src/base/system_call.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "sdk/src/base/resource_unavailable.h"

namespace octavo {

Descriptor open_path(const std::string &path, int flags, int *error, int at,
                     const std::string &shown) {
  Descriptor file(at == AT_FDCWD ? open(path.c_str(), flags | O_CLOEXEC, 0)
                                 : openat(at, path.c_str(), flags | O_CLOEXEC, 0));
  *error = file.get() < 0 ? errno : 0;
  if (*error != 0)
    pass_shortage((shown.empty() ? path : shown) + ": cannot be read", "open", *error);
  return file;
}

int find_status(const std::string &path, struct stat *to) {
  if (stat(path.c_str(), to) == 0) return 0;
  const int error = errno;
  pass_shortage(path + ": cannot be inspected", "stat", error);
  return error;
}

bool is_regular_file(const std::string &path) {
  struct stat found {};
  return find_status(path, &found) == 0 && S_ISREG(found.st_mode);
}

struct stat status_of(const Descriptor &file, const std::string &path) {
  struct stat found {};
  if (fstat(file.get(), &found) != 0)
    throw ResourceUnavailable(path + ": cannot be inspected", "fstat", errno);
  return found;
}

size_t read_at(const Descriptor &file, const std::string &path, void *to, size_t bytes,
               uint64_t offset) {
  size_t size = 0;
  while (size < bytes) {
    const ssize_t got = pread(file.get(), static_cast<char *>(to) + size, bytes - size,
                              static_cast<off_t>(offset + size));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw ResourceUnavailable(path + ": cannot be read", "pread", errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  return size;
}

std::string resolved_path(const std::string &path, int *error) {
  const std::unique_ptr<char, void (*)(void *)> found(realpath(path.c_str(), nullptr), std::free);
  *error = found == nullptr ? errno : 0;
  if (*error != 0) pass_shortage(path + ": cannot be found", "realpath", *error);
  return found == nullptr ? std::string() : found.get();
}

}  // namespace octavo
