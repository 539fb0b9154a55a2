// The lock that a child of fork does not wait at.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <thread>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/fork.h"

namespace octavo {
namespace {

// Runs in a child and gives its exit code back.
template <typename Body>
int in_child(const Body &body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    std::exit(body());  // with all that a program does at its end
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ForkLock, excludes_threads) {
  ForkLock lock("counted");
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        const std::lock_guard guard(lock);
        ++count;
      }
    });
  for (std::thread &t : threads) t.join();
  EXPECT_EQ(count, 4000);
}

TEST(ForkLock, waits_for_its_holder) {
  ForkLock lock("slept");
  lock.lock();
  std::thread other([&] { const std::lock_guard guard(lock); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  lock.unlock();
  other.join();
}

TEST(ForkLock, child_of_a_process_where_nobody_holds_it) {
  ForkLock lock("slept");
  EXPECT_EQ(in_child([&] {
              lock.lock();
              lock.unlock();
              return 7;
            }),
            7);
}

// The thread that forks while it holds the lock has it in the child, too.
TEST(ForkLock, child_of_its_holder_gives_it_back) {
  ForkLock lock("slept");
  lock.lock();
  EXPECT_EQ(in_child([&] {
              lock.unlock();
              lock.lock();
              return 7;
            }),
            7);
  lock.unlock();
}

TEST(ForkLock, child_of_a_process_where_another_thread_holds_it) {
  ForkLock lock("loaded a plugin");
  lock.lock();
  EXPECT_EQ(in_child([&] {
              try {
                lock.lock();
              } catch (const Failure &f) {
                const std::string words = f.text();
                return f.status() == OCTAVO_WRONG_STATE &&
                               words.find("other thread loaded a plugin") != std::string::npos
                           ? 7
                           : 1;
              }
              return 2;
            }),
            7);
  lock.unlock();
}

TEST(ForkCount, rises_in_the_child) {
  const uint64_t here = fork_count();
  EXPECT_EQ(in_child([&] { return fork_count() == here + 1 ? 7 : 1; }), 7);
  EXPECT_EQ(fork_count(), here);
}

}  // namespace
}  // namespace octavo
