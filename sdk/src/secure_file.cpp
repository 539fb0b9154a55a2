// Reads with pread, so that reading twice gives the same bytes.
#include "secure_file.h"

#include <fcntl.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "failure.h"

namespace octavo {
namespace {

// pread that goes on after a signal; negative on failure, 0 at the end.
ssize_t read_at(int file, void *to, size_t bytes, off_t offset) {
  ssize_t got = 0;
  do got = pread(file, to, bytes, offset);
  while (got < 0 && errno == EINTR);
  return got;
}

bool same_time(const timespec &a, const timespec &b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

}  // namespace

SecureFile::SecureFile(const std::string &path, const char *domain)
    : path_(path), domain_(domain), file_(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (file_ < 0 || fstat(file_, &status_) != 0) {
    const int reason = errno;
    if (file_ >= 0) close(file_);
    throw Failure(OCTAVO_INVALID, domain,
                  path + ": cannot be read: " + std::strerror(reason) +
                      "; check the path and its permissions");
  }
  if (!S_ISREG(status_.st_mode)) {
    close(file_);
    throw Failure(OCTAVO_INVALID, domain,
                  path + ": expected a file, found " +
                      (S_ISDIR(status_.st_mode) ? "a directory" : "a device, pipe or socket"));
  }
}

SecureFile::~SecureFile() {
  close(file_);
}

bool SecureFile::is(const struct stat &other) const {
  return other.st_dev == status_.st_dev && other.st_ino == status_.st_ino;
}

bool SecureFile::unchanged() const {
  struct stat now {};
  return fstat(file_, &now) == 0 && now.st_size == status_.st_size &&
         same_time(now.st_mtim, status_.st_mtim) && same_time(now.st_ctim, status_.st_ctim);
}

std::string SecureFile::read(size_t most) const {
  // Room for the size of when it was opened, and one byte more, to see that it ends there.
  std::string text(std::min(most, static_cast<size_t>(status_.st_size)) + 1, '\0');
  size_t size = 0;
  for (;;) {
    const ssize_t got =
        read_at(file_, text.data() + size, text.size() - size, static_cast<off_t>(size));
    if (got < 0)
      throw Failure(OCTAVO_INVALID, domain_,
                    path_ + ": cannot be read: " + std::strerror(errno) +
                        "; check the path and its permissions");
    if (got == 0) break;
    size += static_cast<size_t>(got);
    if (size > most)
      throw Failure(OCTAVO_INVALID, domain_,
                    path_ + ": expected at most " + std::to_string(most >> 10) +
                        " KiB, found a file of " + std::to_string(status_.st_size) + " bytes");
    // It grew, or its size was not known, as in /proc.
    if (size == text.size()) text.resize(std::min(most + 1, 2 * size + 4096));
  }
  text.resize(size);
  return text;
}

std::string SecureFile::sha256() const {
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  std::array<unsigned char, 1 << 16> buffer;
  off_t offset = 0;
  ssize_t got = 0;
  while ((got = read_at(file_, buffer.data(), buffer.size(), offset)) > 0) {
    crypto_hash_sha256_update(&state, buffer.data(), static_cast<unsigned long long>(got));
    offset += got;
  }
  if (got < 0) return {};
  unsigned char hash[crypto_hash_sha256_BYTES];
  crypto_hash_sha256_final(&state, hash);
  char hex[2 * sizeof(hash) + 1];
  return sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
}

}  // namespace octavo
