// One descriptor, pread only.
#include "sdk/src/plugin/elf_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "sdk/src/base/shortage.h"

namespace octavo {
namespace {

// Of what can be opened: sockets cannot.
const char *kind_of_file(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  return S_ISFIFO(mode) ? "a FIFO" : "a device";
}

}  // namespace

std::optional<ElfFile> ElfFile::open(const std::string &path, std::string *problem) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (file.get() < 0) {
    pass_shortage(path + ": cannot be read", errno);
    *problem = errno == ENXIO ? "expected a regular file, found a socket or a device"
                              : "it cannot be read; check its permissions";
    return std::nullopt;
  }
  struct stat st {};
  const bool is_known = fstat(file.get(), &st) == 0;
  if (!is_known) pass_shortage(path + ": cannot be inspected", errno);
  if (!is_known || !S_ISREG(st.st_mode)) {
    *problem = is_known ? std::string("expected a regular file, found ") + kind_of_file(st.st_mode)
                        : "it cannot be inspected";
    return std::nullopt;
  }
  return ElfFile(path, std::move(file), static_cast<uint64_t>(st.st_size));
}

bool ElfFile::read(uint64_t offset, void *out, uint64_t bytes) const {
  if (!holds(offset, bytes)) return false;
  auto *to = static_cast<char *>(out);
  while (bytes > 0) {
    const ssize_t got = pread(file_.get(), to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) pass_shortage(path_ + ": cannot be read", errno);
    if (got <= 0) return false;
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
  return true;
}

}  // namespace octavo
