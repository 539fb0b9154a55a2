// setrlimit, and an end together with the caller.
#include "limits.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// A crash must end the helper by its signal, as it does without a sanitizer. Visible, since the
// sanitizer's own library looks these functions up.
#define OCTAVO_VISIBLE __attribute__((visibility("default")))
#define OCTAVO_PLAIN_SIGNALS \
  "handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigill=0:handle_sigfpe=0:detect_leaks=0"
extern "C" OCTAVO_VISIBLE const char *__asan_default_options();
extern "C" OCTAVO_VISIBLE const char *__tsan_default_options();
extern "C" const char *__asan_default_options() {
  return OCTAVO_PLAIN_SIGNALS;
}
extern "C" const char *__tsan_default_options() {
  return OCTAVO_PLAIN_SIGNALS;
}
#endif

namespace octavo::probe {
namespace {

void limit(__rlimit_resource_t resource, uint64_t value) {
  rlimit now{};
  if (getrlimit(resource, &now) != 0) return;
  const rlim_t wanted = std::min<rlim_t>(value, now.rlim_max);
  const rlimit next{wanted, wanted};
  setrlimit(resource, &next);
}

// All tasks of the machine: the kernel counts the user's, whatever their number is.
uint64_t running_tasks() {
  unsigned long tasks = 0;
  if (std::FILE *file = std::fopen("/proc/loadavg", "re")) {
    if (std::fscanf(file, "%*s %*s %*s %*u/%lu", &tasks) != 1) tasks = 0;
    std::fclose(file);
  }
  return tasks;
}

}  // namespace

void set_limits(const std::string &library, int timeout_ms) {
  // Dies with the thread that waits for it. Dumps of it are of no use to anyone.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_DUMPABLE, 0);
  limit(RLIMIT_CORE, 0);
#if !defined(OCTAVO_COVERAGE)  // which writes what it counted at the end
  // An emulator of the processor, as qemu, copies /proc/self/maps to a file in memory.
  limit(RLIMIT_FSIZE, uint64_t{256} << 10);
#endif
  limit(RLIMIT_CPU, static_cast<uint64_t>(timeout_ms) / 1000 + 2);
  if (const uint64_t tasks = running_tasks(); tasks != 0) limit(RLIMIT_NPROC, tasks + 256);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // Sanitizers reserve terabytes of addresses for themselves.
  struct stat st {};
  const uint64_t bytes = stat(library.c_str(), &st) == 0 ? static_cast<uint64_t>(st.st_size) : 0;
  limit(RLIMIT_AS, (uint64_t{4} << 30) + 4 * bytes);
#else
  (void)library;
#endif
}

void close_descriptors(int first) {
  if (syscall(SYS_close_range, first, ~0u, 0) == 0) return;
  const long most = std::min<long>(sysconf(_SC_OPEN_MAX), 4096);
  for (int fd = first; fd < most; ++fd) close(fd);
}

}  // namespace octavo::probe
