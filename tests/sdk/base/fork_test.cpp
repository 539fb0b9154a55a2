// A process that forks after it has loaded plugins, and one that ends with everything open.
//
// The child runs the same checks as its parent and ends through exit, so destructors and, in a
// build with a sanitizer, the search for leaks run there, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <sstream>
#include <thread>

#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/model.h"
#include "tests/support/program.h"
#include "tests/support/sleeping_threads.h"

namespace octavo::test {
namespace {

// Every expectation inside counts; the child's exit code tells whether one failed.
int exit_code_of_child(const std::function<void()> &body) {
  std::fflush(nullptr);
  EXPECT_TRUE(wait_for_sleeping_threads());
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    body();
    std::exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class Fork : public testing::Test {
 protected:
  void SetUp() override {
    put_fake(dir, "plugins");
    dir.copy(fake_library("good"), "later/second.so");
    std::string text = fake_manifest();
    for (size_t at; (at = text.find("fake")) != std::string::npos;) text.replace(at, 4, "second");
    dir.write("later/second.octavo-plugin.toml", text);
    request.set("plugins.trust", "dev").set("fp8.backend", "fake").plugins(dir / "plugins");
    const octavo_open_desc d = request.desc();
    ASSERT_EQ(octavo_open(&d, &run), OCTAVO_OK) << request.host.error();
    ASSERT_EQ(add_weight(run, "w", 4, 8).status, OCTAVO_OK);
    ASSERT_EQ(add_linear(run, "a", 0).status, OCTAVO_OK);
    ASSERT_EQ(octavo_seal(run), OCTAVO_OK);
    ASSERT_EQ(octavo_store_open(run, &store), OCTAVO_OK);
    ASSERT_EQ(octavo_threads_open(3, &threads), OCTAVO_OK);
    ASSERT_EQ(octavo_ranks_open(2, &ranks), OCTAVO_OK);
  }
  void TearDown() override {
    octavo_store_close(store);
    octavo_close(run);
    octavo_threads_close(threads);
    octavo_ranks_close(ranks);
  }

  static int64_t sum_of_thousand(const octavo_parallel *parallel) {
    std::atomic<int64_t> sum{0};
    EXPECT_EQ(parallel->parallel_for(
                  parallel->ctx, 0, 1000, 1,
                  [](void *arg, int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i)
                      *static_cast<std::atomic<int64_t> *>(arg) += i;
                  },
                  &sum),
              OCTAVO_OK);
    return sum;
  }
  void use_the_run() {
    EXPECT_EQ(text_of(octavo_run_backend_id(run)), "fake");
    EXPECT_EQ(octavo_run_backend(run)->linear_forward(octavo_run_session(run), nullptr), OCTAVO_OK);
    EXPECT_EQ(add_weight(run, "later", 2, 3).status, OCTAVO_OK);
    EXPECT_EQ(octavo_seal(run), OCTAVO_OK);
    EXPECT_EQ(octavo_store_extend(store), OCTAVO_OK);
    EXPECT_NE(octavo_store_address(store, 0), nullptr);
    std::string out;
    EXPECT_EQ(octavo_report(run, borrow("text"), Request::append_line, &out), OCTAVO_OK);
    EXPECT_THAT(out, testing::HasSubstr("fake"));
  }
  static octavo_status all_reduce(const octavo_collective *c) {
    float value = 1;
    return c->run(c->ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, &value, 1, &value, 1,
                  nullptr);
  }

  Environment environment;
  TempDir dir;
  Request request;
  octavo_run *run = nullptr;
  octavo_store *store = nullptr;
  octavo_threads *threads = nullptr;
  octavo_ranks *ranks = nullptr;
};

TEST_F(Fork, child_uses_what_it_inherits) {
  EXPECT_EQ(exit_code_of_child([&] { use_the_run(); }), 0);
  use_the_run();
}

TEST_F(Fork, child_closes_what_it_inherits) {
  EXPECT_EQ(exit_code_of_child([&] {
              TearDown();
              EXPECT_EQ(octavo_seal(run), OCTAVO_WRONG_STATE);
              EXPECT_EQ(octavo_threads_parallel(threads), nullptr);
              EXPECT_EQ(octavo_ranks_collective(ranks, 0), nullptr);
              TearDown();
            }),
            0);
  use_the_run();
}

TEST_F(Fork, child_ends_with_everything_open) {
  EXPECT_EQ(exit_code_of_child([] {}), 0);
  use_the_run();
}

TEST_F(Fork, child_loads_another_plugin) {
  EXPECT_EQ(exit_code_of_child([&] {
              Request other;
              other.set("plugins.trust", "dev").set("fp8.backend", "second").plugins(dir / "later");
              RunPtr opened;
              // The library's own id is not that of its manifest: it was loaded and asked.
              EXPECT_EQ(other.open(opened), OCTAVO_UNSUPPORTED);
              EXPECT_THAT(other.host.error(),
                          testing::HasSubstr("expected the id \"second\" of its manifest"));
              EXPECT_EQ(request.open(opened), OCTAVO_OK);
            }),
            0);
}

TEST_F(Fork, threads_of_the_parent_do_not_work_in_the_child) {
  const octavo_parallel *parallel = octavo_threads_parallel(threads);
  EXPECT_EQ(sum_of_thousand(parallel), 499500);
  EXPECT_EQ(exit_code_of_child([&] {
              EXPECT_EQ(sum_of_thousand(parallel), 499500);  // by the caller alone
              octavo_threads *own = nullptr;
              EXPECT_EQ(octavo_threads_open(3, &own), OCTAVO_OK);
              EXPECT_EQ(sum_of_thousand(octavo_threads_parallel(own)), 499500);
              octavo_threads_close(own);
            }),
            0);
  EXPECT_EQ(sum_of_thousand(parallel), 499500);
}

TEST_F(Fork, ranks_of_the_parent_do_not_answer_in_the_child) {
  const octavo_collective *first = octavo_ranks_collective(ranks, 0);
  std::thread waiting([&] { EXPECT_EQ(all_reduce(first), OCTAVO_FAILED_DEVICE); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(exit_code_of_child([&] {
              EXPECT_EQ(all_reduce(octavo_ranks_collective(ranks, 1)), OCTAVO_WRONG_STATE);
              octavo_ranks_abort(ranks);
              octavo_ranks_close(ranks);  // the parent's thread still waits inside
            }),
            0);
  octavo_ranks_abort(ranks);
  waiting.join();
}

// Standard error without LeakSanitizer's report on threads that a parent of fork had.
std::string without_threads_of_the_parent(const std::string &text) {
  std::istringstream lines(text);
  std::string rest;
  for (std::string line; std::getline(lines, line);) {
    if (!line.ends_with("was not suspended. False leaks are possible.")) rest += line + '\n';
  }
  return rest;
}

// How programs end while everything is open: tests/sdk/ends_open.cpp.
class EndsOpen : public testing::TestWithParam<const char *> {};

TEST_P(EndsOpen, cleanly) {
  const TempDir dir;
  put_fake(dir, "plugins");
  const Finished f = run_program({OCTAVO_ENDS_OPEN, dir / "plugins", GetParam()});
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_EQ(f.out, "open\n");
  EXPECT_EQ(without_threads_of_the_parent(f.err), "");
}

INSTANTIATE_TEST_SUITE_P(All, EndsOpen,
                         testing::Values("return", "exit", "quick_exit", "atexit", "destructor",
                                         "thread", "fork"),
                         [](const auto &each) { return std::string(each.param); });

}  // namespace
}  // namespace octavo::test
