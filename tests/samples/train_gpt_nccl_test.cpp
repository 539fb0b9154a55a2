// train_gpt as processes with torchrun's variables, on liboctavo_nccl, a fake NCCL and a CUDA
// runtime of the CPU: the numbers and files of ranks as threads, and how they find each other.
#include <signal.h>

#include <chrono>
#include <memory>

#include "tests/samples/program_run.h"
#include "tests/samples/ranked_files.h"
#include "tests/support/held_port.h"

namespace gpt_test {
namespace {

using octavo::test::HeldPort;
using testing::HasSubstr;

// env(1) with these variables in front of the program.
std::vector<std::string> environment(const std::vector<std::string> &variables) {
  std::vector<std::string> all = {"/usr/bin/env", "-u", "TORCHELASTIC_USE_AGENT_STORE"};
  all.insert(all.end(), variables.begin(), variables.end());
  return all;
}

std::vector<std::string> variables(int rank, int world, const std::string &port) {
  return {"RANK=" + std::to_string(rank),
          "LOCAL_RANK=0",
          "WORLD_SIZE=" + std::to_string(world),
          "MASTER_ADDR=localhost",
          "MASTER_PORT=" + port,
          std::string("LD_LIBRARY_PATH=") + TRAIN_GPT_NCCL_DIRECTORY};
}

// The ranks of a world, each a program with outputs of its own.
class Ranks {
 public:
  Ranks(int world, const std::vector<std::string> &arguments) {
    for (int rank = 0; rank < world; ++rank)
      programs_.push_back(std::make_unique<ChildProgram>(
          arguments, false, environment(variables(rank, world, port_.text())),
          "rank" + std::to_string(rank)));
  }
  ChildProgram &at(size_t rank) { return *programs_[rank]; }
  std::vector<Finished> wait() {
    std::vector<Finished> all;
    for (auto &program : programs_) all.push_back(program->wait());
    return all;
  }

 private:
  HeldPort port_;
  std::vector<std::unique_ptr<ChildProgram>> programs_;
};

class EveryNcclRun : public testing::TestWithParam<const char *> {};

TEST_P(EveryNcclRun, equals_ranks_as_threads_in_every_bit) {
  const std::string at = test_directory(), id = "[checkpoint]\nrun_id = \"both\"\n";
  const auto arguments = [&](const std::string &toml, const std::string &name) {
    return replaced(small({toml, "--run", GetParam(), "--save", at + "/saved_" + name}), "--out",
                    at + "/out_" + name);
  };
  std::vector<std::string> threads = arguments(config("threads", id), "threads");
  threads.insert(threads.end(), {"--ranks", "2"});
  const Finished one = run(threads);
  ASSERT_EQ(one.exit_code, 0) << one.errors;
  for (const Finished &f : Ranks(2, arguments(config("nccl", id), "nccl")).wait())
    ASSERT_EQ(f.exit_code, 0) << f.errors;
  EXPECT_GE(steps(at + "/out_threads").size(), 12u);
  EXPECT_EQ(steps(at + "/out_nccl"), steps(at + "/out_threads"));
  EXPECT_GE(files(at + "/saved_threads").size(), 4u);
  EXPECT_TRUE(files(at + "/saved_nccl") == files(at + "/saved_threads"))
      << "a file of the checkpoint differs";
}

INSTANTIATE_TEST_SUITE_P(TrainGpt, EveryNcclRun, testing::Values("te", "msamp:opt_level=O3"),
                         [](const auto &of) { return std::string(of.param).substr(0, 2); });

TEST(NcclTraining, a_killed_rank_ends_all_at_the_deadline) {
  const std::string toml = config("nccl", "timeout_s = 2\n");
  const std::vector<std::string> with = replaced(small({toml, "--run", "te"}), "--batch", "6");
  Ranks ranks(3, replaced(with, "--steps", "1000000"));
  ASSERT_GE(wait_for_lines(test_directory() + "/out/metrics.jsonl", 5), 5);
  const auto began = std::chrono::steady_clock::now();
  ranks.at(1).send(SIGKILL);
  const std::vector<Finished> all = ranks.wait();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  EXPECT_LT(took.count(), 4.0);
  for (const size_t rank : {0u, 2u}) {
    EXPECT_EQ(all[rank].exit_code, 3) << all[rank].errors;
    EXPECT_THAT(all[rank].errors,
                HasSubstr("rank " + std::to_string(rank) + ": ranks\n  " + kIsLost));
    EXPECT_THAT(all[rank].errors, HasSubstr("expected an end within 2000 ms, found it pending"));
  }
}

TEST(NcclTraining, torchrun_that_is_not_there_is_refused) {
  const std::vector<std::string> with = small({config("nccl"), "--run", "te"});
  const auto refused = [&](std::vector<std::string> own, const std::vector<std::string> &parts) {
    expect_refused(ChildProgram(with, false, environment(own)).wait(), parts);
  };
  const std::vector<std::string> whole = variables(0, 1, "29500");
  refused({}, {"WORLD_SIZE, for engine \"nccl\"", "nccl.toml:2:1", "no such variable", "torchrun"});
  for (const auto &[place, value, text] :
       {std::tuple(0, "RANK=1", "from 0 to 0"), std::tuple(1, "LOCAL_RANK=x", "\"x\""),
        std::tuple(2, "WORLD_SIZE=0", "from 1 to 4096"),
        std::tuple(4, "MASTER_PORT=70000", "from 1 to 65534")}) {
    std::vector<std::string> own = whole;
    own[place] = value;
    refused(own, {std::string(value).substr(0, std::string(value).find('=')), text});
  }
  std::vector<std::string> without = whole;
  without.pop_back();
  without.push_back("LD_LIBRARY_PATH=/nonexistent");
  refused(without, {"distributed.engine = \"nccl\"", "the library liboctavo_nccl.so",
                    "next to liboctavo", "cmake --preset cuda"});
}

TEST(NcclTraining, ranks_that_do_not_find_each_other_are_refused) {
  const std::string toml = config("nccl", "timeout_s = 1\n");
  const std::vector<std::string> with = small({toml, "--run", "te"});
  const auto start = [&](int rank, int world, const std::string &port, const std::string &name) {
    return std::make_unique<ChildProgram>(with, false, environment(variables(rank, world, port)),
                                          name);
  };
  // Alone of two.
  const HeldPort alone;
  expect_refused(start(0, 2, alone.text(), "root")->wait(),
                 {"2 ranks in time", "found:    1 of them"});
  expect_refused(start(1, 2, alone.text(), "guest")->wait(),
                 {"rank 1 at localhost:", "rank 0 in time"});
  // Two with one rank, and one of another world.
  for (const auto &[rank, world] : {std::pair(1, 3), std::pair(1, 2)}) {
    const HeldPort port;
    auto root = start(0, 3, port.text(), "root"), first = start(1, 3, port.text(), "first"),
         second = start(rank, world, port.text(), "second");
    expect_refused(root->wait(), {"each rank below 3 once"});
    // Who comes when rank 0 has gone finds nobody.
    const Finished one = first->wait(), other = second->wait();
    expect_refused(one, {"rank 1 "});
    expect_refused(other, {"rank 1 "});
    EXPECT_THAT(one.errors + other.errors, HasSubstr("each rank below 3 once"));
  }
  // Another program has the port, as torchrun's own store; then the next one is taken.
  const HeldPort taken;
  taken.occupy();
  expect_refused(start(0, 2, taken.text(), "root")->wait(),
                 {"an address of this machine with a free port", "in use"});
  auto own = variables(0, 1, taken.text());
  own.push_back("TORCHELASTIC_USE_AGENT_STORE=True");
  EXPECT_EQ(ChildProgram(with, false, environment(own)).wait().exit_code, 0);
}

}  // namespace
}  // namespace gpt_test
