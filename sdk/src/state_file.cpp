// Writing: a temporary file beside the target, fsync, rename, fsync of the directory.
#include "state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "failure.h"

namespace octavo {
namespace {

constexpr const char *kDomain = "octavo.state";
constexpr uint64_t kMost = uint64_t{1}
                           << 30;  // bytes of one system call; the kernel's limit is 2^31

[[noreturn]] void fail(const std::string &path, const char *expected, int reason,
                       const char *remedy) {
  throw Failure(
      OCTAVO_RESOURCE, kDomain,
      path + ": expected " + expected + ", found: " + std::strerror(reason) + "; " + remedy);
}

constexpr const char *kWritable = "a file that can be written";
constexpr const char *kFreeSpace = "free space, or choose a directory of another disk";
constexpr const char *kReadable = "a file that can be read";
constexpr const char *kCheckPath = "check the path and its permissions";

// A file that is being written; without commit it goes away.
class Draft {
 public:
  explicit Draft(const std::string &path) : path_(path) {
    static std::atomic<uint64_t> number{0};
    temporary_ = path + ".tmp." + std::to_string(getpid()) + "." + std::to_string(number++);
    unlink(temporary_.c_str());  // of a process with this number that was killed
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0) fail(temporary_, "a file that can be created", errno, kCheckPath);
  }
  ~Draft() {
    if (file_ >= 0) close(file_);
    if (!committed_) unlink(temporary_.c_str());
  }
  Draft(const Draft &) = delete;
  Draft &operator=(const Draft &) = delete;

  void write(uint64_t offset, const void *from, uint64_t bytes) {
    const char *next = static_cast<const char *>(from);
    while (bytes > 0) {
      const ssize_t written =
          pwrite(file_, next, std::min(bytes, kMost), static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail(temporary_, kWritable, written < 0 ? errno : ENOSPC, kFreeSpace);
      next += written;
      offset += static_cast<uint64_t>(written);
      bytes -= static_cast<uint64_t>(written);
    }
  }

  void commit() {
    if (fsync(file_) != 0) fail(temporary_, kWritable, errno, kFreeSpace);
    const int closed = close(file_);
    file_ = -1;
    if (closed != 0) fail(temporary_, kWritable, errno, kFreeSpace);
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0)
      fail(path_, "a name that a file can take", errno, kCheckPath);
    committed_ = true;
    // The name is on disk when the directory is.
    const std::string parent = std::filesystem::path(path_).parent_path().string();
    const int directory =
        open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool synced = directory >= 0 && (fsync(directory) == 0 || errno == EINVAL);
    const int reason = errno;
    if (directory >= 0) close(directory);
    if (!synced) fail(path_, "a directory that can be written to disk", reason, kCheckPath);
  }

 private:
  std::string path_;
  std::string temporary_;
  int file_ = -1;
  bool committed_ = false;
};

}  // namespace

void write_state_file(const std::string &path, const StateHeader &header,
                      const std::map<std::string, const void *> &data) {
  const std::string head = write_header(header, path);
  Draft draft(path);
  draft.write(0, head.data(), head.size());
  for (const auto &[name, t] : header.tensors)
    draft.write(head.size() + t.begin, data.at(name), t.end - t.begin);
  draft.commit();
}

StateFile::StateFile(const std::string &path) : path_(path) {
  // Without O_NONBLOCK a named pipe would wait for a writer.
  file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) fail(path, kReadable, errno, kCheckPath);
  try {
    read_header();
  } catch (...) {
    close(file_);
    throw;
  }
}

StateFile::~StateFile() {
  close(file_);
}

void StateFile::read_header() {
  const auto malformed = [&](const std::string &text) {
    throw Failure(OCTAVO_INVALID, kDomain,
                  path_ + ": " + text + "; the file is damaged: restore it");
  };
  struct stat st {};
  if (fstat(file_, &st) != 0) fail(path_, kReadable, errno, kCheckPath);
  if (!S_ISREG(st.st_mode)) malformed("expected a regular file, found another kind");
  const auto size = static_cast<uint64_t>(st.st_size);
  unsigned char prefix[8];
  if (size < sizeof(prefix)) malformed("expected at least 8 bytes, found " + std::to_string(size));
  read_at(0, prefix, sizeof(prefix));
  uint64_t length = 0;
  for (size_t i = 0; i < sizeof(prefix); ++i) length |= uint64_t{prefix[i]} << (8 * i);
  const uint64_t most = std::min(kMaxHeaderBytes, size - sizeof(prefix));
  if (length > most)
    malformed("expected a header of at most " + std::to_string(most) +
              " bytes, found a length of " + std::to_string(length));
  std::string json(length, '\0');
  read_at(sizeof(prefix), json.data(), length);
  data_start_ = sizeof(prefix) + length;
  header_ = parse_header(json, size - data_start_, path_);
}

void StateFile::read(const StateTensor &tensor, void *to) const {
  read_at(data_start_ + tensor.begin, to, tensor.end - tensor.begin);
}

void StateFile::read_at(uint64_t offset, void *to, uint64_t bytes) const {
  char *next = static_cast<char *>(to);
  while (bytes > 0) {
    const ssize_t got = pread(file_, next, std::min(bytes, kMost), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, kReadable, errno, kCheckPath);
    if (got == 0)
      throw Failure(OCTAVO_RESOURCE, kDomain,
                    path_ + ": expected " + std::to_string(bytes) + " more bytes, found the end; " +
                        "the file became shorter while it was read: load again");
    next += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
}

}  // namespace octavo
