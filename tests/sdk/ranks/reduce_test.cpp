// octavo_reduce_gradients: the stages of a backend, with the host's collective between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/draft/reduction.h"
#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/model.h"

namespace octavo::test {
namespace {

// A collective of ranks that all hold the same: the sum is world times the contribution.
struct Ranks {
  std::vector<uint32_t> collectives;
  octavo_status answer = OCTAVO_OK;
  octavo_collective table = {};

  explicit Ranks(uint32_t world) {
    table.size = sizeof(table);
    table.kind = OCTAVO_KIND_COLLECTIVE;
    table.ctx = this;
    table.world = world;
    table.run = [](void *ctx, uint32_t collective, uint32_t dtype, const void *send,
                   uint64_t send_count, void *recv, uint64_t recv_count, void *) -> octavo_status {
      auto *self = static_cast<Ranks *>(ctx);
      EXPECT_EQ(dtype, OCTAVO_F32);
      EXPECT_EQ(send_count, recv_count);
      self->collectives.push_back(collective);
      for (uint64_t i = 0; i < send_count; ++i)
        static_cast<float *>(recv)[i] =
            static_cast<const float *>(send)[i] * static_cast<float>(self->table.world);
      return self->answer;
    };
  }
};

class ReduceTest : public testing::Test {
 protected:
  void open(const std::string &fault) {
    put_fake(dir, "plugins", fault);
    request.set("plugins.trust", "dev").set("fp8.backend", "fake").plugins(dir / "plugins");
    ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
    add_weight(run.get(), "w", 4, 8);
    ASSERT_EQ(octavo_seal(run.get()), OCTAVO_OK) << request.host.error();
  }
  octavo_status reduce(const Ranks &ranks) {
    return octavo_reduce_gradients(run.get(), items, 3, &ranks.table, send, recv, &state, nullptr);
  }

  Environment environment;
  TempDir dir;
  Request request;
  RunPtr run;
  octavo_parameter_item items[3] = {};
  float send[2] = {};
  float recv[2] = {};
  float state = 0;
};

TEST_F(ReduceTest, collectives_run_between_stages) {
  open("good");
  const Ranks ranks(4);
  ASSERT_EQ(reduce(ranks), OCTAVO_OK) << request.host.error();
  EXPECT_THAT(ranks.collectives, testing::ElementsAre(uint32_t{OCTAVO_COLLECTIVE_ALL_REDUCE_SUM}));
  EXPECT_EQ(state, 4.0f * (4.0f + 3.0f));  // world times (world + number of parameters)
}

TEST_F(ReduceTest, failed_collective_ends_the_reduction) {
  open("good");
  Ranks ranks(2);
  ranks.answer = OCTAVO_NO_RESOURCE;
  EXPECT_EQ(reduce(ranks), OCTAVO_NO_RESOURCE);
  EXPECT_EQ(request.host.error(),
            "octavo_reduce_gradients: stage 0: the host's collective answered status 6");
  EXPECT_EQ(state, 0.0f);
}

TEST_F(ReduceTest, failed_stage_ends_the_reduction) {
  open("stage_fails");
  const Ranks ranks(2);
  EXPECT_EQ(reduce(ranks), OCTAVO_FAILED_DEVICE);
  EXPECT_THAT(ranks.collectives, testing::ElementsAre());
}

TEST_F(ReduceTest, unknown_collective_is_refused) {
  open("collective");
  const Ranks ranks(2);
  EXPECT_EQ(reduce(ranks), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(request.host.error(), "stage 0 requests collective 99, unknown to this host");
  EXPECT_THAT(ranks.collectives, testing::ElementsAre());
}

TEST_F(ReduceTest, backend_without_gradients) {
  request.set("plugins.trust", "dev").set("fp8.backend", "te");
  ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
  EXPECT_EQ(static_cast<const octavo_gradients *>(
                octavo_run_interface(run.get(), OCTAVO_STR(OCTAVO_GRADIENTS_ID))),
            nullptr);
  EXPECT_EQ(reduce(Ranks(2)), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(request.host.error(),
            "the chosen backend has no octavo.gradients/1: its gradients are the host's own, "
            "reduce them there");
}

TEST_F(ReduceTest, null_arguments) {
  open("good");
  const Ranks ranks(2);
  octavo_collective without = ranks.table;
  without.run = nullptr;
  const auto call = [&](octavo_run *r, const octavo_parameter_item *i, const octavo_collective *c) {
    return octavo_reduce_gradients(r, i, 3, c, send, recv, &state, nullptr);
  };
  EXPECT_EQ(call(nullptr, items, &ranks.table), OCTAVO_INVALID);
  EXPECT_EQ(call(run.get(), nullptr, &ranks.table), OCTAVO_INVALID);
  EXPECT_EQ(call(run.get(), items, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(call(run.get(), items, &without), OCTAVO_INVALID);
}

}  // namespace
}  // namespace octavo::test
