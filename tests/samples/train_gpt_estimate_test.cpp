// octavo estimate against the ledger of a training of the same shapes: equal to the byte.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "samples/train_gpt/octavo/slot_statistics.h"
#include "samples/train_gpt/run/trainer.h"
#include "tests/samples/model_shapes.h"
#include "tests/samples/tiny_training.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

namespace gpt {
namespace {

using nlohmann::json;

class EstimateOfTraining : public testing::TestWithParam<const char *> {};

// What the linears of the training save for all of its rows.
uint64_t saved_bytes(Replica &replica) {
  const auto rows = static_cast<uint64_t>(replica.model().rows());
  uint64_t sum = 0;
  const octavo_run *run = replica.octavo().get();
  for (uint32_t i = 0; i < replica.model().linears().size(); ++i)
    if (const octavo_linear_plan *plan = octavo_run_plan(run, i); plan != nullptr)
      sum += octavo_extent_bytes(&plan->saved, rows);
  return sum;
}

TEST_P(EstimateOfTraining, is_its_ledger) {
  const std::string run = GetParam(), name = run == "config" ? "te" : run;
  Options options = tiny();
  if (run == "config") options.config = mixed_recipes();
  const Threads threads(1);
  OctavoHost host(threads);
  Replica replica(parse_run(run), options, threads, host, {});
  const octavo::test::TempDir dir;
  std::vector<std::string> command = {OCTAVO_CLI,
                                      "estimate",
                                      dir.write("shapes.json", shapes_of(replica.model()).dump()),
                                      "--json",
                                      "--batch",
                                      std::to_string(options.batch),
                                      "--sequence",
                                      std::to_string(options.size.context)};
  const bool in_host = name == "fp32" || name == "bf16";
  if (!in_host) command.insert(command.end(), {"--backend", name});
  if (!options.config.empty()) command.push_back(options.config);
  const octavo::test::Finished f = octavo::test::run_program(command);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const json j = json::parse(f.out);
  const MemoryUse ledger = replica.memory().model;
  EXPECT_EQ(j["parameters"], ledger.parameters);
  json column;
  for (const json &c : j["columns"])
    if (c["name"] == name) column = c;
  ASSERT_TRUE(column.contains("bytes")) << column;
  const json &bytes = column["bytes"];
  for (const auto &[part, key] :
       {std::pair(kMemoryWeight, "weight"), std::pair(kMemoryGradient, "gradient"),
        std::pair(kMemoryExpAvg, "exp_avg"), std::pair(kMemoryExpAvgSq, "exp_avg_sq"),
        std::pair(kMemoryMasterWeight, "master_weight"), std::pair(kMemoryStep, "step"),
        std::pair(kMemoryFp8State, "fp8_state")})
    EXPECT_EQ(bytes[key], ledger.bytes[part]) << key;
  // train_gpt rounds to bf16 in fp32 buffers that it does not count as a cache.
  if (name != "bf16") {
    EXPECT_EQ(bytes["weight_cache"], ledger.bytes[kMemoryWeightCache]);
  }
  if (in_host) return;
  const size_t in_host_by_rules = run == "config" ? 1 : 0;  // the head
  EXPECT_EQ(column["linears_in_fp8"], replica.model().linears().size() - in_host_by_rules);
  const uint64_t saved = saved_bytes(replica);
  EXPECT_GT(saved, 0u);
  // The host keeps the input of a linear of its own in bf16.
  const auto inputs = static_cast<uint64_t>(replica.model().rows() * options.size.width) * 2;
  EXPECT_EQ(bytes["saved"], saved + in_host_by_rules * inputs);
}

INSTANTIATE_TEST_SUITE_P(TrainGpt, EstimateOfTraining,
                         testing::Values("fp32", "bf16", "te", "te:recipe=block", "config",
                                         "msamp:opt_level=O1", "msamp:opt_level=O2",
                                         "msamp:opt_level=O3", "msamp:weight_cache=false"),
                         [](const testing::TestParamInfo<const char *> &of) {
                           std::string name = of.param;
                           for (char &c : name) c = std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace gpt
