// octavo estimate --mesh against ranks that train: what each of them keeps and hands to
// collectives, to the byte.
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>

#include "samples/train_gpt/octavo/slot_statistics.h"
#include "tests/samples/model_shapes.h"
#include "tests/samples/replica_group.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

namespace gpt {
namespace {

using nlohmann::json;

// A rank's collective that counts the bytes given to each kind of operation.
class Counting {
 public:
  explicit Counting(const octavo_collective *inner) : inner_(inner), table_(*inner) {
    table_.ctx = this;
    table_.run = [](void *ctx, uint32_t collective, uint32_t dtype, const void *send,
                    uint64_t send_count, void *recv, uint64_t recv_count, void *stream) {
      auto *self = static_cast<Counting *>(ctx);
      self->add(collective, dtype, send_count);
      return self->inner_->run(self->inner_->ctx, collective, dtype, send, send_count, recv,
                               recv_count, stream);
    };
    table_.broadcast = [](void *ctx, uint32_t root, void *data, uint64_t bytes, void *stream) {
      auto *self = static_cast<Counting *>(ctx);
      self->given["broadcast"] += bytes;
      return self->inner_->broadcast(self->inner_->ctx, root, data, bytes, stream);
    };
  }
  Counting(const Counting &) = delete;
  Counting &operator=(const Counting &) = delete;
  const octavo_collective *table() const { return &table_; }

  std::map<std::string, uint64_t> given;
  uint64_t norm_elements = 0;  // of the all-reduce that is the program's own; 0: none

 private:
  void add(uint32_t collective, uint32_t dtype, uint64_t count) {
    // The program's own, which no plan has: a number of each rank, and the sums of the norm.
    if (collective == OCTAVO_COLLECTIVE_ALL_GATHER && dtype == OCTAVO_U8 && count == 8) return;
    if (collective == OCTAVO_COLLECTIVE_ALL_REDUCE_SUM && count == norm_elements) return;
    const char *names[] = {"",           "all_reduce_max", "all_reduce_sum",
                           "all_to_all", "all_gather",     "reduce_scatter_sum"};
    given[names[collective]] += count * OCTAVO_DTYPE_BITS(dtype) / 8;
  }

  const octavo_collective *inner_;
  octavo_collective table_;
};

using Case = std::tuple<const char *, uint32_t>;

class PlanOfTraining : public testing::TestWithParam<Case> {};

TEST_P(PlanOfTraining, is_what_ranks_keep_and_send) {
  const auto &[name, world] = GetParam();
  const Options options = tiny();
  const Corpus corpus = tiny_corpus(options);
  const Threads threads(1);
  octavo::Ranks ranks(world);
  std::vector<std::unique_ptr<Counting>> counting;
  std::vector<std::unique_ptr<OctavoHost>> hosts;
  std::vector<std::unique_ptr<Replica>> replicas;
  for (uint32_t rank = 0; rank < world; ++rank) {
    counting.push_back(std::make_unique<Counting>(ranks.collective(rank)));
    hosts.push_back(std::make_unique<OctavoHost>(threads));
    replicas.push_back(std::make_unique<Replica>(
        parse_run(name), options, threads, *hosts.back(),
        Communicator(octavo::Collective(counting.back()->table(), rank))));
  }
  const octavo::test::TempDir dir;
  const std::string shapes = dir.write("shapes.json", shapes_of(replicas[0]->model()).dump());
  ranks.run([&](uint32_t rank) {
    Replica &replica = *replicas[rank];
    replica.start();
    replica.take_step(corpus, 0);
    counting[rank]->given.clear();
    if (replica.octavo().sharded())
      counting[rank]->norm_elements = replica.model().parameters().size();
    replica.take_step(corpus, 1);
  });

  const octavo::test::Finished f = octavo::test::run_program(
      {OCTAVO_CLI, "estimate", shapes, "--json", "--mesh", std::to_string(world), "--backend", name,
       "--config", options.config});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const json plan = json::parse(f.out)["columns"][0];
  ASSERT_TRUE(plan.contains("wire")) << plan;
  std::map<std::string, uint64_t> expected;
  for (const json &o : plan["wire"]) {
    EXPECT_EQ(o["ranks"], world);
    expected[o["collective"]] += o["given"].get<uint64_t>();
  }
  for (uint32_t rank = 0; rank < world; ++rank)
    EXPECT_EQ(counting[rank]->given, expected) << "rank " << rank;

  uint64_t most = 0, least = UINT64_MAX;
  std::array<uint64_t, kMemoryParts> sum = {};
  for (const auto &replica : replicas) {
    const MemoryUse use = replica->memory().model;
    uint64_t total = 0;
    for (size_t part = 0; part < kMemoryParts; ++part) {
      total += use.bytes[part];
      sum[part] += use.bytes[part];
    }
    most = std::max(most, total);
    least = std::min(least, total);
  }
  EXPECT_EQ(plan["fullest"]["total"], most);
  EXPECT_EQ(plan["least"]["total"], least);
  for (const auto &[part, key] :
       {std::pair(kMemoryWeight, "weight"), std::pair(kMemoryGradient, "gradient"),
        std::pair(kMemoryExpAvg, "exp_avg"), std::pair(kMemoryExpAvgSq, "exp_avg_sq"),
        std::pair(kMemoryMasterWeight, "master_weight"), std::pair(kMemoryStep, "step"),
        std::pair(kMemoryWeightCache, "weight_cache"), std::pair(kMemoryFp8State, "fp8_state")})
    EXPECT_EQ(plan["all"]["bytes"][key], sum[part]) << key;
}

INSTANTIATE_TEST_SUITE_P(
    TrainGpt, PlanOfTraining,
    testing::Combine(testing::Values("te", "te:recipe=block", "msamp:opt_level=O1",
                                     "msamp:opt_level=O2", "msamp:opt_level=O3"),
                     testing::Values(2u, 4u)),
    [](const testing::TestParamInfo<Case> &of) {
      std::string name = std::get<0>(of.param);
      for (char &c : name) c = std::isalnum(c) != 0 ? c : '_';
      return name + "_on_" + std::to_string(std::get<1>(of.param));
    });

}  // namespace
}  // namespace gpt
