// The claim of the sample: at its default size FP8 training ends where training without it does.
//
// One run of 450 steps is chaotic: a change in the last bit of a gradient moves the final loss by
// 0.6 % (standard deviation over seeds and instruction sets), and docs/results has means over seeds
// that lie within 1 %. So one seed is held to 1 % plus twice that spread, rounded down.
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

TEST(TrainGptDefaultSize, fp8_ends_where_plain_training_does) {
  const bool is_short = std::string(TRAIN_GPT_SANITIZER) != "";
  std::vector<std::string> arguments = {"--out",
                                        test_directory() + "/out",
                                        "--run",
                                        "fp32",
                                        "te:recipe=delayed",
                                        "te:recipe=current",
                                        "bf16",
                                        "msamp:opt_level=O1",
                                        "msamp:opt_level=O2",
                                        "msamp:opt_level=O3"};
  if (is_short) {
    RecordProperty("steps", "6, because of the sanitizer");
    arguments.insert(arguments.end(),
                     {"--steps", "6", "--batch", "4", "--rate", "0.001", "--sample-bytes", "10"});
  }
  const Finished finished = run(arguments);
  ASSERT_EQ(finished.exit_code, 0) << finished.errors;

  size_t lines = 0;
  const auto losses = final_losses(test_directory() + "/out/metrics.jsonl", &lines);
  ASSERT_EQ(losses.size(), 7u);
  const double fp32 = losses.at("fp32");
  for (const auto &[run, loss] : losses) {
    const std::string base = run.rfind("msamp", 0) == 0 ? "bf16" : "fp32";
    EXPECT_LT(std::abs(loss / losses.at(base) - 1.0), 0.02)
        << run << " " << loss << " against " << base << " " << losses.at(base);
    if (run != "fp32") {
      EXPECT_NE(loss, fp32) << run << " did not run in FP8";
    }
  }
  // 3.2 nats is what the frequencies of single bytes alone give.
  if (!is_short) {
    EXPECT_LT(fp32, 2.2) << "the model learned too little for the comparison to mean much";
  }
  std::cout << finished.output;
}

}  // namespace
}  // namespace gpt_test
