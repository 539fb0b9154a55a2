// The parts of train_gpt: its schedule, the names of runs, its text, and what a run keeps.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "host_adapters/standalone/error.h"
#include "samples/train_gpt/model/corpus.h"
#include "samples/train_gpt/model/optimizer.h"
#include "samples/train_gpt/octavo/octavo_run.h"
#include "samples/train_gpt/run/metrics.h"
#include "samples/train_gpt/run/terminal.h"
#include "samples/train_gpt/run/trainer.h"
#include "tests/samples/child_program.h"

namespace gpt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(LearningRate, ends_where_it_is_asked_to) {
  EXPECT_DOUBLE_EQ(learning_rate(1.0, 0.0, 10, 100), 1.0);
  EXPECT_NEAR(learning_rate(1.0, 0.0, 55, 100), 0.5, 1e-12);
  EXPECT_NEAR(learning_rate(1.0, 0.0, 100, 100), 0.0, 1e-12);
  EXPECT_GT(learning_rate(1.0, 0.0, 99, 100), 0.0) << "the last step moves the weights, too";
  EXPECT_DOUBLE_EQ(learning_rate(1.0, 1.0, 77, 100), 1.0);
}

TEST(LearningRate, warms_up_and_falls_to_a_tenth) {
  EXPECT_DOUBLE_EQ(learning_rate(1.0, 0.1, 0, 100), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(1.0, 0.1, 9, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(1.0, 0.1, 10, 100), 1.0);
  EXPECT_NEAR(learning_rate(1.0, 0.1, 55, 100), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(1.0, 0.1, 100, 100), 0.1, 1e-12);
  EXPECT_GT(learning_rate(1.0, 0.1, 0, 1), 0.0);
}

TEST(RunSpec, takes_a_name_with_settings_apart) {
  const RunSpec spec = parse_run("te:recipe=current,margin=-1");
  EXPECT_EQ(spec.kind, RunSpec::Kind::kBackend);
  EXPECT_EQ(spec.backend, "te");
  EXPECT_THAT(spec.settings, ElementsAre(std::pair<std::string, std::string>("recipe", "current"),
                                         std::pair<std::string, std::string>("margin", "-1")));
  EXPECT_EQ(parse_run("fp32").kind, RunSpec::Kind::kFp32);
  EXPECT_EQ(parse_run("bf16").kind, RunSpec::Kind::kBf16);
  EXPECT_EQ(parse_run("config").kind, RunSpec::Kind::kConfig);
}

TEST(RunSpec, refuses_what_cannot_be_a_run) {
  for (const char *name : {"", "FP32", "te:", "te:recipe", "te:=x", "te:recipe=", "te:a=b,",
                           "fp32:a=b", "config:", "a b"}) {
    EXPECT_THROW(parse_run(name), UserError) << name;
  }
}

TEST(Corpus, holds_out_about_a_tenth_in_whole_files) {
  const std::string directory = gpt_test::test_directory() + "/text";
  std::filesystem::create_directories(directory);
  for (int i = 10; i < 30; ++i) {
    gpt_test::write_text(directory + "/" + std::to_string(i),
                         std::string(static_cast<size_t>(1000 + 37 * i), static_cast<char>(i)));
  }
  const Corpus corpus = load_corpus({directory}, 64);
  const double share = static_cast<double>(corpus.validation.size()) /
                       static_cast<double>(corpus.validation.size() + corpus.train.size());
  EXPECT_GT(share, 0.05);
  EXPECT_LT(share, 0.2);
  EXPECT_EQ(corpus.validation_files.size() + corpus.train_files.size(), 20u);
  for (const unsigned char byte : corpus.validation) {
    EXPECT_EQ(std::count(corpus.train.begin(), corpus.train.end(), byte), 0) << "a file was split";
    if (HasFailure()) break;
  }
  EXPECT_NEAR(corpus.unigram_entropy, std::log(20.0), 0.1);
}

TEST(Corpus, leaves_symbolic_links_out_and_splits_a_single_file) {
  const std::string directory = gpt_test::test_directory() + "/text";
  std::filesystem::create_directories(directory);
  gpt_test::write_text(directory + "/one", gpt_test::some_text(5000));
  std::filesystem::create_symlink(directory + "/one", directory + "/two");
  const Corpus corpus = load_corpus({directory}, 64);
  EXPECT_EQ(corpus.train.size(), 4500u);
  EXPECT_EQ(corpus.validation.size(), 500u);
  EXPECT_THAT(corpus.split, HasSubstr("one file"));
}

TEST(Corpus, batches_depend_on_seed_and_step_alone) {
  const std::string path = gpt_test::test_directory() + "/text";
  gpt_test::write_text(path, gpt_test::some_text(5000));
  const Corpus corpus = load_corpus({path}, 16);
  const Batch batch = training_batch(corpus, 4, 16, 1, 7);
  EXPECT_EQ(batch.tokens, training_batch(corpus, 4, 16, 1, 7).tokens);
  EXPECT_NE(batch.tokens, training_batch(corpus, 4, 16, 2, 7).tokens);
  EXPECT_NE(batch.tokens, training_batch(corpus, 4, 16, 1, 8).tokens);
  for (size_t i = 0; i + 1 < 16; ++i) EXPECT_EQ(batch.targets[i], batch.tokens[i + 1]);

  int64_t windows = 0;
  for (const Batch &b : validation_batches(corpus, 4, 16, 100)) windows += b.sequences;
  EXPECT_EQ(windows, (500 - 1) / 16);
  EXPECT_EQ(validation_batches(corpus, 4, 16, 3).size(), 3u);
}

TEST(Metrics, numbers_that_are_not_finite_become_null) {
  StepRecord record;
  record.loss = NAN;
  record.skipped = true;
  const nlohmann::json parsed = nlohmann::json::parse(to_json("a", record).dump());
  EXPECT_TRUE(parsed["loss"].is_null());
  EXPECT_EQ(parsed["skipped"], true);
  EXPECT_FALSE(parsed.contains("validation_loss"));
}

// What a run keeps for its page, against sums over all of its steps.
TEST(RunResult, a_long_run_keeps_no_more_than_a_short_one) {
  RunResult result;
  Options options;
  options.steps = 50000;
  LineLog log("");
  Progress progress(true);
  double saturated = 0.0, seconds = 0.0;
  for (int64_t step = 1; step <= options.steps; ++step) {
    StepRecord record;
    record.step = step;
    record.loss = 1.0 / static_cast<double>(step);
    record.tokens_per_s = static_cast<double>(1 + step % 7);
    record.telemetry = {{"amax", {{"x/up", step}}}};
    if (step % 10000 == 0) record.validation = 2.0;
    record.casts = {{"x", "up", 1.0, 1.0, static_cast<double>(step % 3), 0.0, 30.0}};
    record.casts[0].sqnr_db = step == 30001 ? 19.0 : 30.0;
    saturated += record.casts[0].saturated;
    seconds += 1.0 / record.tokens_per_s;
    keep_step(result, std::move(record), log, progress);
    ASSERT_LE(result.steps.size(), kMostSteps) << step;
    ASSERT_EQ(result.steps.back().step, step);
  }
  summarize(result, options);
  EXPECT_GT(result.steps.size(), kMostSteps / 4);
  int64_t before = 0, validations = 0;
  for (const StepRecord &record : result.steps) {
    EXPECT_TRUE(record.step % result.every == 0 || record.validation) << record.step;
    EXPECT_LT(std::exchange(before, record.step), record.step);
    validations += record.validation ? 1 : 0;
  }
  EXPECT_EQ(validations, 5);
  EXPECT_EQ(result.validation_loss, 2.0);
  double loss = 0.0;
  for (int64_t step = options.steps - 19; step <= options.steps; ++step)
    loss += 1.0 / static_cast<double>(step) / 20.0;
  EXPECT_EQ(result.train_loss, loss);
  EXPECT_EQ(result.tokens_per_s, static_cast<double>(options.steps) / seconds);
  const nlohmann::json &x = result.casts["operands"]["x"];
  EXPECT_EQ(x["saturated"], saturated);
  EXPECT_EQ(x["worst"], nlohmann::json({{"db", 19.0}, {"tensor", "up"}, {"step", 30001}}));
  EXPECT_LE(result.casts["step"].size(), kMostSteps);
  EXPECT_EQ(x["sqnr_db"].size(), result.casts["step"].size());
}

}  // namespace
}  // namespace gpt
