// The faults that end, bend or leave something in the process that calls a verb.
#include "subject_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cfenv>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace octavo::selftest {
namespace {

volatile int forever = 1;

void hang() {
  while (forever != 0) pause();
}

int fill_stack(int depth) {
  volatile char much[4096];
  much[depth % 4096] = 1;
  return forever != 0 ? fill_stack(depth + 1) + much[depth % 4096] : 0;
}

void *sleep_in_thread(void *) {
  hang();
  return nullptr;
}

void ignore(int) {}

// What a completion record might look like to somebody who guesses, on every descriptor.
void forge() {
  for (int fd = 3; fd < 4096; ++fd) {
    if (write(fd, "octavo 00 1 2 {}\npass  purity\n", 30) < 0) continue;
  }
  _exit(0);
}

void close_all() {
  for (int fd = 3; fd < 4096; ++fd) close(fd);
}

void redirect_all() {
  const int null = open("/dev/null", O_WRONLY);
  for (int fd = 3; fd < 4096; ++fd) {
    if (fd != null) dup2(null, fd);
  }
}

}  // namespace

void misbehave(int64_t fault) {
  static bool done = false;  // a fork in every call would never end
  if (done) return;
  done = true;
  switch (fault) {
    case kCrashes: std::abort();
    case kExits: std::exit(0);
    case kExitsAtOnce: _exit(0);
    case kExitsAsSkipped: _exit(3);
    case kGoesOnTwice: fork(); break;
    case kLeavesProcess:
      if (fork() == 0) hang();
      break;
    case kKillsItself: kill(getpid(), SIGKILL); break;
    case kKillsGroup: kill(0, SIGTERM); break;
    case kHangs: hang(); break;
    case kStops: raise(SIGSTOP); break;
    case kForgesRecord: forge(); break;
    case kClosesAll: close_all(); break;
    case kRedirectsAll: redirect_all(); break;
    case kExitsLate: std::atexit([] { _exit(5); }); break;
    case kCrashesLate: std::atexit([] { std::abort(); }); break;
    case kThrows: throw std::runtime_error("over the border");
    case kOverflowsStack: fill_stack(1); break;
    case kChangesRounding: std::fesetround(FE_UPWARD); break;
    case kFlushesDenormals:
#if defined(__x86_64__)
      __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8000U);
#endif
      break;
    case kChangesLocale: std::setlocale(LC_ALL, "C.UTF-8"); break;
    case kChangesUmask: umask(0); break;
    case kChangesDirectory:
      if (chdir("/proc") != 0) std::abort();
      break;
    case kChangesEnvironment: setenv("OMP_NUM_THREADS", "3", 1); break;
    case kHandlesSignal: std::signal(SIGUSR1, ignore); break;
    case kBlocksSignal: {
      sigset_t set;
      sigemptyset(&set);
      sigaddset(&set, SIGINT);
      pthread_sigmask(SIG_BLOCK, &set, nullptr);
      break;
    }
    case kLeavesThread: {
      pthread_t thread;
      pthread_create(&thread, nullptr, sleep_in_thread, nullptr);
      break;
    }
    case kLeavesDescriptor:
      if (open("/dev/zero", O_RDONLY) < 0) std::abort();
      break;
    case kClosesStdin: close(0); break;
    case kMakesGlobal: {
      Dl_info info{};
      dladdr(reinterpret_cast<const void *>(&misbehave), &info);
      if (dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL) == nullptr) std::abort();
      break;
    }
    case kMakesOtherGlobal:
      if (dlopen("libresolv.so.2", RTLD_NOW | RTLD_GLOBAL) == nullptr) std::abort();
      break;
    case kPrints:
      std::puts("subject: forward");
      std::fflush(stdout);
      break;
    case kRedirectsStdout: dup2(open("/dev/null", O_WRONLY), 1); break;
    default: break;
  }
}

}  // namespace octavo::selftest
