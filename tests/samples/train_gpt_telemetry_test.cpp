// Statistics of casts, infinite gradients put in on purpose, and evaluation in the host's
// precision.
#include <gmock/gmock.h>

#include <cmath>
#include <set>
#include <sstream>

#include "host_adapters/standalone/error.h"
#include "samples/train_gpt/octavo/fp8_linear.h"
#include "tests/samples/tiny_training.h"
#include "tests/support/param_name.h"

namespace gpt {
namespace {

std::vector<nlohmann::json> lines_of(const std::string &path) {
  std::vector<nlohmann::json> lines;
  std::istringstream in(gpt_test::read_text(path));
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

class Casts : public testing::TestWithParam<const char *> {};

// One block and the head: five linears with an x, a weight and a dy each.
TEST_P(Casts, are_sampled_on_their_steps_only) {
  Options options = tiny();
  options.steps = 10;
  options.telemetry_every = 4;
  const RunResult result = train_once(options, GetParam(), 2);
  const std::set<int64_t> sampled = {4, 8, 10};
  for (const StepRecord &record : result.steps) {
    EXPECT_EQ(record.casts.size(), sampled.count(record.step) * 15) << "step " << record.step;
    std::set<std::string> operands;
    for (const CastRecord &cast : record.casts) {
      operands.insert(cast.operand);
      const bool is_weight = cast.tensor.find(".weight") != std::string::npos;
      EXPECT_EQ(cast.operand == "w", is_weight) << cast.tensor;
      ASSERT_TRUE(cast.amax && cast.sqnr_db) << cast.operand << " of " << cast.tensor;
      EXPECT_GT(*cast.amax, 0.0) << cast.operand << " of " << cast.tensor;
      // An error of at most 2^-4 (E4M3) or 2^-3 (E5M2) of each value that is neither saturated nor
      // tiny: 18 dB in the worst case. Above 60 dB the codes would be exact.
      EXPECT_GT(*cast.sqnr_db, 18.0) << cast.operand << " of " << cast.tensor;
      EXPECT_LT(*cast.sqnr_db, 60.0) << cast.operand << " of " << cast.tensor;
    }
    EXPECT_EQ(operands.size(), record.casts.empty() ? 0u : 3u);
  }
}

TEST_P(Casts, do_not_change_the_training) {
  Options options = tiny();
  options.steps = 12;
  options.telemetry_every = 0;
  const std::vector<double> without = numbers(train_once(options, GetParam(), 1));
  options.telemetry_every = 3;
  EXPECT_EQ(numbers(train_once(options, GetParam(), 1)), without);
}

INSTANTIATE_TEST_SUITE_P(Telemetry, Casts,
                         testing::Values("te:recipe=delayed,telemetry=true",
                                         "te:recipe=current,telemetry=true"),
                         octavo::test::kNameOfValue);

TEST(Telemetry, each_cast_is_a_line_of_the_metrics) {
  Options options = tiny();
  options.steps = 8;
  options.telemetry_every = 5;
  train_once(options, "te:recipe=delayed,telemetry=true", 1);
  size_t casts = 0;
  for (const nlohmann::json &line : lines_of(gpt_test::test_directory() + "/metrics.jsonl")) {
    if (!line.contains("operand")) continue;
    ++casts;
    EXPECT_TRUE(line["step"] == 5 || line["step"] == 8) << line.dump();
    for (const char *key :
         {"run", "tensor", "amax", "scale", "saturated", "underflow", "sqnr_db"}) {
      EXPECT_TRUE(line.contains(key)) << key << " in " << line.dump();
    }
  }
  EXPECT_EQ(casts, 30u);
}

// Ranks cast other rows of x and dy, but the same weights.
TEST(Telemetry, ranks_add_up_their_casts) {
  Options options = tiny();
  options.steps = 4;
  options.ranks = 2;
  options.threads = 2;
  options.telemetry_every = 4;
  const RunResult two = train_once(options, "te:recipe=current,telemetry=true", 2);
  options.ranks = 1;
  const RunResult one = train_once(options, "te:recipe=current,telemetry=true", 2);
  ASSERT_EQ(two.steps.back().casts.size(), 15u);
  ASSERT_EQ(one.steps.back().casts.size(), 15u);
  for (size_t i = 0; i < 15; ++i) {
    const CastRecord &a = one.steps.back().casts[i], &b = two.steps.back().casts[i];
    EXPECT_EQ(a.tensor, b.tensor);
    EXPECT_NEAR(*a.sqnr_db, *b.sqnr_db, 1.0) << a.operand << " of " << a.tensor;
  }
}

TEST(Telemetry, a_backend_without_statistics_has_no_lines) {
  Options options = tiny();
  options.steps = 3;
  options.telemetry_every = 1;
  for (const char *run : {"te:recipe=delayed", "msamp", "reference", "fp32"}) {
    for (const StepRecord &record : train_once(options, run, 1).steps) {
      EXPECT_TRUE(record.casts.empty()) << run;
    }
  }
}

class Injection : public testing::TestWithParam<const char *> {};

// Five linears in 300 steps and one call in a hundred: about 15 steps are lost. They are taken from
// the end of a schedule that has long converged, so the loss may differ by 2 % only.
TEST_P(Injection, training_recovers_and_counts) {
  Options options = tiny();
  options.steps = 300;
  const RunResult clean = train_once(options, GetParam(), 2);
  EXPECT_EQ(clean.skipped_steps, 0);
  EXPECT_EQ(clean.injected, 0);
  options.inject_inf = 100;
  const RunResult hit = train_once(options, GetParam(), 2);
  EXPECT_GT(hit.injected, 3);
  EXPECT_GT(hit.skipped_steps, 3);
  EXPECT_LE(hit.skipped_steps, hit.injected) << "no step is lost without a fault in it";
  EXPECT_EQ(hit.nonfinite_steps, hit.skipped_steps);
  for (const StepRecord &record : hit.steps) {
    ASSERT_TRUE(std::isfinite(record.loss)) << "step " << record.step;
    // Casts to FP8 saturate, but products of the host make NaN of infinity, in skipped steps only.
    const bool may_be_nan = hit.backend == "host" && record.skipped;
    ASSERT_TRUE(may_be_nan || !std::isnan(record.grad_norm)) << "step " << record.step;
    ASSERT_EQ(record.skipped, record.nonfinite);
    ASSERT_TRUE(record.skipped || std::isfinite(record.grad_norm)) << "step " << record.step;
  }
  ASSERT_TRUE(hit.validation_loss && clean.validation_loss);
  EXPECT_NEAR(*hit.validation_loss, *clean.validation_loss, 0.02 * *clean.validation_loss);
  EXPECT_NEAR(hit.train_loss, clean.train_loss, 0.02 * clean.train_loss);
}

INSTANTIATE_TEST_SUITE_P(Telemetry, Injection,
                         testing::Values("fp32", "te:recipe=delayed", "te:recipe=current",
                                         "msamp:opt_level=O3"),
                         octavo::test::kNameOfValue);

TEST(Telemetry, metrics_say_which_steps_were_skipped) {
  Options options = tiny();
  options.steps = 20;
  options.inject_inf = 1;  // every call of every step
  const RunResult result = train_once(options, "te:recipe=delayed", 1);
  EXPECT_EQ(result.skipped_steps, 20);
  for (const nlohmann::json &line : lines_of(gpt_test::test_directory() + "/metrics.jsonl")) {
    EXPECT_EQ(line.value("skipped", false), true) << line.dump();
    EXPECT_EQ(line.value("nonfinite", false), true) << line.dump();
  }
  EXPECT_NEAR(result.steps.back().loss, 5.7, 0.5) << "no weight changed";
}

// te evaluates in the host's precision unless told otherwise: before any step the two runs hold the
// same weights as fp32, so their losses over validation text have the same bits.
TEST(Evaluation, is_announced_to_the_backend) {
  const Options options = tiny();
  const Corpus corpus = tiny_corpus(options);
  const Threads threads(1);
  OctavoHost host(threads);
  const Batch batch = training_batch(corpus, 4, 16, 1, 0);
  auto loss_of = [&](const std::string &run, bool training) {
    OctavoRun octavo(parse_run(run), "", host);
    Model model(options.size, options.batch, 1, Precision::kFp32, threads);
    attach(model, octavo);
    model.weights_changed();
    return model.forward(batch.tokens.data(), batch.targets.data(), 4, 16, training);
  };
  Model plain(options.size, options.batch, 1, Precision::kFp32, threads);
  const double fp32 = plain.forward(batch.tokens.data(), batch.targets.data(), 4, 16, false);
  const double trained = loss_of("te:recipe=current", true);
  const double evaluated = loss_of("te:recipe=current", false);
  const double in_fp8 = loss_of("te:recipe=current,use_autocast_during_eval=true", false);
  EXPECT_EQ(in_fp8, trained);
  EXPECT_NE(evaluated, trained);
  // Products of fp32 in another order: K <= 128 terms, a few units of 2^-24 each.
  EXPECT_NEAR(evaluated, fp32, 1e-5 * fp32);
  for (const char *run : {"reference", "msamp"}) {
    EXPECT_TRUE(std::isfinite(loss_of(run, false))) << run << " takes the flag, too";
  }
}

}  // namespace
}  // namespace gpt
