// Data parallel training: ranks agree bit for bit, repeat bit for bit, and do what one rank does.
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>

#include "host_adapters/standalone/error.h"
#include "tests/samples/replica_group.h"
#include "tests/support/param_name.h"

namespace gpt {
namespace {

Options few_steps(uint32_t ranks) {
  Options options = tiny();
  options.steps = 12;
  options.sample_bytes = 4;
  options.ranks = ranks;
  options.threads = 2;
  return options;
}

class EveryRankedRun : public testing::TestWithParam<const char *> {};

TEST_P(EveryRankedRun, repeats_bit_for_bit_and_ranks_agree) {
  for (const uint32_t ranks : {2u, 4u}) {
    const Options options = few_steps(ranks);
    const std::vector<double> first = numbers(train_once(options, GetParam(), 1));
    EXPECT_EQ(numbers(train_once(options, GetParam(), 1)), first) << ranks << " ranks";
  }
  const Options options = few_steps(4);
  Group group(GetParam(), options, 4);
  std::vector<StepRecord> last(4);
  group.ranks.run([&](uint32_t rank) {
    Replica &replica = *group.replicas[rank];
    replica.start();
    for (int64_t step = 0; step < 5; ++step) last[rank] = replica.take_step(group.corpus, step);
  });
  const std::vector<unsigned char> weights = weight_bytes(*group.replicas[0]);
  for (size_t rank = 1; rank < 4; ++rank) {
    EXPECT_TRUE(weight_bytes(*group.replicas[rank]) == weights) << "weights of rank " << rank;
    EXPECT_EQ(last[rank].loss, last[0].loss) << rank;
    EXPECT_EQ(last[rank].grad_norm, last[0].grad_norm) << rank;
    EXPECT_EQ(last[rank].telemetry, last[0].telemetry) << "amax and scales of rank " << rank;
  }
}

// What several ranks may differ by from one rank with the same batches. In fp32 the same products
// are summed in another order: each of the K <= 128 terms and 64 rows of a sum adds 2^-24 at most,
// sqrt(64 * 128) * 2^-24 = 5e-6 for independent errors. bf16 rounds the gradient of each share to 8
// bits, FP8 its operands to 4 with a scale of each rank's own, and msamp the gradients again in the
// reduction; Adam's steps are as long as before, so what differs is their direction. The program
// claims that all of this together changes a loss by 1 % at most.
double allowed(const std::string &run) {
  return run == "fp32" ? 1e-5 : 1e-2;
}
// Adam forgives a gradient of the wrong size, so the norm is compared, too: a sum in the place of
// the mean would be as many times too long as there are ranks. 2^-4 is the largest relative error
// of a cast to E4M3.
double allowed_norm(const std::string &run) {
  return run == "fp32" ? 1e-5 : 0x1p-4;
}

TEST_P(EveryRankedRun, does_what_one_rank_does) {
  const RunResult one = train_once(few_steps(1), GetParam(), 1);
  for (const uint32_t ranks : {2u, 4u}) {
    const RunResult several = train_once(few_steps(ranks), GetParam(), 1);
    ASSERT_EQ(several.steps.size(), one.steps.size());
    for (size_t i = 0; i < one.steps.size(); ++i) {
      EXPECT_NEAR(several.steps[i].loss / one.steps[i].loss, 1.0, allowed(GetParam()))
          << ranks << " ranks, step " << i + 1;
      EXPECT_NEAR(several.steps[i].grad_norm / one.steps[i].grad_norm, 1.0,
                  allowed_norm(GetParam()))
          << ranks << " ranks, step " << i + 1;
    }
    EXPECT_NEAR(*several.validation_loss / *one.validation_loss, 1.0, allowed(GetParam())) << ranks;
    EXPECT_LT(several.steps.back().loss, several.steps.front().loss - 1.0) << "it did not learn";
    EXPECT_EQ(several.skipped_steps, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(TrainGpt, EveryRankedRun,
                         testing::Values("fp32", "bf16", "reference", "te:recipe=delayed",
                                         "msamp:opt_level=O1", "msamp:opt_level=O2",
                                         "msamp:opt_level=O3"),
                         octavo::test::kNameOfValue);

// Every rank takes the whole batch, so all have the gradient that one rank alone has, and nothing
// is averaged. What is left is the sharing out: who steps what, the norm over ranks, and the
// weights that travel. It must not change a bit.
class Sharding : public testing::TestWithParam<const char *> {};

TEST_P(Sharding, gives_the_weights_of_one_rank) {
  const Options options = few_steps(1);
  std::vector<unsigned char> expected;
  for (uint32_t ranks = 1; ranks <= 4; ++ranks) {
    // With the batch times the ranks, the share of a rank is the batch of one.
    Options larger = options;
    larger.batch = options.batch * ranks;
    Group group(GetParam(), larger, ranks);
    group.ranks.run([&](uint32_t rank) {
      Replica &replica = *group.replicas[rank];
      OctavoRun &run = replica.octavo();
      replica.start();
      for (int64_t step = 0; step < 5; ++step) {
        const Batch batch = training_batch(group.corpus, options.batch, 16, 1, step);
        replica.model().weights_changed();
        replica.model().forward(batch.tokens.data(), batch.targets.data(), options.batch, 16, true);
        replica.model().backward();
        const double norm = replica.optimizer().gradient_norm();
        replica.optimizer().step(1e-3, norm, false);
        run.end_step();
      }
      EXPECT_EQ(run.sharded(), ranks > 1);
    });
    const std::vector<unsigned char> weights = weight_bytes(*group.replicas.back());
    if (ranks == 1) expected = weights;
    EXPECT_TRUE(weights == expected) << ranks << " ranks";
  }
  Group untrained(GetParam(), options, 1);
  EXPECT_FALSE(weight_bytes(*untrained.replicas[0]) == expected) << "nothing was trained";
}

INSTANTIATE_TEST_SUITE_P(TrainGpt, Sharding,
                         testing::Values("msamp:opt_level=O1", "msamp:opt_level=O2",
                                         "msamp:opt_level=O3"),
                         octavo::test::kNameOfValue);

TEST(Ranks, a_gradient_that_is_not_finite_on_one_rank_stops_the_step_of_all) {
  for (const char *run : {"te:recipe=delayed", "msamp:opt_level=O2", "msamp:opt_level=O3"}) {
    Group group(run, few_steps(2), 2);
    std::vector<StepRecord> records(2);
    // The spoiled weight lies where it is not stepped: its owner sends the right one after the
    // step.
    const uint32_t positions = group.replicas[0]->model().parameters()[1]->id;
    const bool owned =
        group.replicas[0]->octavo().sharded() && group.replicas[0]->octavo().steps(positions);
    const uint32_t bad = owned || positions == OCTAVO_NONE ? 1 : 0;
    std::vector<unsigned char> before;
    group.ranks.run([&](uint32_t rank) {
      Replica &replica = *group.replicas[rank];
      replica.start();
      replica.take_step(group.corpus, 0);
      if (rank == bad) replica.model().parameters()[1]->value[0] = INFINITY;
      if (rank != bad) before = weight_bytes(replica);
      records[rank] = replica.take_step(group.corpus, 1);
    });
    EXPECT_TRUE(records[0].skipped) << run;
    EXPECT_TRUE(records[1].skipped) << run;
    EXPECT_TRUE(weight_bytes(*group.replicas[1 - bad]) == before) << run;
  }
}

TEST(Ranks, the_first_error_comes_out_and_nobody_waits_for_ever) {
  octavo::Ranks ranks(3);
  std::atomic<int> woken = 0;
  auto body = [&](uint32_t rank) {
    const Communicator communicator = ranks.member(rank);
    communicator.mean(1.0);
    if (rank == 1) throw UserError("rank 1", "nothing", "a full disk", "free space");
    try {
      communicator.mean(2.0);  // rank 1 never comes
    } catch (...) {
      ++woken;
      throw;
    }
  };
  try {
    ranks.run(body);
    FAIL() << "no error came out";
  } catch (const UserError &e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("a full disk"));
  }
  EXPECT_EQ(woken, 2);
}

TEST(Ranks, communicate_exactly) {
  octavo::Ranks ranks(4);
  ranks.run([&](uint32_t rank) {
    const Communicator c = ranks.member(rank);
    EXPECT_EQ(c.rank(), rank);
    EXPECT_EQ(c.world(), 4u);
    const double mine = 1.0 / (rank + 3.0);
    EXPECT_THAT(c.gather(mine), testing::ElementsAre(1.0 / 3, 1.0 / 4, 1.0 / 5, 1.0 / 6));
    float sums[] = {static_cast<float>(rank), 0x1p24f, rank == 2 ? 1.0f : 0.0f};
    c.all_reduce_sum(sums, 3);
    // 2^24 + 2^24 + (2^24 + 1, which is 2^24 in fp32) + 2^24
    EXPECT_THAT(sums, testing::ElementsAre(6.0f, 0x1p26f, 1.0f));
    EXPECT_TRUE(c.root_says(rank == 0));
    EXPECT_FALSE(c.root_says(rank != 0));
  });
  const Communicator alone;
  EXPECT_EQ(alone.world(), 1u);
  EXPECT_EQ(alone.mean(0.1), 0.1);
}

TEST(Ranks, the_reduction_of_gradients_is_recorded) {
  const RunResult result = train_once(few_steps(2), "msamp", 1);
  for (const StepRecord &record : result.steps) {
    ASSERT_TRUE(record.telemetry.contains("reduce")) << record.telemetry.dump();
    EXPECT_GT(record.telemetry["reduce"].value("prescale", 0.0), 0.0);
    EXPECT_GE(record.telemetry["reduce"].value("saturated", -1.0), 0.0);
  }
  for (const char *key : {"x/block0.qkv", "dy/block0.qkv"}) {
    EXPECT_GT(result.steps.back().telemetry["amax"].value(key, 0.0), 0.0) << key;
    EXPECT_GT(result.steps.back().telemetry["scale"].value(key, 0.0), 0.0) << key;
  }
}

}  // namespace
}  // namespace gpt
