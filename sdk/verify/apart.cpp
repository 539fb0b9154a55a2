// The child's process group ends with the check, whatever is in it.
#include "apart.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "in_flight.h"

namespace octavo::conformance {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void run_child(const RecordPipe &pipe, pid_t parent,
                            const std::function<Record()> &body) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  dup2(STDERR_FILENO, STDOUT_FILENO);  // stdout is for results
  const Record record = body();
  in_flight().record_error = 0;
  if (!pipe.write(record)) {
    in_flight().record_error = errno;
    _exit(1);
  }
  calling("the destructors that run when the process ends");
  std::exit(0);
}

// Children of this process that still run: what the check's process left behind.
std::vector<pid_t> left_behind() {
  std::ifstream file(text("/proc/self/task/", getpid(), "/children"));
  std::vector<pid_t> found;
  for (pid_t child = 0; file >> child;) found.push_back(child);
  return found;
}

// Ends them all, and those that they leave in turn. How many there were.
int end_left_behind(pid_t group) {
  int count = 0;
  kill(-group, SIGKILL);
  for (int turn = 0; turn < 1000; ++turn) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended < 0 && errno == ECHILD) break;
    if (ended > 0) {
      // A child that ended by itself was left, too, but does no harm.
      count += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 1 : 0;
      continue;
    }
    for (const pid_t child : left_behind()) kill(child, SIGKILL);
    usleep(1000);
  }
  return count;
}

// Waits until the child ends; false when the time is over. Keeps reading, so that it never waits
// for room in the pipe.
bool wait_for(pid_t child, RecordPipe &pipe, double timeout, int *status) {
  const auto end = Clock::now() + std::chrono::duration<double>(timeout);
  bool open = true;
  for (;;) {
    if (open) open = pipe.drain();
    const pid_t ended = waitpid(child, status, WNOHANG);
    if (ended == child) break;
    if (Clock::now() >= end) return false;
    pollfd wanted{pipe.reader(), POLLIN, 0};
    if (open) {
      poll(&wanted, 1, 20);
    } else {
      usleep(500);
    }
  }
  if (open) pipe.drain();
  return true;
}

std::string end_of(int status) {
  if (WIFSIGNALED(status))
    return text("the process ended with signal ", WTERMSIG(status), " (",
                strsignal(WTERMSIG(status)), ")");
  return text("the process ended with exit code ", WEXITSTATUS(status));
}

}  // namespace

void adopt_orphans() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Record run_apart(const std::string &check, double timeout, const std::function<Record()> &body) {
  const auto start = Clock::now();
  RecordPipe pipe;
  in_flight() = InFlight{"", -1, 0, 0, "", 0};
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw Failure(text("fork: ", std::strerror(errno)));
  if (child == 0) {
    pipe.keep_writer();
    run_child(pipe, parent, body);
  }
  setpgid(child, child);
  pipe.keep_reader();
  int status = 0;
  const bool in_time = wait_for(child, pipe, timeout, &status);
  const InFlight now = in_flight();
  const int left = end_left_behind(child) - (in_time ? 0 : 1);  // the child itself was killed, too
  Record record;
  std::string wrong;
  const bool done = pipe.take(child, check, &record, &wrong);
  record.check = check;
  record.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const std::string where = in_flight_text(now);
  const auto fail = [&](const std::string &detail) {
    if (done && record.result.outcome == Outcome::kFail) return;  // its own detail says more
    record.result.outcome = Outcome::kFail;
    record.result.detail = detail;
    record.calling = where;
    const std::string last(now.step, strnlen(now.step, sizeof now.step));
    if (record.result.steps.empty() && !last.empty()) record.result.steps.push_back({last, false});
  };
  if (!in_time) {
    fail(text("still running after ", timeout, " s, in ", where, "; its processes were ended"));
  } else if (WIFSIGNALED(status) || WEXITSTATUS(status) != 0 || !done) {
    if (now.record_error != 0) {
      fail(text(
          "a descriptor that is not the plugin's was closed or replaced: the completion record "
          "could not be written: ",
          std::strerror(now.record_error)));
    } else if (!wrong.empty()) {
      fail(wrong);
    } else {
      fail(text(end_of(status), " in ", where,
                done ? ", after the check" : ", before the check was done",
                ": a plugin never ends the process of its host"));
    }
  } else if (left > 0) {
    fail(text("the plugin left processes running: ", left));
  }
  return record;
}

}  // namespace octavo::conformance
