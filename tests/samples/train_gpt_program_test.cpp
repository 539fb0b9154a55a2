// The program from outside: every error with its message and exit code, output files, Ctrl-C.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/samples/child_program.h"

namespace gpt_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int kNotStarted = 127;
constexpr const char *kClosed =
    "the tests run as root, and the user nobody may not enter the build tree: file modes cannot be "
    "tested here";

// Arguments of a run that ends in a moment, and any others behind them.
std::vector<std::string> small(const std::vector<std::string> &more) {
  const std::string text = test_directory() + "/text";
  if (!std::filesystem::exists(text)) write_text(text, some_text(6000));
  std::vector<std::string> all = {"--text",         text, "--out",     test_directory() + "/out",
                                  "--layers",       "1",  "--width",   "32",
                                  "--heads",        "2",  "--context", "16",
                                  "--batch",        "4",  "--steps",   "12",
                                  "--sample-bytes", "10"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<std::string> replaced(std::vector<std::string> all, const std::string &option,
                                  const std::string &value) {
  *(std::find(all.begin(), all.end(), option) + 1) = value;
  return all;
}

void expect_refused(const Finished &finished, const std::vector<std::string> &parts) {
  EXPECT_EQ(finished.exit_code, 2) << finished.errors;
  for (const std::string &part : parts) EXPECT_THAT(finished.errors, HasSubstr(part));
  for (const char *part : {"expected:", "found:", "remedy:"}) {
    EXPECT_THAT(finished.errors, HasSubstr(part));
  }
  EXPECT_FALSE(std::filesystem::exists(test_directory() + "/out")) << "something was written";
}

std::vector<nlohmann::json> lines_of(const std::string &path) {
  std::vector<nlohmann::json> lines;
  std::istringstream in(read_text(path));
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(TrainGpt, trains_writes_and_prints) {
  const Finished finished = run(small({"--run", "fp32", "te:recipe=delayed"}));
  ASSERT_EQ(finished.exit_code, 0) << finished.errors;
  for (const char *part : {"run ", "validation", "to fp32 %", "fp32", "te:recipe=delayed",
                           "amax_history", "continues"}) {
    EXPECT_THAT(finished.output, HasSubstr(part));
  }
  EXPECT_THAT(finished.output, Not(HasSubstr("\033["))) << "colour, but not on a terminal";
  EXPECT_THAT(finished.errors, AllOf(HasSubstr("unigram entropy"), HasSubstr("one file")));

  const auto lines = lines_of(test_directory() + "/out/metrics.jsonl");
  ASSERT_EQ(lines.size(), 24u);
  for (const auto &line : lines) {
    for (const char *key : {"run", "step", "loss", "lr", "grad_norm", "tokens_per_s"}) {
      EXPECT_TRUE(line.contains(key)) << key;
    }
  }
  EXPECT_TRUE(lines[11].contains("validation_loss"));
  EXPECT_TRUE(lines[23]["scale"].contains("x/block0.qkv")) << lines[23].dump();

  const std::string page = read_text(test_directory() + "/out/report.html");
  EXPECT_THAT(page, AllOf(HasSubstr("<!doctype html>"), HasSubstr("te:recipe=delayed"),
                          HasSubstr("prefers-color-scheme"), Not(HasSubstr("{{DATA}}"))));
  for (const char *outside : {"src=", "href=", "url(", "@import", "https:"}) {
    EXPECT_THAT(page, Not(HasSubstr(outside))) << "the report needs something outside of it";
  }
  for (const auto &entry : std::filesystem::directory_iterator(test_directory() + "/out")) {
    const std::string name = entry.path().filename();
    EXPECT_TRUE(name == "metrics.jsonl" || name == "report.html") << name << " was left behind";
  }
}

TEST(TrainGpt, quiet_prints_the_tables_only) {
  const Finished finished = run(small({"--run", "fp32", "--quiet"}));
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_EQ(finished.errors, "");
  EXPECT_THAT(finished.output, AllOf(HasSubstr("validation"), Not(HasSubstr("report.html"))));
}

TEST(TrainGpt, a_configuration_decides_the_default_runs) {
  const std::string config = test_directory() + "/octavo.toml";
  write_text(config, "schema = 1\nmixed_precision = \"fp8\"\n[fp8]\nbackend = \"reference\"\n");
  std::vector<std::string> arguments = small({"--quiet"});
  arguments.insert(arguments.begin(), config);
  const Finished finished = run(arguments);
  ASSERT_EQ(finished.exit_code, 0) << finished.errors;
  EXPECT_THAT(finished.output, AllOf(HasSubstr("\nfp32 "), HasSubstr("\nbf16 "),
                                     HasSubstr("\nconfig  reference"), Not(HasSubstr("te:"))));
}

TEST(TrainGpt, help_names_the_exit_codes) {
  const Finished finished = run({"--help"});
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_THAT(finished.output, AllOf(HasSubstr("Exit codes"), HasSubstr("130"), HasSubstr("--run"),
                                     HasSubstr("NO_COLOR")));
}

TEST(TrainGptErrors, text_that_is_missing) {
  expect_refused(run(replaced(small({}), "--text", "/nonexistent/text")),
                 {"/nonexistent/text", "nothing there"});
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
  expect_refused(run(replaced(small({}), "--text", "/dev/null")), {"/dev/null", "another kind"});
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
  expect_refused(run(small({"--run", "FP8"})), {"--run FP8", "fp32, bf16, config", "octavo list"});
  expect_refused(run(small({"--run", "te:recipe"})), {"key=value"});
}

TEST(TrainGptErrors, a_backend_that_is_not_there) {
  // What Octavo told the host's callback is part of the message.
  expect_refused(
      run(small({"--run", "fp32", "no-such-backend"})),
      {"--run no-such-backend", "octavo_open answered status", "error: ", "no-such-backend"});
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
  expect_refused(run(small({"--prompt", ""})), {"--prompt"});
  expect_refused(run(small({"--seed", "x"})), {"--seed", "--help"});
  expect_refused(run(small({"--no-such-option"})), {"--no-such-option", "--help"});
}

TEST(TrainGpt, an_interrupt_keeps_what_was_done) {
  std::vector<std::string> arguments = small({"--run", "fp32", "bf16"});
  ChildProgram child(replaced(arguments, "--steps", "1000000"));
  const std::string metrics = test_directory() + "/out/metrics.jsonl";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  auto count = [&] {
    const std::string text = read_text(metrics);
    return std::count(text.begin(), text.end(), '\n');
  };
  while (count() < 5 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ASSERT_GE(count(), 5) << "the training did not start";
  child.send(SIGINT);
  const Finished finished = child.wait();
  EXPECT_EQ(finished.exit_code, 130) << finished.errors;

  const std::string text = read_text(metrics);
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(text.back(), '\n') << "the last line is cut off";
  const auto lines = lines_of(metrics);
  EXPECT_GE(lines.size(), 5u);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["step"], i + 1);
  EXPECT_EQ(lines.back()["run"], "fp32") << "a second run was started after the interrupt";
  const std::string page = read_text(test_directory() + "/out/report.html");
  EXPECT_THAT(page, HasSubstr("\"interrupted\":true"));
}

}  // namespace
}  // namespace gpt_test
