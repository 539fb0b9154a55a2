// posix_spawn, since fork copies page tables and is unsafe with threads and CUDA.
#include "sdk/src/probe/probe_spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "sdk/src/base/descriptor.h"

namespace octavo {
namespace {

using Clock = std::chrono::steady_clock;

std::string signal_name(int number) {
  switch (number) {
    case SIGSEGV: return "SIGSEGV";
    case SIGBUS: return "SIGBUS";
    case SIGABRT: return "SIGABRT";
    case SIGILL: return "SIGILL";
    case SIGFPE: return "SIGFPE";
    case SIGTRAP: return "SIGTRAP";
    case SIGKILL: return "SIGKILL";
    case SIGXCPU: return "SIGXCPU";
    case SIGXFSZ: return "SIGXFSZ";
    default: return "see signal(7)";
  }
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::max<int64_t>(0, left));
}

class Helper {
 public:
  SpawnedProbe run(const std::vector<std::string> &arguments, int timeout_ms) {
    deadline_ = Clock::now() + std::chrono::milliseconds(timeout_ms);
    if (const int error = start(arguments); error != 0) {
      result_.fault = arguments[0] + " cannot be started: " + std::strerror(error);
      return std::move(result_);
    }
    result_.started = true;
    const bool readable = read_answer();
    const bool ended = readable && wait_for_end();
    // The leader is not reaped yet, so its group's number still belongs to it.
    kill(-pid_, SIGKILL);
    int status = 0;
    pid_t reaped = 0;
    while ((reaped = waitpid(pid_, &status, 0)) < 0 && errno == EINTR) {
    }
    if (!readable)
      result_.fault = "sent what is no answer: " + reader_.problem();
    else if (!ended)
      result_.fault = concat("did not end within ", timeout_ms, " ms");
    else
      result_.fault = describe_end(reaped == pid_ ? status : 0);
    result_.late = readable && !ended;
    result_.answer = reader_.answer();
    return std::move(result_);
  }

 private:
  int start(const std::vector<std::string> &arguments) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return errno;
    read_end_ = Descriptor(ends[0]);
    // Above the numbers that the child's own descriptors take.
    Descriptor write_end(fcntl(ends[1], F_DUPFD_CLOEXEC, kProbePipe + 1));
    close(ends[1]);
    if (write_end.get() < 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return errno;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (const int standard : {0, 1, 2})
      posix_spawn_file_actions_addopen(&actions, standard, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, write_end.get(), kProbePipe);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    std::vector<char *> argv;
    for (const std::string &a : arguments) argv.push_back(const_cast<char *>(a.c_str()));
    argv.push_back(nullptr);
    const int error = posix_spawn(&pid_, argv[0], &actions, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
  }

  // Whether the helper itself has ended; does not reap.
  bool has_ended() const {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 &&
        errno != EINTR)
      return true;  // reaped by a handler of the host
    return info.si_pid == pid_;
  }

  // Until the pipe has no writer, the helper has ended, or time is up; false: rubbish came.
  bool read_answer() {
    process_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
    char bytes[4096];
    bool is_last = false;
    for (;;) {
      const ssize_t got = read(read_end_.get(), bytes, sizeof(bytes));
      if (got > 0) {
        if (!reader_.feed({bytes, static_cast<size_t>(got)})) return false;
        // Whatever the plugin left running may hold the pipe open.
        if (reader_.answer().complete) return true;
        continue;
      }
      if (got == 0) return true;
      if (errno == EINTR) continue;
      const int left = milliseconds_until(deadline_);
      if (errno != EAGAIN || left == 0 || is_last) return true;
      // Whatever it wrote before its end is in the pipe by now; processes that the plugin left
      // running may hold the pipe open without end.
      is_last = has_ended();
      if (is_last) continue;
      pollfd ready[2] = {{read_end_.get(), POLLIN, 0}, {process_.get(), POLLIN, 0}};
      // A kernel without pidfd is asked again every millisecond.
      poll(ready, process_.get() >= 0 ? 2 : 1, process_.get() >= 0 ? left : 1);
    }
  }

  // False when time is up. Does not reap.
  bool wait_for_end() {
    while (!has_ended()) {
      const int left = milliseconds_until(deadline_);
      if (left == 0) return false;
      pollfd ended{process_.get(), POLLIN, 0};
      poll(&ended, process_.get() >= 0 ? 1 : 0, process_.get() >= 0 ? left : 1);
    }
    return true;
  }

  std::string describe_end(int status) const {
    if (WIFSIGNALED(status))
      return concat("ended by signal ", WTERMSIG(status), " (", signal_name(WTERMSIG(status)), ")");
    const std::string code = concat("ended with exit code ", WEXITSTATUS(status));
    if (!reader_.answer().complete) return code + " before its answer was complete";
    return WEXITSTATUS(status) == 0 ? std::string() : code;
  }

  Clock::time_point deadline_;
  pid_t pid_ = -1;
  Descriptor read_end_;
  Descriptor process_;  // a pidfd, where the kernel has them
  ProbeReader reader_;
  SpawnedProbe result_;
};

}  // namespace

SpawnedProbe spawn_probe(const std::vector<std::string> &arguments, int timeout_ms) {
  return Helper().run(arguments, timeout_ms);
}

}  // namespace octavo
