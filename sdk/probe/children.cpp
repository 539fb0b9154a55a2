// fork tells its handlers; what is left of any other call is a child of this process.
#include "children.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace octavo::probe {
namespace {

pid_t helper = 0;
std::atomic<bool> forked = false;

}  // namespace

void watch_children() {
  helper = getpid();
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  pthread_atfork([] { forked = true; }, nullptr, nullptr);
}

bool is_copy() {
  return getpid() != helper;
}

std::string started_processes() {
  if (forked) return "forks the process that loads it";
  // 0: there are some, and none has ended.
  if (waitpid(-1, nullptr, WNOHANG | __WALL) >= 0) return "starts another process";
  return {};
}

}  // namespace octavo::probe
