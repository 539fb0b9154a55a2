// One descriptor, pread only.
#include "elf_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace octavo {
namespace {

// Of what can be opened: sockets cannot.
const char *kind_of_file(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  return S_ISFIFO(mode) ? "a FIFO" : "a device";
}

}  // namespace

std::optional<ElfFile> ElfFile::open(const std::string &path, std::string *problem) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) {
    *problem = errno == ENXIO ? "expected a regular file, found a socket or a device"
                              : "it cannot be read; check its permissions";
    return std::nullopt;
  }
  struct stat st {};
  const bool is_known = fstat(fd, &st) == 0;
  if (!is_known || !S_ISREG(st.st_mode)) {
    *problem = is_known ? std::string("expected a regular file, found ") + kind_of_file(st.st_mode)
                        : "it cannot be inspected";
    close(fd);
    return std::nullopt;
  }
  return ElfFile(fd, static_cast<uint64_t>(st.st_size));
}

ElfFile::ElfFile(ElfFile &&other) noexcept
    : fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

ElfFile::~ElfFile() {
  if (fd_ >= 0) close(fd_);
}

bool ElfFile::read(uint64_t offset, void *out, uint64_t bytes) const {
  if (!holds(offset, bytes)) return false;
  auto *to = static_cast<char *>(out);
  while (bytes > 0) {
    const ssize_t got = pread(fd_, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
  return true;
}

}  // namespace octavo
