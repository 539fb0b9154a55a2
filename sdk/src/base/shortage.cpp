// The numbers and words that mean a shortage, each with what helps.
#include "sdk/src/base/shortage.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <new>

namespace octavo {
namespace {

struct Cause {
  int error;
  const char *remedy;
};

// What helps, by the error; see open(2), mmap(2), posix_spawn(3) for what each of them means.
constexpr std::array kCauses = {
    Cause{EMFILE, "close files, or raise this process's limit of open files (ulimit -n)"},
    Cause{ENFILE, "end processes that hold many files, or raise fs.file-max"},
    Cause{ENOMEM, "free memory, or raise the limit on it (ulimit -v, the container's memory)"},
    Cause{ENOBUFS, "free memory, and try again"},
    Cause{EAGAIN, "end processes, or raise the limit on their number (ulimit -u, pids.max)"},
    Cause{EINTR, "try again"},
    Cause{ETIMEDOUT, "try again when the file system answers"},
    Cause{EIO, "check the disk or the network that holds the file"},
    Cause{ENOSPC, "free space on the disk"},
    Cause{EPERM, "permit the call in the filter of this sandbox (seccomp), or run outside of it"},
    Cause{ENOSYS, "permit the call in the filter of this sandbox (seccomp), or run outside of it"}};

const Cause *cause_of(int error) {
  for (const Cause &c : kCauses)
    if (c.error == error) return &c;
  return nullptr;
}

}  // namespace

Shortage::Shortage(const std::string &what, int error, Stage stage)
    : Shortage(what + ": " + std::strerror(error), remedy_of(error, "try again"), stage) {}

const char *remedy_of(int error, const char *otherwise) {
  const Cause *cause = cause_of(error);
  return cause == nullptr ? otherwise : cause->remedy;
}

std::string Shortage::message() const {
  return verdict_.text + "; " + verdict_.evidence + "; " + verdict_.remedy.text;
}

bool is_shortage(int error) {
  return cause_of(error) != nullptr;
}

bool names_shortage(std::string_view words) {
  for (const int error : {EMFILE, ENFILE, ENOMEM, ENOBUFS, EAGAIN, EIO})
    if (words.find(std::string(": ") + std::strerror(error)) != std::string_view::npos) return true;
  // glibc's words without a number; a library that wants static TLS cannot have it later either.
  if (words.find("static TLS") != std::string_view::npos) return false;
  for (const char *part : {"failed to map segment", "cannot create ", "cannot allocate ",
                           "cannot extend ", "out of memory"})
    if (words.find(part) != std::string_view::npos) return true;
  return false;
}

void pass_resource(octavo_status status, const std::string &who, Stage stage) {
  if (status == OCTAVO_RESOURCE)
    throw Shortage(who + ": memory or another resource is short (OCTAVO_RESOURCE)",
                   "see the messages of the plugin before this one", stage);
}

void pass_shortage(const std::string &what, int error) {
  if (is_shortage(error)) throw Shortage(what, error);
}

std::ifstream open_lines(const std::string &path) {
  errno = 0;
  std::ifstream file(path);
  if (file.bad()) throw std::bad_alloc();
  if (!file) {
    pass_shortage(path + ": cannot be read", errno);
    return file;
  }
  file.exceptions(std::ios::badbit);
  return file;
}

}  // namespace octavo
