// A write beyond the largest file of the process: an error of the write, and no signal for who did
// not ask for one.
#include "octavo/hpp/size_signal.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace octavo {
namespace {

bool is_pending() {
  sigset_t set;
  sigpending(&set);
  return sigismember(&set, SIGXFSZ) == 1;
}

bool is_blocked() {
  sigset_t set;
  pthread_sigmask(SIG_BLOCK, nullptr, &set);
  return sigismember(&set, SIGXFSZ) == 1;
}

class SizeSignal : public testing::Test {
 protected:
  SizeSignal() {
    getrlimit(RLIMIT_FSIZE, &outer_);
    const rlimit none = {0, outer_.rlim_max};
    file_ = std::tmpfile();
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~SizeSignal() override {
    setrlimit(RLIMIT_FSIZE, &outer_);
    std::fclose(file_);
  }

  // errno of a write that the limit forbids, after the guard is gone.
  int refused() const {
    const HeldSizeSignal held;
    return write(fileno(file_), "x", 1) < 0 ? errno : 0;
  }

 private:
  rlimit outer_{};
  FILE *file_ = nullptr;
};

TEST_F(SizeSignal, does_not_reach_the_thread) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(refused(), EFBIG);
    EXPECT_FALSE(is_pending());
    EXPECT_FALSE(is_blocked());
  }
}

TEST_F(SizeSignal, errno_is_that_of_the_write) {
  {
    const HeldSizeSignal held;
    errno = EFBIG;
  }
  EXPECT_EQ(errno, EFBIG);
}

// A host that blocks the signal itself gets the one that it waits for, and keeps its mask.
TEST_F(SizeSignal, of_the_host_stays) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  raise(SIGXFSZ);
  EXPECT_EQ(refused(), EFBIG);
  EXPECT_TRUE(is_pending());
  EXPECT_TRUE(is_blocked());
  int found = 0;
  EXPECT_EQ(sigwait(&set, &found), 0);
  EXPECT_EQ(found, SIGXFSZ);
  EXPECT_EQ(refused(), EFBIG);
  EXPECT_FALSE(is_pending());
  EXPECT_TRUE(is_blocked());
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace
}  // namespace octavo
