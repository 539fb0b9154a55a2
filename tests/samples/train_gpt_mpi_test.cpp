// train_gpt as processes of mpirun: the numbers and files of ranks as threads, and one end for all.
#include <signal.h>

#include <chrono>
#include <thread>

#include "tests/samples/program_run.h"
#include "tests/samples/ranked_files.h"
#include "tests/support/mpi_run.h"
#include "tests/support/temp_dir.h"

namespace gpt_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::vector<std::string> launcher(int ranks, int grace = 1) {
  return octavo::test::as_ranks(TRAIN_GPT_MPIRUN, ranks, {}, grace);
}

Finished run_ranks(int ranks, const std::vector<std::string> &arguments) {
  return ChildProgram(arguments, false, launcher(ranks)).wait();
}

// The processes of a rank of the running test; -1: of all ranks.
std::vector<pid_t> processes(int rank) {
  std::vector<pid_t> found;
  for (const auto &entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string words = octavo::test::read_of_process("/proc/" + name + "/cmdline");
    const std::string variables =
        "\n" + octavo::test::read_of_process("/proc/" + name + "/environ");
    const std::string wanted = std::string(1, '\0') + "OMPI_COMM_WORLD_RANK=";
    const size_t at = variables.find(wanted);
    if (words.find(test_directory()) == std::string::npos || at == std::string::npos) continue;
    if (rank < 0 || std::atoi(variables.c_str() + at + wanted.size()) == rank)
      found.push_back(std::atoi(name.c_str()));
  }
  return found;
}

class EveryMpiRun : public testing::TestWithParam<const char *> {};

TEST_P(EveryMpiRun, equals_ranks_as_threads_in_every_bit) {
  const std::string at = test_directory(), id = "[checkpoint]\nrun_id = \"both\"\n";
  const auto arguments = [&](const std::string &toml, const std::string &name) {
    return replaced(small({toml, "--run", GetParam(), "--save", at + "/saved_" + name}), "--out",
                    at + "/out_" + name);
  };
  std::vector<std::string> threads = arguments(config("threads", id), "threads");
  threads.insert(threads.end(), {"--ranks", "4"});
  const Finished one = run(threads);
  ASSERT_EQ(one.exit_code, 0) << one.errors;
  const Finished four = run_ranks(4, arguments(config("mpi", id), "mpi"));
  ASSERT_EQ(four.exit_code, 0) << four.errors;

  const auto expected = steps(at + "/out_threads");
  EXPECT_GE(expected.size(), 12u);
  EXPECT_EQ(steps(at + "/out_mpi"), expected);
  const auto saved = files(at + "/saved_threads");
  EXPECT_GE(saved.size(), 4u);
  EXPECT_TRUE(files(at + "/saved_mpi") == saved) << "a file of the checkpoint differs";
  // As one run: the tables once, with what all ranks keep, and one page.
  const auto tables = [](const Finished &f) { return f.output.substr(f.output.find("bytes in")); };
  EXPECT_EQ(tables(four).substr(0, 300), tables(one).substr(0, 300));
  EXPECT_EQ(four.output.find("report: "), four.output.rfind("report: "));
  EXPECT_THAT(read_text(at + "/out_mpi/report.html"), HasSubstr("<html"));
}

INSTANTIATE_TEST_SUITE_P(TrainGpt, EveryMpiRun, testing::Values("te", "msamp:opt_level=O3"),
                         [](const auto &of) { return std::string(of.param).substr(0, 2); });

// Without checkpoint.run_id rank 0 draws one, which every file has; threads go on from there.
TEST(MpiTraining, a_checkpoint_of_processes_is_one_of_threads) {
  const std::string at = test_directory();
  const std::vector<std::string> common = {"--run", "msamp:opt_level=O3", "--steps", "12"};
  auto first = small({config("mpi"), "--save", at + "/saved", "--stop-after", "6"});
  auto rest = small({config("threads"), "--resume", at + "/saved", "--ranks", "4"});
  auto whole = small({config("threads"), "--ranks", "4"});
  for (auto *one : {&first, &rest, &whole})
    one->insert(one->end(), {"--run", "msamp:opt_level=O3"});
  const Finished half = run_ranks(4, first);
  ASSERT_EQ(half.exit_code, 0) << half.errors;
  const Finished ended = run(replaced(rest, "--out", at + "/out_rest"));
  ASSERT_EQ(ended.exit_code, 0) << ended.errors;
  ASSERT_EQ(run(replaced(whole, "--out", at + "/out_whole")).exit_code, 0);
  auto expected = steps(at + "/out_whole");
  expected.erase(expected.begin(), expected.end() - 6);
  EXPECT_EQ(steps(at + "/out_rest"), expected);
}

struct Loss {
  int signal;
  int timeout_s;
  const char *words;
};

// What is left ends with the error, and mpirun with them.
void lose_rank_2(const Loss &loss) {
  const std::string out = test_directory() + "/out";
  const std::string toml = config("mpi", "timeout_s = " + std::to_string(loss.timeout_s) + "\n");
  ChildProgram program(replaced(small({toml, "--run", "te"}), "--steps", "1000000"), false,
                       launcher(4, 3));
  ASSERT_GE(wait_for_lines(out + "/metrics.jsonl", 5), 5);
  const std::vector<pid_t> rank_2 = processes(2);
  ASSERT_EQ(rank_2.size(), 1u);
  ASSERT_EQ(processes(-1).size(), 4u);
  const auto began = std::chrono::steady_clock::now();
  kill(rank_2[0], loss.signal);
  const auto others = [] {
    return processes(0).size() + processes(1).size() + processes(3).size();
  };
  std::chrono::duration<double> took{};
  while (others() > 0 && took.count() < 60) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    took = std::chrono::steady_clock::now() - began;
  }
  const Finished f = program.wait();
  EXPECT_NE(f.exit_code, 0);
  EXPECT_LT(took.count(), loss.timeout_s + 2.0);
  for (const char *rank : {"rank 0", "rank 1", "rank 3"})
    EXPECT_THAT(f.errors, HasSubstr("train_gpt: " + std::string(rank) + ": ranks\n  " + kIsLost));
  EXPECT_THAT(f.errors, HasSubstr(loss.words));
  EXPECT_THAT(processes(-1), testing::IsEmpty()) << "a rank is still there";
}

TEST(MpiTraining, a_killed_rank_ends_all) {
  lose_rank_2({SIGKILL, 20, "expected rank 2 to take part, found its process"});
}

TEST(MpiTraining, a_stopped_rank_ends_all_at_the_deadline) {
  lose_rank_2({SIGSTOP, 2, "expected an end within 2000 ms, found it pending"});
}

TEST(MpiTraining, a_signal_to_one_rank_ends_all_after_the_step) {
  const std::string at = test_directory();
  auto arguments = small({config("mpi"), "--run", "te", "--save", at + "/saved"});
  ChildProgram program(replaced(arguments, "--steps", "1000000"), false, launcher(4));
  ASSERT_GE(wait_for_lines(at + "/out/metrics.jsonl", 5), 5);
  const std::vector<pid_t> rank_3 = processes(3);
  ASSERT_EQ(rank_3.size(), 1u);
  kill(rank_3[0], SIGTERM);
  const Finished f = program.wait();
  EXPECT_EQ(f.exit_code, 128 + SIGTERM) << f.errors;
  EXPECT_TRUE(fs::exists(at + "/saved/te/latest")) << f.errors;
  EXPECT_THAT(f.errors, testing::Not(HasSubstr(kIsLost)));
}

TEST(MpiTraining, what_does_not_fit_is_refused_once) {
  const std::vector<std::string> with = small({config("mpi"), "--run", "te"});
  expect_refused(run(with), {"distributed.engine = \"mpi\"", "mpi.toml:2:1", "mpirun -n 4"});
  const auto refused = [&](const std::vector<std::string> &arguments, int ranks,
                           const std::vector<std::string> &parts) {
    const Finished f = run_ranks(ranks, arguments);
    expect_refused(f, parts);
    EXPECT_EQ(f.errors.find("train_gpt: "), f.errors.rfind("train_gpt: ")) << f.errors;
  };
  std::vector<std::string> more = with;
  more.insert(more.end(), {"--ranks", "3"});
  refused(more, 2, {"train_gpt: --ranks", "2, as many processes", "found:    3"});
  refused(with, 3, {"rank 0: --ranks", "a divisor of --batch 4"});
  refused(small({config("mpi"), "--run", "no_such_backend"}), 2, {"rank 0: --run no_such_backend"});
  // Every process is refused, and says so: they know nothing of each other.
  expect_refused(run_ranks(2, small({config("threads"), "--run", "te"})),
                 {"distributed.engine = \"threads\"", "one of 2 processes (OMPI_COMM_WORLD_SIZE)",
                  "set distributed.engine = \"mpi\""});
}

}  // namespace
}  // namespace gpt_test
