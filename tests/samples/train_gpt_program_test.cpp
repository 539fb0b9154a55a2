// The program from outside: what it prints and writes, and Ctrl-C.
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/samples/program_run.h"
#include "tests/support/param_name.h"

namespace gpt_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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
                          HasSubstr("prefers-color-scheme"), Not(HasSubstr("{{"))));
  // Without a script: the headline, the losses, the placements and the curves.
  EXPECT_THAT(page, AllOf(HasSubstr("fp32 <span"), HasSubstr("FP8 emulated on a CPU"),
                          HasSubstr("linear layers in FP8"), HasSubstr("<path d=\"M")));
  for (const char *outside : {"src=", "href=", "url(", "@import", "https:", "<script>"}) {
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

// Also when quiet: who wanted FP8 reads at the start why it does not run, and at the end that it
// did not.
TEST(TrainGpt, a_fallback_is_named_first_and_last) {
  const std::string config = test_directory() + "/octavo.toml";
  write_text(config,
             "mixed_precision = \"fp8\"\n[fp8]\nbackend = \"te\"\nfallback = [\"bf16\"]\n"
             "[fp8.require]\nnative = true\n");
  const Finished finished = run(small({"--run", "config", "--config", config, "--quiet"}));
  EXPECT_EQ(finished.exit_code, 0) << finished.errors;
  EXPECT_THAT(finished.errors,
              testing::StartsWith("train_gpt: warning: config: falling back to \"bf16\" as "
                                  "fp8.fallback permits: "));
  EXPECT_THAT(finished.errors,
              testing::EndsWith("\ntrain_gpt: warning: config trained in bf16, not in FP8: "
                                "fp8.fallback took over, see the warning at its start\n"));
}

TEST(TrainGpt, backend_is_short_for_the_run_of_a_backend) {
  const Finished finished = run(small({"--quiet", "--run", "fp32", "--backend", "reference",
                                       "te:recipe=current", "--backend", "msamp:opt_level=O3"}));
  ASSERT_EQ(finished.exit_code, 0) << finished.errors;
  EXPECT_THAT(finished.output, AllOf(HasSubstr("\nfp32 "), HasSubstr("\nreference "),
                                     HasSubstr("\nte:recipe=current "),
                                     HasSubstr("\nmsamp:opt_level=O3  msamp      O3"),
                                     HasSubstr("bytes/param"), Not(HasSubstr("of all ranks"))));
}

TEST(TrainGpt, several_ranks_print_and_record_what_they_hold) {
  const Finished finished =
      run(small({"--ranks", "2", "--threads", "2", "--run", "fp32", "msamp:opt_level=O3"}));
  ASSERT_EQ(finished.exit_code, 0) << finished.errors;
  EXPECT_THAT(finished.output, AllOf(HasSubstr("bytes/param"), HasSubstr("of all ranks"),
                                     HasSubstr("16.00"), HasSubstr("32.00")));
  const auto lines = lines_of(test_directory() + "/out/metrics.jsonl");
  ASSERT_EQ(lines.size(), 24u) << "one rank writes";
  EXPECT_FALSE(lines[11].contains("reduce"));
  EXPECT_TRUE(lines[23]["reduce"].contains("saturated")) << lines[23].dump();
  EXPECT_TRUE(lines[23]["reduce"].contains("prescale")) << lines[23].dump();
  const std::string page = read_text(test_directory() + "/out/report.html");
  EXPECT_THAT(page, AllOf(HasSubstr("\"ranks\":2"), HasSubstr("\"memory_parts\":[\"weight\""),
                          HasSubstr("Bytes per parameter")));
}

TEST(TrainGpt, casts_and_skipped_steps_are_recorded_and_shown) {
  const Finished finished = run(
      small({"--run", "fp32", "te:telemetry=true", "--telemetry-every", "6", "--inject-inf", "5"}));
  ASSERT_EQ(finished.exit_code, 0) << finished.errors;
  EXPECT_THAT(finished.output, AllOf(HasSubstr("te:telemetry=true: "), HasSubstr("steps skipped"),
                                     HasSubstr("infinite gradients injected: ")));
  int casts = 0, skipped = 0;
  for (const auto &line : lines_of(test_directory() + "/out/metrics.jsonl")) {
    casts += line.contains("operand") ? 1 : 0;
    skipped += line.value("run", "") == "fp32" && line.value("skipped", false) ? 1 : 0;
  }
  EXPECT_EQ(casts, 2 * 12) << "three operands of four layers in two of twelve steps";
  EXPECT_GT(skipped, 0);
  const std::string page = read_text(test_directory() + "/out/report.html");
  EXPECT_THAT(page, AllOf(HasSubstr("\"step\":[6,12]"), HasSubstr("\"sqnr_db\":["),
                          HasSubstr("Casts in te:telemetry=true"), HasSubstr("Injected"),
                          HasSubstr("one infinite gradient in 5 backward calls"),
                          HasSubstr("\"skipped_steps\":" + std::to_string(skipped))));
}

TEST(TrainGpt, help_names_the_exit_codes) {
  const Finished finished = run({"--help"});
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_THAT(finished.output,
              AllOf(HasSubstr("Exit codes"), HasSubstr("130"), HasSubstr("--run"),
                    HasSubstr("--backend"), HasSubstr("--ranks"), HasSubstr("NO_COLOR"),
                    HasSubstr("--telemetry-every"), HasSubstr("--inject-inf")));
}

class Interrupt : public testing::TestWithParam<const char *> {};

TEST_P(Interrupt, keeps_what_was_done) {
  std::vector<std::string> arguments = small({"--run", "fp32", "bf16", "--ranks", GetParam()});
  ChildProgram child(replaced(arguments, "--steps", "1000000"));
  const std::string metrics = test_directory() + "/out/metrics.jsonl";
  ASSERT_GE(wait_for_lines(metrics, 5), 5) << "the training did not start";
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

INSTANTIATE_TEST_SUITE_P(TrainGptRanks, Interrupt, testing::Values("1", "2"),
                         octavo::test::kNameOfValue);

}  // namespace
}  // namespace gpt_test
