// flock: the system frees it when the program ends, however it ends. The file stays, since a lock
// on a file that was removed would exclude nobody.
#include "host_adapters/standalone/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "host_adapters/standalone/error.h"

namespace octavo::standalone {
namespace {

std::string content_of(int file) {
  char text[512];
  const ssize_t got = pread(file, text, sizeof text, 0);
  std::string content(text, got > 0 ? static_cast<size_t>(got) : 0);
  for (char &c : content) c = c == '\n' ? ' ' : c;
  return content.empty() ? "a process that has not yet named itself" : content;
}

}  // namespace

DirectoryLock::DirectoryLock(const std::string &option, const std::string &directory) {
  const std::string path = directory + "/lock";
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  expect(file_ >= 0, option + " " + path, "a file that can be written", std::strerror(errno),
         "choose another " + option + ", or change the permissions");
  const bool is_locked = flock(file_, LOCK_EX | LOCK_NB) == 0;
  const int reason = errno;
  const std::string holder = is_locked ? "" : content_of(file_);
  if (!is_locked) close(file_);
  expect(is_locked || reason != EWOULDBLOCK, option + " " + directory,
         "a directory that no other run writes", "a run that does: " + holder,
         "choose another " + option + ", or wait until that process has ended");
  expect(is_locked, option + " " + directory, "a file system with locks", std::strerror(reason),
         "choose a directory of another file system");
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const std::string text = "process " + std::to_string(getpid()) + " on host " + host + "\n";
  const bool is_written = ftruncate(file_, 0) == 0 && pwrite(file_, text.data(), text.size(), 0) ==
                                                          static_cast<ssize_t>(text.size());
  const int error = errno;
  if (!is_written) close(file_);
  expect(is_written, option + " " + path, "a file that can be written", std::strerror(error),
         "free space");
}

DirectoryLock::~DirectoryLock() {
  if (file_ >= 0) close(file_);
}

}  // namespace octavo::standalone
