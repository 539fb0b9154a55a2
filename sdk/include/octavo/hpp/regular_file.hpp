// octavo/hpp/regular_file.hpp: files that a program is given, where a FIFO would wait for a writer,
// a device act or never end, and a name lead to another file a moment later.
#ifndef OCTAVO_HPP_REGULAR_FILE_HPP
#define OCTAVO_HPP_REGULAR_FILE_HPP

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

namespace octavo {
inline namespace hpp {

// A regular file, opened for reading once. Its size is that of this moment.
class RegularFile {
 public:
  // Closed, with a problem, where there is none that can be read.
  explicit RegularFile(const std::string &path) {
    struct stat status {};
    // Looked at first: a device may act on being opened.
    if (::stat(path.c_str(), &status) != 0) fail();
    if (!problem_.empty() || !is_regular(status)) return;
    file_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (file_ < 0 || ::fstat(file_, &status) != 0) fail();
    if (is_open() && is_regular(status)) size_ = static_cast<uint64_t>(status.st_size);
  }
  ~RegularFile() { close(); }
  RegularFile(const RegularFile &) = delete;
  RegularFile &operator=(const RegularFile &) = delete;

  bool is_open() const { return file_ >= 0; }
  // As "found ..." of a message.
  const std::string &problem() const { return problem_; }
  uint64_t size() const { return size_; }

  // How many bytes are there; fewer than asked for at the end of the file only. None: see
  // problem().
  std::optional<size_t> read_at(uint64_t offset, void *to, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
      const ssize_t got = ::pread(file_, static_cast<char *>(to) + done, bytes - done,
                                  static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail();
      if (got < 0) return {};
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

  // All of it. None, with a problem, for more than `most` bytes.
  std::optional<std::string> text(uint64_t most) {
    if (size_ > most)
      problem_ = "a file of " + std::to_string(size_) + " bytes, where at most " +
                 std::to_string(most) + " are read";
    if (!is_open() || size_ > most) return {};
    std::string text(static_cast<size_t>(size_), '\0');
    const std::optional<size_t> got = read_at(0, text.data(), text.size());
    if (!got) return {};
    text.resize(*got);
    return text;
  }

 private:
  void fail() {
    problem_ = std::string("no file that can be read: ") + std::strerror(errno);
    close();
  }
  bool is_regular(const struct stat &status) {
    if (S_ISREG(status.st_mode)) return true;
    problem_ = S_ISDIR(status.st_mode)    ? "a directory"
               : S_ISFIFO(status.st_mode) ? "a FIFO"
                                          : "no regular file";
    close();
    return false;
  }
  void close() {
    if (file_ >= 0) ::close(std::exchange(file_, -1));
  }

  int file_ = -1;
  uint64_t size_ = 0;
  std::string problem_;
};

}  // namespace hpp
}  // namespace octavo

#endif
