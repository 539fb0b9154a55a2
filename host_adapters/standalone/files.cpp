// Writes to a temporary name in the same directory, then renames.
#include "host_adapters/standalone/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "host_adapters/standalone/error.h"

namespace octavo::standalone {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string &path, int reason) {
  throw UserError(path, "a file that can be written", std::strerror(reason),
                  "free space or choose another directory");
}

// Closes and removes the file unless it was kept.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string &path)
      : path_(path), file_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {}
  ~AtomicFile() {
    if (file_ >= 0) ::close(file_);
    if (!is_kept_) unlink(path_.c_str());
  }
  AtomicFile(const AtomicFile &) = delete;
  AtomicFile &operator=(const AtomicFile &) = delete;

  bool write(const std::string &content) const {
    for (size_t done = 0; done < content.size();) {
      const ssize_t written = ::write(file_, content.data() + done, content.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written == 0) errno = ENOSPC;
      if (written <= 0) return false;
      done += static_cast<size_t>(written);
    }
    return true;
  }
  bool sync() const { return file_ >= 0 && (fsync(file_) == 0 || errno == EINVAL); }
  bool close() { return ::close(std::exchange(file_, -1)) == 0; }
  bool rename_to(const std::string &path) {
    is_kept_ = std::rename(path_.c_str(), path.c_str()) == 0;
    return is_kept_;
  }

 private:
  const std::string path_;
  int file_;
  bool is_kept_ = false;
};

// A name is on disk when its directory is. EINVAL: a directory that has nothing to write.
void sync_parent(const std::string &path) {
  const std::string parent = fs::path(path).parent_path().string();
  const int file = open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool is_synced = file >= 0 && (fsync(file) == 0 || errno == EINVAL);
  const int reason = errno;
  if (file >= 0) close(file);
  if (!is_synced) fail(path, reason);
}

// A name that is not on disk takes all below it along: that of each directory made here is.
void make_directory(const std::string &path, std::error_code &error) {
  std::vector<fs::path> made;
  for (fs::path next = fs::path(path); !next.empty() && !fs::exists(next, error);
       next = next.parent_path())
    made.push_back(next);
  fs::create_directories(path, error);
  if (error) return;
  for (const fs::path &one : made) sync_parent(one.string());
}

}  // namespace

void prepare_directory(const std::string &option, const std::string &directory) {
  std::error_code error;
  expect(!fs::exists(directory, error) || fs::is_directory(directory, error),
         option + " " + directory, "a directory that can be created, or one that exists",
         "a file of this name", "choose another " + option);
  make_directory(directory, error);
  if (!error && access(directory.c_str(), W_OK | X_OK) != 0)
    error = {errno, std::generic_category()};
  expect(!error, option + " " + directory, "a directory that can be created and written to",
         error.message(), "choose another " + option + ", or change the permissions");
}

void write_atomically(const std::string &path, const std::string &content) {
  AtomicFile draft(path + ".tmp." + std::to_string(getpid()));
  if (!draft.write(content) || !draft.sync() || !draft.close() || !draft.rename_to(path))
    fail(path, errno);
  sync_parent(path);
}

void make_directory(const std::string &path) {
  std::error_code error;
  make_directory(path, error);
  if (error) fail(path, error.value());
}

uint64_t fingerprint(const void *data, size_t bytes) {
  const auto *next = static_cast<const unsigned char *>(data);
  uint64_t hash = bytes;
  for (size_t left = bytes; left > 0;) {
    uint64_t word = 0;
    const size_t count = std::min<size_t>(left, sizeof word);
    std::memcpy(&word, next, count);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;  // odd, so that no two numbers become one
    hash ^= hash >> 32;
    next += count;
    left -= count;
  }
  return hash;
}

bool is_shallow_cbor(const std::string &cbor) {
  constexpr size_t kLevels = 3;
  std::array<uint64_t, kLevels + 1> missing = {1};  // items, of each level
  size_t level = 0, at = 0;
  for (;;) {
    while (missing[level] == 0 && level > 0) --level;
    if (missing[level] == 0) return at == cbor.size();
    --missing[level];
    if (at == cbor.size()) return false;
    const auto head = static_cast<unsigned char>(cbor[at++]);
    const unsigned kind = head >> 5, low = head & 31;
    uint64_t value = low;
    if (low > 27) return false;  // no length
    if (low > 23) {
      const size_t bytes = size_t{1} << (low - 24);
      if (cbor.size() - at < bytes) return false;
      value = 0;
      for (const size_t end = at + bytes; at < end; ++at)
        value = value << 8 | static_cast<unsigned char>(cbor[at]);
    }
    if (kind == 6) return false;  // a tag
    if (kind < 2 || kind == 7) continue;
    if (value > cbor.size() - at) return false;
    if (kind < 4) at += value;  // bytes or text
    if (kind < 4) continue;
    if (level == kLevels) return false;
    missing[++level] = kind == 4 ? value : 2 * value;
  }
}

LineLog::LineLog(const std::string &path) : path_(path) {
  if (path.empty()) return;
  errno = 0;
  out_.open(path, std::ios::binary | std::ios::trunc);
  expect(!!out_, path, "a file that can be written", std::strerror(errno), "choose another --out");
}

void LineLog::write(const std::string &line) {
  if (path_.empty()) return;
  out_ << line + "\n" << std::flush;
  expect(!!out_, path_, "space for one more line", std::strerror(errno),
         "free space on the disk, or choose another --out");
}

}  // namespace octavo::standalone
