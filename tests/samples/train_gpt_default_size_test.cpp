// The claim of the sample: at its default size FP8 training ends where training without it does.
//
// One run of 450 steps is chaotic: a change in the last bit of a gradient moves the final loss by
// 0.6 % (standard deviation over seeds and instruction sets), and docs/results has means over seeds
// within 1 %. So one seed is held to 1 % plus twice that spread, rounded down. It takes two
// minutes.
//
// Under a sanitizer the same claim is checked on a few gentle steps of the same model, since a
// complete training would take longer than a test may.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/samples/child_program.h"

namespace gpt_test {
namespace {

std::map<std::string, double> final_losses(const std::string &metrics, size_t *lines) {
  std::map<std::string, double> losses;
  std::istringstream in(read_text(metrics));
  *lines = 0;
  for (std::string line; std::getline(in, line); ++*lines) {
    const nlohmann::json object = nlohmann::json::parse(line);
    if (object.contains("validation_loss")) losses[object["run"]] = object["validation_loss"];
  }
  return losses;
}

// Trains `runs` and holds each FP8 run to its base: msamp to bf16, te to fp32. Gives the losses.
std::map<std::string, double> train(const std::vector<std::string> &runs,
                                    const std::vector<std::string> &options, double bound) {
  std::vector<std::string> arguments = {"--out", test_directory() + "/out", "--run"};
  arguments.insert(arguments.end(), runs.begin(), runs.end());
  arguments.insert(arguments.end(), options.begin(), options.end());
  const Finished finished = run(arguments);
  EXPECT_EQ(finished.exit_code, 0) << finished.errors;
  std::cout << finished.output;

  size_t lines = 0;
  const auto losses = final_losses(test_directory() + "/out/metrics.jsonl", &lines);
  EXPECT_EQ(losses.size(), runs.size());
  if (losses.size() != runs.size()) return {{"fp32", 1e9}};
  for (const auto &[run, loss] : losses) {
    const std::string base = run.rfind("msamp", 0) == 0 ? "bf16" : "fp32";
    EXPECT_LT(std::abs(loss / losses.at(base) - 1.0), bound)
        << run << " " << loss << " against " << base << " " << losses.at(base);
    if (run != "fp32") {
      EXPECT_NE(loss, losses.at("fp32")) << run << " did not run in FP8";
    }
  }
  return losses;
}

const bool kIsSanitized = std::string(TRAIN_GPT_SANITIZER) != "";

TEST(TrainGptDefaultSize, fp8_ends_where_plain_training_does) {
  std::vector<std::string> options;
  if (kIsSanitized) {
    RecordProperty("steps", "6, because of the sanitizer");
    options = {"--steps", "6", "--batch", "4", "--rate", "0.001", "--sample-bytes", "10"};
  }
  const auto losses = train({"fp32", "te:recipe=delayed", "te:recipe=current", "bf16",
                             "msamp:opt_level=O1", "msamp:opt_level=O2", "msamp:opt_level=O3"},
                            options, 0.02);
  // 3.2 nats is what the frequencies of single bytes alone give.
  if (!kIsSanitized) {
    EXPECT_LT(losses.at("fp32"), 2.2)
        << "the model learned too little for the comparison to mean much";
  }
}

// A third of the steps, one run per backend and base; half a minute, since it is the training of
// the first test command. Seeds 1 to 6 end at ratios to the base with a standard deviation of 0.31
// % (te) and 0.24 % (msamp): train_gpt --seed N --steps 150 --run fp32 te:recipe=delayed bf16
// msamp:opt_level=O2. The bound is three times the larger one, rounded up.
TEST(TrainGptThird, fp8_ends_where_plain_training_does) {
  if (kIsSanitized) GTEST_SKIP() << "TrainGptDefaultSize is as short under a sanitizer";
  const auto losses = train({"fp32", "te:recipe=delayed", "bf16", "msamp:opt_level=O2"},
                            {"--steps", "150", "--sample-bytes", "10"}, 0.01);
  EXPECT_LT(losses.at("fp32"), 2.6) << "the model learned too little";
}

}  // namespace
}  // namespace gpt_test
