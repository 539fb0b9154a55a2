// Each allocation of a whole train_gpt fails once, in a process of its own: the program ends as it
// does without the failure, or with one message and an exit code of its own; no crash, no hang, and
// no rank waits for another one.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "host_adapters/standalone/error.h"
#include "tests/samples/child_program.h"
#include "tests/support/failing_heap.h"
#include "tests/support/seed.h"
#include "tests/support/temp_dir.h"

// The program, as a function.
#define main train_gpt_main
#include "samples/train_gpt/main.cpp"
#undef main

namespace gpt {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;
namespace heap = octavo::test;

struct Scenario {
  const char *name;
  const char *arguments;
};

const Scenario kScenarios[] = {{"te", "te"},
                               {"te_4_ranks", "te --ranks 4"},
                               {"msamp", "msamp"},
                               {"msamp_4_ranks", "msamp --ranks 4"}};

void PrintTo(const Scenario &s, std::ostream *out) {
  *out << s.name;
}

class TrainGptHeap : public testing::Test {
 protected:
  void SetUp() override {
    gpt_test::write_text(directory_ + "/text", gpt_test::some_text(3000));
    asked_ = static_cast<int64_t *>(
        mmap(nullptr, sizeof(*asked_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(asked_, MAP_FAILED);
  }
  void TearDown() override { munmap(asked_, sizeof(*asked_)); }

  Scenario scenario = {};

  // A new process in which the allocation `which` fails; 0: none.
  gpt_test::Finished attempt(int64_t which) {
    std::istringstream command(
        "train_gpt --steps 3 --layers 1 --width 16 --heads 2 --context 8 --batch 4 --threads 1 "
        "--sample-bytes 10 --quiet --text text --out out --save save --backend " +
        std::string(scenario.arguments));
    std::vector<std::string> words(std::istream_iterator<std::string>{command}, {});
    std::vector<char *> arguments;
    for (std::string &word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const std::string output = directory_ + "/stdout", errors = directory_ + "/stderr";
    std::filesystem::remove_all(directory_ + "/save");
    *asked_ = 0;
    const pid_t child = fork();
    if (child == 0) {
      if (chdir(directory_.c_str()) != 0) _exit(kExitInternal);
      dup2(open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
      dup2(open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
      alarm(30);
      heap::arm_heap(which);
      const int code = ::train_gpt_main(static_cast<int>(words.size()), arguments.data());
      *asked_ = heap::disarm_heap();
      _exit(code);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return {WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status),
            gpt_test::read_text(output), gpt_test::read_text(errors)};
  }

  // Of each step, without what a clock says.
  std::string losses() const {
    std::istringstream lines(gpt_test::read_text(directory_ + "/out/metrics.jsonl"));
    std::string all;
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json record = nlohmann::json::parse(line);
      if (record.contains("loss")) all += record["loss"].dump() + " ";
    }
    return all;
  }

  // trials: how many, evenly spread; 0: every step-th one from `first` on.
  void sweep(int64_t trials, int64_t step, int64_t first) {
    const gpt_test::Finished whole = attempt(0);
    ASSERT_EQ(whole.exit_code, kExitDone) << whole.errors;
    const std::string expected = losses();
    ASSERT_EQ(std::count(expected.begin(), expected.end(), ' '), 3) << expected;
    const int64_t count = *asked_;
    ASSERT_GT(count, 1000);
    RecordProperty("allocations", static_cast<int>(count));
    if (trials > 0) step = count / trials;
    int64_t failed = 0;
    for (int64_t k = 1 + first % step; k <= count; k += step) {
      const gpt_test::Finished trial = attempt(k);
      const std::string where = std::string(scenario.name) + ", allocation " + std::to_string(k) +
                                " of " + std::to_string(count) + ": " + trial.errors;
      failed += trial.exit_code != kExitDone;
      if (trial.exit_code == kExitDone)
        EXPECT_EQ(losses(), expected) << where;
      else if (trial.exit_code == kExitUser)  // a file that could not be read or written
        EXPECT_THAT(trial.errors,
                    AllOf(StartsWith("train_gpt: "),
                          AnyOf(HasSubstr("OCTAVO_NO_RESOURCE"), HasSubstr(std::strerror(ENOMEM)))))
            << where;
      else
        EXPECT_THAT(trial.errors,
                    AllOf(StartsWith("train_gpt: "), HasSubstr("expected: enough memory, threads")))
            << where << "exit code " << trial.exit_code;
    }
    EXPECT_GT(failed, 0);
  }

 private:
  const heap::TempDir dir_ = heap::TempDir::in_memory();
  const std::string directory_ = dir_.path();
  int64_t *asked_ = nullptr;
};

class TrainGptOutOfMemory : public TrainGptHeap, public testing::WithParamInterface<Scenario> {};

TEST_P(TrainGptOutOfMemory, a_sample_of_allocations_fails) {
  scenario = GetParam();
  sweep(50, 1, static_cast<int64_t>(heap::seed_or(0)));  // 200 of all scenarios
}

INSTANTIATE_TEST_SUITE_P(All, TrainGptOutOfMemory, testing::ValuesIn(kScenarios),
                         [](const auto &one) { return std::string(one.param.name); });

// In parts that run at once.
constexpr int kParts = 4;
class TrainGptEveryAllocation : public TrainGptHeap,
                                public testing::WithParamInterface<std::tuple<Scenario, int>> {};

TEST_P(TrainGptEveryAllocation, fails_once) {
  scenario = std::get<0>(GetParam());
  const int64_t stride = heap::stride_or(8);  // 1 in tests/soak.py
  sweep(0, kParts * stride, std::get<1>(GetParam()) * stride);
}

INSTANTIATE_TEST_SUITE_P(All, TrainGptEveryAllocation,
                         testing::Combine(testing::ValuesIn(kScenarios, kScenarios + 2),
                                          testing::Range(0, kParts)),
                         [](const auto &one) {
                           return std::string(std::get<0>(one.param).name) + "_" +
                                  std::to_string(std::get<1>(one.param));
                         });

}  // namespace
}  // namespace gpt
