// Every error of the user: its message, exit code 2, and nothing written.
#include <sys/stat.h>

#include "tests/samples/program_run.h"

namespace gpt_test {
namespace {

constexpr int kNotStarted = 127;
constexpr const char *kClosed =
    "the tests run as root, and the user nobody may not enter the build tree: file modes cannot be "
    "tested here";

TEST(TrainGptErrors, text_that_is_missing) {
  expect_refused(run(replaced(small({}), "--text", "/nonexistent/text")),
                 {"/nonexistent/text", "No such file"});
}

TEST(TrainGptErrors, text_that_is_empty) {
  const std::string path = test_directory() + "/empty";
  write_text(path, "");
  expect_refused(run(replaced(small({}), "--text", path)), {path, "an empty file"});
}

TEST(TrainGptErrors, a_directory_without_text) {
  const std::string path = test_directory() + "/nothing";
  std::filesystem::create_directories(path);
  expect_refused(run(replaced(small({}), "--text", path)), {path, "no regular file in it"});
}

TEST(TrainGptErrors, text_of_another_kind) {
  expect_refused(run(replaced(small({}), "--text", "/dev/null")),
                 {"/dev/null", "found:    no regular file"});
}

TEST(TrainGptErrors, text_that_never_ends) {
  const std::string fifo = test_directory() + "/fifo", large = test_directory() + "/large";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  expect_refused(run(replaced(small({}), "--text", fifo)), {fifo, "found:    a FIFO"});
  write_text(large, "");
  std::filesystem::resize_file(large, uint64_t{1} << 40);
  expect_refused(run(replaced(small({}), "--text", large)), {large, "at most 1073741824 are read"});
  expect_refused(run(replaced(small({}), "--text", "/proc")), {"/proc/", "an empty file"});
}

TEST(TrainGptErrors, text_that_cannot_be_read) {
  const std::string path = test_directory() + "/secret";
  write_text(path, some_text(6000));
  chmod(path.c_str(), 0);
  const Finished finished = run_without_root(replaced(small({}), "--text", path));
  if (finished.exit_code == kNotStarted) GTEST_SKIP() << kClosed;
  expect_refused(finished, {path, "Permission denied"});
}

TEST(TrainGptErrors, text_too_short_for_one_context) {
  const std::string path = test_directory() + "/short";
  write_text(path, some_text(40));
  expect_refused(run(replaced(small({}), "--text", path)), {"at least 17 bytes", "--context"});
}

TEST(TrainGptErrors, out_is_a_file) {
  const std::string path = test_directory() + "/file";
  write_text(path, "keep me");
  expect_refused(run(replaced(small({}), "--out", path)), {path, "a file of this name"});
  EXPECT_EQ(read_text(path), "keep me");
}

TEST(TrainGptErrors, directories_without_a_name) {
  for (const char *option : {"--save", "--resume"})
    expect_refused(run(small({option, ""})), {option, "found an empty argument"});
  expect_refused(run(replaced(small({}), "--out", "")), {"--out", "found an empty argument"});
}

TEST(TrainGptErrors, out_below_a_file) {
  const std::string path = test_directory() + "/file";
  write_text(path, "keep me");
  expect_refused(run(replaced(small({}), "--out", path + "/out")), {"Not a directory"});
}

TEST(TrainGptErrors, out_that_cannot_be_written) {
  const std::string path = test_directory() + "/locked";
  std::filesystem::create_directories(path);
  chmod(path.c_str(), 0500);
  const Finished finished = run_without_root(replaced(small({}), "--out", path));
  chmod(path.c_str(), 0700);
  if (finished.exit_code == kNotStarted) GTEST_SKIP() << kClosed;
  expect_refused(finished, {path, "Permission denied"});
}

TEST(TrainGptErrors, a_run_that_is_none) {
  expect_refused(run(small({"--run", "FP8"})),
                 {"--run FP8", "fp32, bf16, config", "octavo plugin list"});
  expect_refused(run(small({"--run", "te:recipe"})), {"key=value"});
}

TEST(TrainGptErrors, a_backend_that_is_not_there) {
  // What Octavo told the host's callback is part of the message.
  expect_refused(
      run(small({"--run", "fp32", "no-such-backend"})),
      {"--run no-such-backend", "octavo_open answered status", "error: ", "no-such-backend"});
}

TEST(TrainGptErrors, a_backend_option_that_names_none) {
  expect_refused(run(small({"--backend", "nosuch"})),
                 {"--run nosuch", "octavo_open answered status", "no backend \"nosuch\""});
  expect_refused(run(small({"--backend", "te", "config"})), {"--backend config", "--run config"});
  expect_refused(run(small({"--backend", "fp32"})), {"--backend fp32", "--run fp32"});
  expect_refused(run(small({"--backend", "msamp:opt_level=O4"})), {"opt_level", "O4"});
  expect_refused(run(small({"--backend", "msamp:amsgrad=true"})), {"amsgrad"});
}

TEST(TrainGptErrors, ranks_that_cannot_share_the_batch) {
  const std::vector<std::string> sixteen = replaced(small({}), "--batch", "16");
  auto with_ranks = [&](const char *ranks) {
    std::vector<std::string> all = sixteen;
    all.insert(all.end(), {"--ranks", ranks});
    return run(all);
  };
  expect_refused(with_ranks("3"), {"--ranks", "a divisor of --batch 16", "3"});
  expect_refused(with_ranks("0"), {"--ranks", "1 to 64"});
  expect_refused(with_ranks("65"), {"--ranks", "1 to 64"});
  expect_refused(with_ranks("-1"), {"--ranks"});
}

TEST(TrainGptErrors, telemetry_and_faults_out_of_range) {
  expect_refused(run(small({"--telemetry-every", "-1"})), {"--telemetry-every", "0 to "});
  expect_refused(run(small({"--inject-inf", "-1"})), {"--inject-inf", "0 to "});
  expect_refused(run(small({"--inject-inf", "often"})), {"--inject-inf"});
}

TEST(TrainGptErrors, a_way_of_fusing_that_does_not_exist) {
  expect_refused(run(small({"--fused", "maybe"})), {"--fused", "no, apply or yes", "\"maybe\""});
}

TEST(TrainGptErrors, a_setting_that_the_backend_refuses) {
  expect_refused(run(small({"--run", "te:recipe=sideways"})), {"sideways", "error: "});
  expect_refused(run(small({"--run", "te:colour=red"})), {"colour", "error: "});
}

TEST(TrainGptErrors, a_configuration_that_is_wrong) {
  const std::string config = test_directory() + "/octavo.toml";
  write_text(config, "schema = 1\nmixed_precision = \"fp9\"\n");
  expect_refused(run(small({"--config", config})), {config, "fp9", "error: "});
  expect_refused(run(small({"--config", "/nonexistent.toml"})), {"/nonexistent.toml"});
}

TEST(TrainGptErrors, config_as_a_run_without_a_configuration) {
  expect_refused(run(small({"--run", "config"})), {"--run config", "octavo.toml"});
}

TEST(TrainGptErrors, values_out_of_range) {
  expect_refused(run(replaced(small({}), "--steps", "0")), {"--steps", "1 to "});
  expect_refused(run(replaced(small({}), "--heads", "5")), {"--heads", "divisor"});
  expect_refused(run(replaced(small({}), "--context", "1")), {"--context"});
  expect_refused(run(small({"--rate", "2"})), {"--rate", "at most 1"});
  expect_refused(run(small({"--rate", "nan"})), {"--rate"});
  expect_refused(run(small({"--end-rate", "1.5"})), {"--end-rate", "0 to 1"});
  expect_refused(run(small({"--end-rate", "nan"})), {"--end-rate"});
  expect_refused(run(small({"--prompt", ""})), {"--prompt"});
  for (const char *seed : {"x", "", "-1", "5x", "18446744073709551616"})
    expect_refused(run(small({"--seed", seed})), {"--seed", "0 to 2^64 - 1", "--help"});
  expect_refused(run(small({"--threads", ""})), {"--threads", "a whole number", "--help"});
  expect_refused(run(small({"--end-rate", ""})), {"--end-rate", "a number", "--help"});
  expect_refused(run(small({"--no-such-option"})), {"--no-such-option", "--help"});
}

}  // namespace
}  // namespace gpt_test
