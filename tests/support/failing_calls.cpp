// One wrapper a function; the linker sends calls to it (--wrap). tests/sdk/CMakeLists.txt reads the
// names from the lines that begin with WRAP.
#include "tests/support/failing_calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace octavo::test {
namespace {

thread_local FailingCall *innermost = nullptr;

bool fails(const char *function, long *returned) {
  for (FailingCall *f = innermost; f != nullptr; f = f->outer())
    if (f->meets(function, returned)) return true;
  return false;
}

template <typename T>
T as(long value) {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<T>(value);
  else
    return static_cast<T>(value);
}

}  // namespace

FailingCall::FailingCall(const char *function, int error, int first, int count, long returned)
    : function_(function),
      error_(error),
      first_(first),
      count_(count),
      returned_(returned),
      outer_(innermost) {
  innermost = this;
}

FailingCall::~FailingCall() {
  innermost = outer_;
}

bool FailingCall::meets(const std::string &function, long *returned) {
  if (function != function_) return false;
  ++calls_;
  if (calls_ < first_ || calls_ >= first_ + count_) return false;
  errno = error_;
  *returned = returned_;
  return true;
}

}  // namespace octavo::test

#define WRAP(type, name, parameters, arguments)                                         \
  extern "C" type __real_##name parameters;                                             \
  extern "C" type __wrap_##name parameters;                                             \
  extern "C" type __wrap_##name parameters {                                            \
    long returned = 0;                                                                  \
    if (octavo::test::fails(#name, &returned)) return octavo::test::as<type>(returned); \
    return __real_##name arguments;                                                     \
  }

// clang-format off
WRAP(int, open, (const char *path, int flags, unsigned mode), (path, flags, mode))
WRAP(DIR *, opendir, (const char *path), (path))
WRAP(dirent *, readdir, (DIR *from), (from))
WRAP(int, openat, (int at, const char *path, int flags, unsigned mode), (at, path, flags, mode))
WRAP(int, fstat, (int file, struct stat *to), (file, to))
WRAP(int, stat, (const char *path, struct stat *to), (path, to))
WRAP(int, lstat, (const char *path, struct stat *to), (path, to))
WRAP(ssize_t, pread, (int file, void *to, size_t bytes, off_t at), (file, to, bytes, at))
WRAP(ssize_t, read, (int file, void *to, size_t bytes), (file, to, bytes))
WRAP(ssize_t, write, (int file, const void *from, size_t bytes), (file, from, bytes))
WRAP(ssize_t, pwrite, (int file, const void *from, size_t bytes, off_t at), (file, from, bytes, at))
WRAP(int, flock, (int file, int operation), (file, operation))
WRAP(int, ftruncate, (int file, off_t bytes), (file, bytes))
WRAP(ssize_t, readlinkat, (int at, const char *path, char *to, size_t bytes), (at, path, to, bytes))
WRAP(int, fchmod, (int file, mode_t mode), (file, mode))
WRAP(int, fsync, (int file), (file))
WRAP(int, rename, (const char *from, const char *to), (from, to))
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(void *, mmap, (void *at, size_t bytes, int mode, int flags, int file, off_t from), (at, bytes, mode, flags, file, from))
WRAP(int, pipe2, (int *ends, int flags), (ends, flags))
WRAP(int, fcntl, (int file, int command, long argument), (file, command, argument))
WRAP(int, poll, (pollfd *of, nfds_t count, int ms), (of, count, ms))
WRAP(pid_t, waitpid, (pid_t pid, int *status, int options), (pid, status, options))
WRAP(int, waitid, (idtype_t kind, id_t id, siginfo_t *info, int options), (kind, id, info, options))
WRAP(long, syscall, (long number, long a, long b, long c, long d, long e, long f), (number, a, b, c, d, e, f))
WRAP(int, dladdr, (const void *address, Dl_info *info), (address, info))
WRAP(int, dlinfo, (void *library, int request, void *to), (library, request, to))
WRAP(size_t, confstr, (int name, char *to, size_t bytes), (name, to, bytes))
WRAP(unsigned long, getauxval, (unsigned long type), (type))
WRAP(int, access, (const char *path, int mode), (path, mode))
WRAP(int, close, (int file), (file))
