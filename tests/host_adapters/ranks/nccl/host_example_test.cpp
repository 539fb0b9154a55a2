// The host of docs/nccl.md, run as two ranks: a step, a lost rank, and the next step.
#include "tests/host_adapters/ranks/nccl/host_example.h"

#include <gmock/gmock.h>

#include <barrier>
#include <cstring>

#include "tests/host_adapters/ranks/nccl/world.h"
#include "tests/plugins/msamp_reduction.h"

namespace octavo::test {
namespace {

using testing::Each;

class NcclExample : public MsampReduction {
 protected:
  struct Rank {
    NcclExample *test;
    uint32_t rank;
  };
  launcher launcher_of(Rank &r) {
    launcher l = {};
    l.ctx = &r;
    l.rank = r.rank;
    l.world = 2;
    l.send_from_rank_0 = [](void *ctx, void *data, size_t bytes) {
      auto &own = *static_cast<Rank *>(ctx);
      if (own.rank == 0) own.test->letter_.assign(static_cast<char *>(data), bytes);
      own.test->meet_.arrive_and_wait();
      std::memcpy(data, own.test->letter_.data(), bytes);
      own.test->meet_.arrive_and_wait();
    };
    l.synchronize = [](void *, void *stream) {
      return static_cast<int>(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
    };
    return l;
  }
  octavo_status step(const launcher &l, octavo_nccl *ranks) {
    const std::vector<octavo_parameter_item> items = group->items(l.rank, group->all());
    uint64_t buffer = 0, state = 0;
    const octavo_status status = octavo_reduction_bytes(group->run(), group->all().data(),
                                                        group->all().size(), 2, &buffer, &state);
    if (status != OCTAVO_OK) return status;
    const AlignedBytes send(buffer), recv(buffer), scratch(state);
    const struct step s = {group->run(), group->store(l.rank), items.data(),  items.size(),
                           send.get(),   recv.get(),           scratch.get(), nullptr};
    return combine_gradients(&l, ranks, &s);
  }

  std::string letter_;
  std::barrier<> meet_{2};
};

TEST_F(NcclExample, goes_on_after_a_lost_rank) {
  NcclWorld world(2);
  const octavo_str library = OCTAVO_STR(OCTAVO_FAKE_NCCL);
  open(2, kTwoShot, {}, {{16, 24}});
  for (uint32_t rank = 0; rank < 2; ++rank)
    group->write(rank, 0, some_matrix(16, 24, 1 + rank, 1.0f));
  Rank ranks[2] = {{this, 0}, {this, 1}};
  octavo_nccl *handles[2] = {};
  EXPECT_THAT(world.each([&](uint32_t rank) {
    const launcher l = launcher_of(ranks[rank]);
    octavo_status status = open_ranks(&l, world.listener(rank).host(), library, &handles[rank]);
    if (status == OCTAVO_OK) status = step(l, handles[rank]);
    return status;
  }),
              Each(octavo_status{OCTAVO_OK}))
      << world.listener(0).first();
  EXPECT_EQ(all_bytes()[0], all_bytes()[1]);
  fake().aborts_are_seen = true;
  octavo_nccl_abort(handles[1]);
  EXPECT_THAT(
      world.each([&](uint32_t rank) { return step(launcher_of(ranks[rank]), handles[rank]); }),
      Each(octavo_status{OCTAVO_FAILED_DEVICE}));
  EXPECT_THAT(world.each([&](uint32_t rank) {
    const launcher l = launcher_of(ranks[rank]);
    octavo_status status = open_again(&l, world.listener(rank).host(), library, &handles[rank]);
    if (status == OCTAVO_OK) status = step(l, handles[rank]);
    return status;
  }),
              Each(octavo_status{OCTAVO_OK}))
      << world.listener(0).last();
  EXPECT_EQ(all_bytes()[0], all_bytes()[1]);
  world.each([&](uint32_t rank) -> octavo_status {
    octavo_nccl_close(handles[rank]);
    return OCTAVO_OK;
  });
  EXPECT_EQ(fake().alive, 0);
  EXPECT_EQ(fake().violations, 0) << fake().violation.load();
}

}  // namespace
}  // namespace octavo::test
