// AtomicFile: what a signal leaves that ends the program while a file is written.
#include "sdk/src/file/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <iterator>
#include <vector>

#include "tests/support/temp_dir.h"

namespace octavo::test {
namespace {

namespace fs = std::filesystem;

TEST(AtomicFile, no_signal_leaves_a_temporary) {
  const TempDir dir;
  const std::string path = dir.write("file", "old");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    for (const bool is_committed : {false, true}) {
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        std::signal(signal, SIG_DFL);
        {
          AtomicFile draft(path, 0600);
          kill(getpid(), signal);
          draft.write("new", 3);
          if (is_committed && draft.close()) draft.commit();
        }
        _exit(0);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
      EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 1) << signal;
      EXPECT_EQ(read_text(path), is_committed ? "new" : "old") << signal;
      dir.write("file", "old");
    }
  }
}

TEST(AtomicFile, the_mask_of_the_thread_is_as_before) {
  const TempDir dir;
  sigset_t before, after;
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, nullptr, &before), 0);
  { const AtomicFile draft(dir / "file", 0600); }
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, nullptr, &after), 0);
  for (int signal = 1; signal < NSIG; ++signal)
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << signal;
}

}  // namespace
}  // namespace octavo::test
