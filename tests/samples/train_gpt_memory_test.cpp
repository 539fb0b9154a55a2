// Bytes per parameter against the formats that each run keeps its tensors in.
#include <gmock/gmock.h>

#include "samples/train_gpt/octavo/slot_statistics.h"
#include "samples/train_gpt/run/trainer.h"
#include "tests/samples/tiny_training.h"

namespace gpt {
namespace {

// Bytes of one element in each part; the formats of docs, levels and papers.
struct Format {
  const char *run;
  uint64_t weight, gradient, exp_avg, exp_avg_sq, master_weight, weight_cache;  // of linear weights
  uint64_t other_exp_avg, other_exp_avg_sq;  // of the rest, whose weight and gradient are fp32
};

constexpr Format kFormats[] = {
    {"fp32", 4, 4, 4, 4, 0, 0, 4, 4},
    {"bf16", 4, 4, 4, 4, 0, 0, 4, 4},
    {"te:recipe=delayed", 4, 4, 4, 4, 0, 2, 4, 4},
    {"msamp:opt_level=O1", 2, 1, 4, 4, 0, 2, 4, 4},
    {"msamp:opt_level=O2", 2, 1, 1, 2, 0, 2, 1, 2},
    // The E4M3 weight is its own cache in one order, so that only the other one is added.
    {"msamp:opt_level=O3", 1, 1, 1, 2, 2, 1, 1, 2},
    {"msamp:opt_level=O2,weight_cache=false", 2, 1, 1, 2, 0, 0, 1, 2},
    {"msamp:opt_level=O2,gradient_accumulation=fp32", 2, 4, 1, 2, 0, 2, 1, 2},
};

class Memory : public testing::TestWithParam<Format> {};

TEST_P(Memory, is_the_sum_over_the_formats) {
  const Format &format = GetParam();
  const Options options = tiny();
  const Threads threads(1);
  OctavoHost host(threads);
  Replica replica(parse_run(format.run), options, threads, host, {});
  uint64_t linear = 0;
  for (Linear *l : replica.model().linears()) linear += l->weight().count();
  uint64_t all = 0;
  for (const Parameter *p : replica.model().parameters()) all += p->count();
  const uint64_t rest = all - linear;

  const RankMemory memory = replica.memory();
  EXPECT_EQ(memory.model.parameters, all);
  EXPECT_EQ(memory.linear.parameters, linear);
  const auto &of_linear = memory.linear.bytes;
  const auto &of_all = memory.model.bytes;
  EXPECT_EQ(of_linear[kMemoryWeight], linear * format.weight);
  EXPECT_EQ(of_linear[kMemoryGradient], linear * format.gradient);
  EXPECT_EQ(of_linear[kMemoryExpAvg], linear * format.exp_avg);
  EXPECT_EQ(of_linear[kMemoryExpAvgSq], linear * format.exp_avg_sq);
  EXPECT_EQ(of_linear[kMemoryMasterWeight], linear * format.master_weight);
  EXPECT_EQ(of_linear[kMemoryWeightCache], linear * format.weight_cache);
  EXPECT_EQ(of_all[kMemoryWeight], linear * format.weight + rest * 4);
  EXPECT_EQ(of_all[kMemoryGradient], linear * format.gradient + rest * 4);
  EXPECT_EQ(of_all[kMemoryExpAvg], linear * format.exp_avg + rest * format.other_exp_avg);
  EXPECT_EQ(of_all[kMemoryExpAvgSq], linear * format.exp_avg_sq + rest * format.other_exp_avg_sq);
  EXPECT_EQ(of_all[kMemoryMasterWeight], linear * format.master_weight);
  EXPECT_EQ(of_all[kMemoryWeightCache], linear * format.weight_cache);
  // One i32 a tensor counts its steps, when the backend steps it.
  const bool steps = replica.steps_in_slots();
  EXPECT_EQ(of_all[kMemoryStep], steps ? 4 * replica.model().parameters().size() : 0);
  EXPECT_EQ(of_linear[kMemoryStep], steps ? 4 * replica.model().linears().size() : 0);

  uint64_t sum = 0;
  for (size_t i = kMemoryWeight; i <= kMemoryStep; ++i) sum += of_all[i];
  EXPECT_DOUBLE_EQ(memory.model.training_bytes_per_parameter(),
                   static_cast<double>(sum) / static_cast<double>(all));
  if (replica.octavo().store() == nullptr) return;

  // Own tensors and slots: nothing is counted twice, nothing is left out.
  uint64_t own = 0;
  for (const Parameter *p : replica.model().parameters()) {
    own += p->value.bytes() + p->grad.bytes() + p->exp_avg.bytes() + p->exp_avg_sq.bytes();
  }
  uint64_t slots = 0;
  for (const auto &[role, bytes] : slot_bytes(replica.octavo())) slots += bytes;
  uint64_t counted = 0;
  for (const uint64_t bytes : of_all) counted += bytes;
  EXPECT_EQ(counted, own + slots);
  EXPECT_EQ(slots, replica.octavo().store()->bytes());
}

INSTANTIATE_TEST_SUITE_P(TrainGpt, Memory, testing::ValuesIn(kFormats),
                         [](const testing::TestParamInfo<Format> &case_) {
                           std::string name = case_.param.run;
                           for (char &c : name) c = std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

TEST(TrainGptMemory, the_program_frees_what_the_backend_owns) {
  const Options options = tiny();
  const Threads threads(1);
  OctavoHost host(threads);
  Replica replica(parse_run("msamp"), options, threads, host, {});
  for (Linear *linear : replica.model().linears()) {
    EXPECT_EQ(linear->weight().value.data(), nullptr) << linear->name();
    EXPECT_EQ(linear->weight().grad.data(), nullptr) << linear->name();
  }
  for (const Parameter *p : replica.model().parameters()) {
    EXPECT_EQ(p->exp_avg.data(), nullptr) << p->name;
    EXPECT_EQ(p->exp_avg_sq.data(), nullptr) << p->name;
  }
}

TEST(TrainGptMemory, ranks_share_the_states_out) {
  Options options = tiny();
  options.steps = 1;
  const RunResult one = train_once(options, "msamp:opt_level=O3", 1);
  ASSERT_EQ(one.memory.size(), 1u);
  options.ranks = 4;
  const RunResult four = train_once(options, "msamp:opt_level=O3", 1);
  ASSERT_EQ(four.memory.size(), 4u);
  const MemoryUse alone = one.memory[0].model;
  const MemoryUse together = summed(four.memory).model;
  for (const MemoryPart part : {kMemoryExpAvg, kMemoryExpAvgSq, kMemoryMasterWeight, kMemoryStep}) {
    EXPECT_EQ(together.bytes[part], alone.bytes[part]) << kMemoryNames[part];
    for (const RankMemory &rank : four.memory) {
      EXPECT_LT(rank.model.bytes[part], alone.bytes[part]) << kMemoryNames[part];
    }
  }
  for (const MemoryPart part : {kMemoryWeight, kMemoryGradient, kMemoryWeightCache}) {
    EXPECT_EQ(together.bytes[part], 4 * alone.bytes[part]) << kMemoryNames[part];
  }
  const size_t fullest = fullest_rank(four.memory);
  for (const RankMemory &rank : four.memory) {
    EXPECT_LE(rank.model.bytes_per_parameter(), four.memory[fullest].model.bytes_per_parameter());
  }
}

}  // namespace
}  // namespace gpt
