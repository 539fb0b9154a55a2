// The helper's process, against programs of the system in its place and calls that fail.
#include "sdk/src/probe/probe_spawn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>

#include "sdk/src/base/resource_unavailable.h"
#include "tests/support/failing_calls.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

using testing::HasSubstr;

class ProbeSpawn : public testing::Test {
 protected:
  // What a shell does as the helper; descriptor 3 is its pipe.
  SpawnedProbe shell(const std::string &script, int timeout_ms = 20000) const {
    return spawn_probe({"/bin/sh", "-c", script}, timeout_ms);
  }
  // A script that sends a file as its answer.
  SpawnedProbe answer(const std::string &bytes, const std::string &then = "",
                      int timeout_ms = 20000) const {
    dir.write("answer", bytes);
    return shell("cat '" + (dir / "answer") + "' >&3; " + then, timeout_ms);
  }
  test::TempDir dir;
  const std::string good = hello_record() + end_record();
};

TEST_F(ProbeSpawn, complete_answer) {
  const SpawnedProbe p = answer(good);
  EXPECT_TRUE(p.started);
  EXPECT_FALSE(p.late);
  EXPECT_EQ(p.fault, "");
  EXPECT_TRUE(p.answer.complete);
}

TEST_F(ProbeSpawn, ends_in_words) {
  EXPECT_EQ(answer(good, "exit 3").fault, "ended with exit code 3");
  EXPECT_EQ(shell("exit 0").fault, "ended with exit code 0 before its answer was complete");
  const std::pair<int, const char *> signals[] = {
      {SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"},        {SIGABRT, "SIGABRT"}, {SIGILL, "SIGILL"},
      {SIGFPE, "SIGFPE"},   {SIGTRAP, "SIGTRAP"},      {SIGKILL, "SIGKILL"}, {SIGXCPU, "SIGXCPU"},
      {SIGXFSZ, "SIGXFSZ"}, {SIGUSR1, "see signal(7)"}};
  for (const auto &[number, name] : signals)
    EXPECT_EQ(shell("ulimit -c 0; kill -" + std::to_string(number) + " $$").fault,
              "ended by signal " + std::to_string(number) + " (" + name + ")");
}

TEST_F(ProbeSpawn, ends_for_want_of_memory) {
  EXPECT_TRUE(shell("exit 75").was_short);
  EXPECT_FALSE(shell("exit 4").was_short);
  EXPECT_FALSE(shell("kill -9 $$").was_short);
}

// Of many words the last count.
TEST_F(ProbeSpawn, says_much) {
  const std::string said = shell("yes word | head -n 20000 >&2; echo last >&2; exit 4").said;
  EXPECT_THAT(said, testing::EndsWith("last"));
  EXPECT_LE(said.size(), 4096u);
}

TEST_F(ProbeSpawn, rubbish) {
  EXPECT_THAT(shell("echo rubbish >&3").fault, HasSubstr("sent a malformed answer: "));
}

TEST_F(ProbeSpawn, late) {
  for (const SpawnedProbe &p :
       {shell("sleep 30", 200), answer(hello_record(), "sleep 30", 200),
        answer(good, "sleep 30", 200), answer(good, "exec 3>&-; sleep 30", 200)}) {
    EXPECT_TRUE(p.late);
    EXPECT_EQ(p.fault, "did not end within 200 ms");
  }
}

// Something that the plugin started holds the pipe; the helper itself has ended.
TEST_F(ProbeSpawn, pipe_that_stays_open) {
  const SpawnedProbe p = answer(hello_record(), "sleep 30 & exit 5");
  EXPECT_FALSE(p.late);
  EXPECT_EQ(p.fault, "ended with exit code 5 before its answer was complete");
}

TEST_F(ProbeSpawn, cannot_be_started) {
  EXPECT_EQ(
      spawn_probe({dir / "none"}, 1000).fault,
      (dir / "none") + " cannot be started: No such file or directory (posix_spawn, errno 2)");
  for (const auto &[function, first] : {std::pair("pipe2", 1), {"fcntl", 1}, {"fcntl", 2}}) {
    const test::FailingCall call(function, EMFILE, first);
    const SpawnedProbe p = shell("exit 0");
    EXPECT_FALSE(p.started);
    EXPECT_EQ(p.fault, "/bin/sh cannot be started: Too many open files (pipe2 or fcntl, errno 24)")
        << function << first;
  }
}

// A kernel without pidfd_open: time passes in milliseconds instead.
TEST_F(ProbeSpawn, kernel_without_pidfd) {
  const test::FailingCall pidfd("syscall", ENOSYS, 1, 1000);
  EXPECT_EQ(answer(good, "sleep 0.1").fault, "");
  EXPECT_TRUE(shell("sleep 30", 200).late);
}

TEST_F(ProbeSpawn, calls_that_a_signal_interrupts) {
  {
    const test::FailingCall read("read", EINTR, 1, 3);
    EXPECT_EQ(answer(good).fault, "");
  }
  {
    const test::FailingCall waitpid("waitpid", EINTR, 1, 3);
    EXPECT_EQ(answer(good).fault, "");
    EXPECT_EQ(waitpid.calls(), 4);
  }
  {
    const test::FailingCall waitid("waitid", EINTR, 1, 3);
    EXPECT_EQ(answer(good, "sleep 0.1").fault, "");
  }
  {
    const test::FailingCall poll("poll", EINTR, 1, 3);
    EXPECT_EQ(answer(good, "sleep 0.1").fault, "");
  }
  for (int first = 2; first < 8; ++first) {
    const test::FailingCall read("read", EINTR, first);
    EXPECT_EQ(shell("echo help >&2; exit 4").said, "help") << first;
  }
}

// Nothing is known about the plugin, whatever the error.
TEST_F(ProbeSpawn, helper_that_cannot_be_watched) {
  for (const char *function : {"read", "waitid", "waitpid", "poll"})
    for (const int error : {EIO, ENOENT, ECHILD, ESTALE}) {
      const test::FailingCall call(function, error);
      EXPECT_THROW(answer(good, "sleep 0.1"), ResourceUnavailable) << function << " " << error;
    }
}

// A host that reaps every child: nobody knows how the helper ended, so its answer has to do.
TEST_F(ProbeSpawn, helper_that_the_host_reaped) {
  const auto before = signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(answer(good, "sleep 0.1").fault, "");
  EXPECT_EQ(shell("exit 3").fault, "ended with exit code 0 before its answer was complete");
  signal(SIGCHLD, before);
}

}  // namespace
}  // namespace octavo
