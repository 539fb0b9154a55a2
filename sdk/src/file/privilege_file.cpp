// Reads with pread, so that reading twice gives the same bytes.
#include "sdk/src/file/privilege_file.h"

#include <fcntl.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/shortage.h"

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

CheckedFile::CheckedFile(const std::string &path, const char *domain)
    : path_(path), domain_(domain), file_(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (file_.get() < 0 || fstat(file_.get(), &status_) != 0) unreadable(errno);
  if (!S_ISREG(status_.st_mode))
    throw Failure(OCTAVO_INVALID, domain, path, ": expected a file, found ",
                  S_ISDIR(status_.st_mode) ? "a directory" : "a device, pipe or socket");
}

void CheckedFile::unreadable(int error) const {
  pass_shortage(path_ + ": cannot be read", error);
  throw Failure(OCTAVO_INVALID, domain_, path_, ": cannot be read: ", std::strerror(error),
                "; check the path and its permissions");
}

bool CheckedFile::is(const struct stat &other) const {
  return other.st_dev == status_.st_dev && other.st_ino == status_.st_ino;
}

bool CheckedFile::unchanged() const {
  struct stat now {};
  return fstat(file_.get(), &now) == 0 && now.st_size == status_.st_size &&
         same_time(now.st_mtim, status_.st_mtim) && same_time(now.st_ctim, status_.st_ctim);
}

std::string CheckedFile::read(size_t most) const {
  // Room for the size of when it was opened, and one byte more, to see that it ends there.
  std::string text(std::min(most, static_cast<size_t>(status_.st_size)) + 1, '\0');
  size_t size = 0;
  for (;;) {
    const ssize_t got =
        read_at(file_.get(), text.data() + size, text.size() - size, static_cast<off_t>(size));
    if (got < 0) unreadable(errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
    if (size > most)
      throw Failure(OCTAVO_INVALID, domain_, path_, ": expected at most ", most >> 10,
                    " KiB, found a file of ", status_.st_size, " bytes");
    // It grew, or its size was not known, as in /proc.
    if (size == text.size()) text.resize(std::min(most + 1, 2 * size + 4096));
  }
  text.resize(size);
  return text;
}

std::string CheckedFile::sha256() const {
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  std::vector<unsigned char> buffer(1 << 16);  // a thread may have a stack of that size
  off_t offset = 0;
  ssize_t got = 0;
  while ((got = read_at(file_.get(), buffer.data(), buffer.size(), offset)) > 0) {
    crypto_hash_sha256_update(&state, buffer.data(), static_cast<unsigned long long>(got));
    offset += got;
  }
  if (got < 0) unreadable(errno);
  unsigned char hash[crypto_hash_sha256_BYTES];
  crypto_hash_sha256_final(&state, hash);
  return hex_of(hash);
}

static_assert(kSha256Bytes == crypto_hash_sha256_BYTES);

std::string hex_of(const unsigned char (&hash)[kSha256Bytes]) {
  char hex[kSha256Digits + 1];
  return sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
}

std::string sha256_of(std::string_view bytes) {
  unsigned char hash[kSha256Bytes];
  crypto_hash_sha256(hash, reinterpret_cast<const unsigned char *>(bytes.data()), bytes.size());
  return hex_of(hash);
}

bool is_sha256(std::string_view text) {
  return text.size() == kSha256Digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace octavo
