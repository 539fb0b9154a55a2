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
#include <utility>

#include "sdk/src/base/descriptor.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/utf8.h"

namespace octavo {
namespace {

using Clock = std::chrono::steady_clock;

// Of what the helper writes to its standard error, the end is kept: bytes, and lines that are
// shown.
constexpr size_t kMaxHeard = 2048;
constexpr size_t kMostLines = 5;

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
  Helper() = default;
  Helper(const Helper &) = delete;
  Helper &operator=(const Helper &) = delete;
  ~Helper() {
    int ignored = 0;
    if (pid_ > 0) end(&ignored);
  }

  SpawnedProbe run(const std::vector<std::string> &arguments, int timeout_ms,
                   const CheckedFile *library) {
    deadline_ = Clock::now() + std::chrono::milliseconds(timeout_ms);
    if (const int error = start(arguments, library); error != 0) {
      result_.error = error;
      result_.fault = concat(arguments[0], " cannot be started: ", std::strerror(error), " (",
                             failed_call_, ", errno ", error, ")");
      return std::move(result_);
    }
    result_.started = true;
    const bool readable = read_answer();
    const bool ended = readable && wait_for_end();
    int error = 0;
    const int status = end(&error);
    if (error != 0) fail_watch("waitpid", error);
    if (!readable)
      result_.fault = "sent a malformed answer: " + reader_.problem();
    else if (!ended)
      result_.fault = concat("did not end within ", timeout_ms, " ms");
    else
      result_.fault = describe_end(status);
    result_.was_short = ended && WIFEXITED(status) && WEXITSTATUS(status) == kProbeShort;
    result_.late = readable && !ended;
    result_.answer = reader_.answer();
    hear();
    result_.said = last_lines();
    return std::move(result_);
  }

 private:
  [[noreturn]] static void fail_watch(const char *call, int error) {
    throw ResourceUnavailable("the process that tries the plugin first cannot be watched", call,
                              error, Stage::kProbe);
  }

  // Reaped already, by a handler of the host.
  bool is_gone(int error) const { return error == ECHILD && kill(pid_, 0) != 0 && errno == ESRCH; }

  // Ends the group and reaps its leader, whose status this is; 0 where the host has reaped it.
  int end(int *error) {
    // The leader is not reaped yet, so its group's number still belongs to it.
    if (kill(-pid_, SIGKILL) != 0) kill(pid_, SIGKILL);
    int status = 0;
    pid_t reaped = 0;
    do reaped = waitpid(pid_, &status, 0);
    while (reaped < 0 && errno == EINTR);
    *error = reaped < 0 ? errno : 0;
    if (is_gone(*error)) *error = 0;
    const bool is_known = std::exchange(pid_, -1) == reaped;
    return is_known ? status : 0;
  }

  int start(const std::vector<std::string> &arguments, const CheckedFile *library) {
    Descriptor write_end, error_end, checked;
    if (library != nullptr) checked = library->another(kProbeLibrary + 1);
    if (const int error = open_pipe(&read_end_, &write_end); error != 0) return error;
    if (const int error = open_pipe(&heard_, &error_end); error != 0) return error;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    int refused = 0;
    for (const int standard : {0, 1})
      refused |= posix_spawn_file_actions_addopen(&actions, standard, "/dev/null", O_RDWR, 0);
    refused |= posix_spawn_file_actions_adddup2(&actions, error_end.get(), 2);
    refused |= posix_spawn_file_actions_adddup2(&actions, write_end.get(), kProbePipe);
    if (library != nullptr)
      refused |= posix_spawn_file_actions_adddup2(&actions, checked.get(), kProbeLibrary);
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
    failed_call_ = "posix_spawn";
    const int error =
        refused != 0 ? ENOMEM  // GCOVR_EXCL_BR_LINE: the C library alone asks for memory there
                     : posix_spawn(&pid_, argv[0], &actions, &attributes, argv.data(), environ);
    if (error != 0) pid_ = -1;
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
  }

  // A pipe whose read end does not block; the write end is above the numbers that the child's own
  // descriptors take.
  static int open_pipe(Descriptor *read_end, Descriptor *write_end) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return errno;
    *read_end = Descriptor(ends[0]);
    *write_end = Descriptor(fcntl(ends[1], F_DUPFD_CLOEXEC, kProbeLibrary + 1));
    close(ends[1]);
    return write_end->get() < 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0 ? errno : 0;
  }

  // Takes what is on its standard error by now: an unread pipe would stop whoever writes much.
  void hear() {
    char bytes[4096];
    for (int rounds = 0; rounds < 64; ++rounds) {
      const ssize_t got = read(heard_.get(), bytes, sizeof(bytes));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return;
      tail_.append(bytes, static_cast<size_t>(got));
      if (tail_.size() > kMaxHeard) tail_.erase(0, tail_.size() - kMaxHeard);
    }
  }

  std::string last_lines() const {
    std::vector<std::string> lines;
    for (const std::string &line : split(tail_, '\n'))
      if (!line.empty()) lines.push_back(plain_text(line, kMaxHeard));
    std::string last;
    for (size_t i = lines.size() - std::min(lines.size(), kMostLines); i < lines.size(); ++i)
      last += (last.empty() ? "" : " | ") + lines[i];
    return last;
  }

  // Whether the helper itself has ended; does not reap.
  bool has_ended() const {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0)
      return info.si_pid == pid_;
    const int error = errno;
    if (is_gone(error)) return true;
    if (error != EINTR) fail_watch("waitid", error);
    return false;
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
      if (errno != EAGAIN) fail_watch("read", errno);
      hear();
      const int left = milliseconds_until(deadline_);
      if (left == 0 || is_last) return true;
      // Whatever it wrote before its end is in the pipe by now; processes that the plugin left
      // running may hold the pipe open without end.
      is_last = has_ended();
      if (is_last) continue;
      wait(left, true);
    }
  }

  // False when time is up. Does not reap.
  bool wait_for_end() {
    while (!has_ended()) {
      const int left = milliseconds_until(deadline_);
      if (left == 0) return false;
      hear();
      wait(left, false);
    }
    return true;
  }

  // Until the helper ends or writes, at most `left` milliseconds. A descriptor of -1 is ignored; a
  // pipe without writers would be ready without end, so it is looked at every few milliseconds.
  void wait(int left, bool for_records) const {
    pollfd ready[2] = {{process_.get(), POLLIN, 0},
                       {for_records ? read_end_.get() : -1, POLLIN, 0}};
    // A kernel without pidfd is asked again every millisecond.
    if (poll(ready, 2, std::min(left, process_.get() >= 0 ? 10 : 1)) < 0 && errno != EINTR)
      fail_watch("poll", errno);
  }

  std::string describe_end(int status) const {
    if (WIFSIGNALED(status))
      return concat("ended by signal ", WTERMSIG(status), " (", signal_name(WTERMSIG(status)), ")");
    const std::string code = concat("ended with exit code ", WEXITSTATUS(status));
    if (!reader_.answer().complete) return code + " before its answer was complete";
    return WEXITSTATUS(status) == 0 ? std::string() : code;
  }

  Clock::time_point deadline_;
  pid_t pid_ = -1;  // while it is not reaped
  const char *failed_call_ = "pipe2 or fcntl";
  Descriptor read_end_;
  Descriptor heard_;
  std::string tail_;    // of its standard error
  Descriptor process_;  // a pidfd, where the kernel has them
  ProbeReader reader_;
  SpawnedProbe result_;
};

}  // namespace

SpawnedProbe spawn_probe(const std::vector<std::string> &arguments, int timeout_ms,
                         const CheckedFile *library) {
  return Helper().run(arguments, timeout_ms, library);
}

}  // namespace octavo
