// A rank that is lost ends the others with a typed error and the code that asks for a restart; then
// the run goes on with the bits of one without a break.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <octavo/torch/checkpoint.h>
#include <spawn.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <c10/util/Exception.h>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "octavo/torch/error.h"
#include "tests/support/held_port.h"

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using octavo::torch::Error;
using octavo::torch::exit_code;

constexpr double kTimeout = 3.0;  // of restart_host

std::string text_of(const fs::path &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Restart : public testing::Test {
 protected:
  Restart()
      : folder_(fs::temp_directory_path() / ("octavo_torch_restart_" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
  }
  ~Restart() override { fs::remove_all(folder_); }

  struct End {
    int code = 0;  // negative: the signal
    double seconds = 0.0;
    std::string said;
  };
  // Of the slots of rank 0 after six steps, as the file states them.
  std::vector<std::string> hashes(const std::string &name) const {
    const std::string all = text_of(folder_ / name / "6/process_0/rank-0000-of-0001.safetensors");
    std::vector<std::string> found;
    constexpr std::string_view kKey = "\"octavo.xxh3_128.";
    for (size_t at = all.find(kKey); at != std::string::npos; at = all.find(kKey, at + 1))
      if (all.compare(at + kKey.size(), 5, "host\"") != 0)
        found.push_back(all.substr(at, all.find_first_of(",}", at) - at));
    return found;
  }
  // Of each rank. Stopped processes end once the others have.
  std::vector<End> run(int ranks, const std::string &name, std::vector<std::string> arguments) {
    const octavo::test::HeldPort port;
    fs::create_directories(folder_ / name);
    arguments.insert(arguments.begin(), {OCTAVO_RESTART_HOST, (folder_ / name).string()});
    std::vector<char *> argv;
    for (std::string &a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < ranks; ++rank) {
      setenv("RANK", std::to_string(rank).c_str(), 1);
      setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
      setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
      setenv("MASTER_ADDR", "127.0.0.1", 1);
      setenv("MASTER_PORT", port.text().c_str(), 1);
      posix_spawn_file_actions_t actions;
      posix_spawn_file_actions_init(&actions);
      posix_spawn_file_actions_addopen(&actions, 2, said(name, rank).c_str(),
                                       O_WRONLY | O_CREAT | O_TRUNC, 0600);
      posix_spawn(&pids.emplace_back(), argv[0], &actions, nullptr, argv.data(), environ);
      posix_spawn_file_actions_destroy(&actions);
    }
    return wait_for(pids, name);
  }

 private:
  std::string said(const std::string &name, int rank) const {
    return (folder_ / name / ("said_" + std::to_string(rank))).string();
  }

  // Seconds count from the first rank that ended, or stopped.
  std::vector<End> wait_for(std::vector<pid_t> pids, const std::string &name) {
    std::vector<End> ends(pids.size());
    std::vector<bool> is_over(pids.size()), is_stopped(pids.size());
    Clock::time_point first = Clock::now();
    bool has_first = false;
    for (size_t left = pids.size(); left > 0;) {
      size_t stopped = 0;
      for (size_t i = 0; i < pids.size(); ++i) {
        int status = 0;
        if (!is_over[i] && waitpid(pids[i], &status, WNOHANG | WUNTRACED) == pids[i]) {
          if (!has_first) first = Clock::now();
          has_first = true;
          is_stopped[i] = WIFSTOPPED(status);
          if (!is_stopped[i]) {
            is_over[i] = true;
            --left;
            ends[i] = {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
                       std::chrono::duration<double>(Clock::now() - first).count(),
                       text_of(said(name, static_cast<int>(i)))};
          }
        }
        stopped += !is_over[i] && is_stopped[i] ? 1 : 0;
      }
      if (left > 0 && stopped == left)
        for (size_t i = 0; i < pids.size(); ++i)
          if (!is_over[i]) kill(pids[i], SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return ends;
  }

 protected:
  const fs::path folder_;
};

TEST_F(Restart, goes_on_with_the_bits_of_a_run_without_a_break) {
  for (const End &end : run(2, "plain", {})) EXPECT_EQ(end.code, 0) << end.said;
  for (const std::string kind : {"kill", "stop", "late", "less"}) {
    const std::vector<End> ends = run(2, kind, {"1", "4", kind});
    EXPECT_EQ(ends[0].code, EX_TEMPFAIL) << kind << ends[0].said;
    EXPECT_LE(ends[0].seconds, kTimeout + 2) << kind;
    for (const char *word : {"step 4 of this process", "timeout of 3 s", "start every rank again"})
      EXPECT_NE(ends[0].said.find(word), std::string::npos) << kind << ends[0].said;
    for (const End &end : run(2, kind, {})) EXPECT_EQ(end.code, 0) << kind << end.said;
    // torch names the parameters of an optimizer's state by their addresses; the weights after six
    // steps show its values.
    EXPECT_TRUE(text_of(folder_ / kind / "model.pt") == text_of(folder_ / "plain" / "model.pt"))
        << kind;
    EXPECT_EQ(hashes(kind), hashes("plain")) << kind;
    EXPECT_NE(hashes(kind).size(), 0U);
  }
}

TEST_F(Restart, a_configuration_that_is_wrong_ends_with_its_own_code) {
  const std::vector<End> engine = run(1, "engine", {"[distributed]\nengine = \"mpi\"\n"});
  EXPECT_EQ(engine[0].code, EX_CONFIG);
  EXPECT_NE(engine[0].said.find("expected \"threads\" in a program on LibTorch"), std::string::npos)
      << engine[0].said;
  EXPECT_EQ(run(1, "backend", {"[fp8]\nbackend = \"none of them\"\n"})[0].code, EX_CONFIG);
}

TEST(ExitCode, says_what_helps) {
  EXPECT_EQ(exit_code(Error(OCTAVO_FAILED_DEVICE, "a rank")), EX_TEMPFAIL);
  EXPECT_EQ(exit_code(Error(OCTAVO_NO_RESOURCE, "a file")), EX_IOERR);
  for (const octavo_status status : {OCTAVO_INVALID, OCTAVO_UNSUPPORTED, OCTAVO_WRONG_STATE})
    EXPECT_EQ(exit_code(Error(status, "a key")), EX_CONFIG);
  EXPECT_EQ(exit_code(Error(OCTAVO_INTERNAL, "a bug")), EX_SOFTWARE);
  EXPECT_EQ(exit_code(std::runtime_error("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:1] "
                                         "Connection closed by peer")),
            EX_TEMPFAIL);
  EXPECT_EQ(exit_code(std::runtime_error("Application timeout caused pair closure")), EX_TEMPFAIL);
  EXPECT_EQ(exit_code(fs::filesystem_error("write", std::error_code())), EX_IOERR);
  EXPECT_EQ(exit_code(std::runtime_error("shapes")), 1);
}

}  // namespace
