// Reads with pread, so that reading twice gives the same bytes.
#include "sdk/src/file/privilege_file.h"

#include <fcntl.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/base/system_call.h"
#include "sdk/src/base/text.h"

namespace octavo {
namespace {

const char *kind_of_file(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISFIFO(mode) ? "a FIFO" : "a device";
}

// *problem says what is wrong with what is there, if anything.
bool is_regular(const struct stat &status, std::string *problem) {
  if (S_ISREG(status.st_mode)) return true;
  *problem = std::string("expected a regular file, found ") + kind_of_file(status.st_mode);
  return false;
}

// Whoever gave the path reads the reason after it.
Descriptor open_or_fail(const std::string &path, const char *domain, struct stat *status) {
  std::string problem;
  Descriptor file = open_regular(path, status, &problem);
  if (file.get() < 0) throw Failure(OCTAVO_INVALID, domain, path, ": ", problem);
  return file;
}

bool same_time(const timespec &a, const timespec &b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

}  // namespace

Descriptor open_regular(const std::string &path, struct stat *status, std::string *problem) {
  // Looked at first: a device may act on being opened.
  int error = find_status(path, status);
  if (error == 0 && !is_regular(*status, problem)) return Descriptor();
  Descriptor file;
  if (error == 0) file = open_path(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, &error);
  if (error != 0) {
    *problem =
        concat("cannot be read: ", std::strerror(error), "; check the path and its permissions");
    return Descriptor();
  }
  *status = status_of(file, path);
  // GCOVR_EXCL_BR_START: another file has come in between
  if (!is_regular(*status, problem)) return Descriptor();
  // GCOVR_EXCL_BR_STOP
  return file;
}

CheckedFile::CheckedFile(const std::string &path, const char *domain)
    : path_(path), domain_(domain), file_(open_or_fail(path, domain, &status_)) {}

CheckedFile::CheckedFile(const std::string &path, Descriptor file, const char *domain)
    : path_(path), domain_(domain), status_(status_of(file, path)), file_(std::move(file)) {
  std::string problem;
  if (!is_regular(status_, &problem)) throw Failure(OCTAVO_INVALID, domain, path, ": ", problem);
}

Descriptor CheckedFile::another(int least) const {
  Descriptor file(fcntl(file_.get(), F_DUPFD_CLOEXEC, least));
  if (file.get() < 0) throw ResourceUnavailable(path_ + ": cannot be kept open", "fcntl", errno);
  return file;
}

bool CheckedFile::is(const struct stat &other) const {
  return other.st_dev == status_.st_dev && other.st_ino == status_.st_ino;
}

bool CheckedFile::unchanged() const {
  const struct stat now = status_of(file_, path_);
  return now.st_size == status_.st_size && same_time(now.st_mtim, status_.st_mtim) &&
         same_time(now.st_ctim, status_.st_ctim);
}

size_t CheckedFile::read_at(void *to, size_t bytes, uint64_t offset) const {
  return octavo::read_at(file_, path_, to, bytes, offset);
}

std::string CheckedFile::read(size_t most) const {
  // Room for the size of when it was opened, and one byte more, to see that it ends there.
  std::string text(std::min(most, static_cast<size_t>(status_.st_size)) + 1, '\0');
  size_t size = 0;
  for (;;) {
    size += read_at(text.data() + size, text.size() - size, size);
    if (size < text.size()) break;
    if (size > most)
      throw Failure(OCTAVO_INVALID, domain_, path_, ": expected at most ", most >> 10,
                    " KiB, found a file of ", status_.st_size, " bytes");
    // It grew, or its size was not known, as in /proc.
    text.resize(std::min(most + 1, 2 * size + 4096));
  }
  text.resize(size);
  return text;
}

std::string CheckedFile::sha256() const {
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  std::vector<unsigned char> buffer(1 << 16);  // a thread may have a stack of that size
  uint64_t offset = 0;
  while (const size_t got = read_at(buffer.data(), buffer.size(), offset)) {
    crypto_hash_sha256_update(&state, buffer.data(), got);
    offset += got;
  }
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
