// msamp's FP8 gradient reduction over the fake libnccl against the same over octavo_ranks.
#include <gmock/gmock.h>

#include <limits>

#include "octavo/draft/reduction.h"
#include "tests/host_adapters/ranks/nccl/world.h"
#include "tests/plugins/msamp_reduction.h"
#include "tests/plugins/owning_host.h"
#include "tests/support/rank_threads.h"

namespace octavo::test {
namespace {

using testing::Each;

class NcclGradients : public MsampReduction {
 protected:
  octavo_status reduce(uint32_t rank, const octavo_collective &c) {
    const std::vector<octavo_parameter_item> items = group->items(rank, group->all());
    uint64_t buffer = 0, state = 0;
    octavo_status status = octavo_reduction_bytes(
        group->run(), group->all().data(), group->all().size(), group->world(), &buffer, &state);
    if (status != OCTAVO_OK) return status;
    const AlignedBytes send(buffer), recv(buffer), scratch(state);
    status = octavo_reduce_gradients(group->run(), items.data(), items.size(), &c, send.get(),
                                     recv.get(), scratch.get(), nullptr);
    if (status != OCTAVO_OK) return status;
    return octavo_store_reduce(group->store(rank), &c, nullptr);
  }

  // The gradient slots and the combined counters of every rank, after a reduction over `on_ranks`.
  template <typename Ranks>
  std::vector<std::vector<uint8_t>> reduced(Ranks &on_ranks, int one_shot, const char *prescale,
                                            float special) {
    const std::vector<std::pair<int64_t, int64_t>> shapes = {{17, 31}, {1, 9}, {64, 48}};
    open(on_ranks.world(), one_shot, {{"prescale", prescale}}, shapes);
    for (uint32_t rank = 0; rank < on_ranks.world(); ++rank)
      for (const uint32_t p : group->all()) {
        Matrix m = some_matrix(shapes[p].first, shapes[p].second, 9 * rank + p,
                               0.5f + static_cast<float>(rank));
        if (rank == 1 && p == 1) m.v[3] = special;
        group->write(rank, p, m);
      }
    EXPECT_THAT(
        on_ranks.run([&](uint32_t rank, const octavo_collective &c) { return reduce(rank, c); }),
        Each(octavo_status{OCTAVO_OK}))
        << request->host.error();
    auto bytes = all_bytes();
    for (uint32_t rank = 0; rank < on_ranks.world(); ++rank)
      for (const char *name : {"reduce/added", "reduce/saturated"}) {
        const auto *counter = reinterpret_cast<const uint8_t *>(group->floats(rank, name));
        bytes[rank].insert(bytes[rank].end(), counter, counter + sizeof(float));
      }
    return bytes;
  }
};

// With one element that is not a number: NCCL's own maximum would lose it.
TEST_F(NcclGradients, equal_octavo_ranks_in_every_bit) {
  for (const uint32_t world : {2U, 4U}) {
    NcclWorld nccl(world);
    ASSERT_THAT(nccl.open(), Each(octavo_status{OCTAVO_OK})) << nccl.listener(0).first();
    RankThreads ranks(world);
    for (const int one_shot : {kTwoShot, kOneShot})
      for (const char *prescale : {"sqrt", "full", "auto"})
        for (const float special : {0.25f, std::numeric_limits<float>::quiet_NaN(), 1e30f}) {
          const auto expected = reduced(ranks, one_shot, prescale, special);
          const int before = fake().operations;
          EXPECT_EQ(reduced(nccl, one_shot, prescale, special), expected)
              << prescale << ", W = " << world << ", special " << special;
          EXPECT_GT(fake().operations, before);
        }
    nccl.close();
    EXPECT_EQ(fake().violations, 0) << fake().violation.load();
  }
}

// A sharded store: what an owner stepped reaches every rank by broadcasts.
TEST_F(NcclGradients, publish_of_a_sharded_store) {
  NcclWorld nccl(2);
  ASSERT_THAT(nccl.open(), Each(octavo_status{OCTAVO_OK})) << nccl.listener(0).first();
  std::vector<Request> requests(2);
  std::vector<std::unique_ptr<OwningHost>> hosts;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    requests[rank].set("fp8.backend", "msamp");
    hosts.push_back(std::make_unique<OwningHost>(requests[rank], rank, 2));
    for (uint32_t layer = 0; layer < 2; ++layer)  // each rank with weights of its own
      hosts[rank]->add_linear(some_matrix(6, 8, 1 + rank, 0.5f));
    hosts[rank]->seal();
  }
  Matrix owned[2];
  for (uint32_t layer = 0; layer < 2; ++layer) {
    const uint32_t owner = octavo_store_owner(hosts[0]->store(), layer);
    ASSERT_LT(owner, 2u);
    owned[layer] = hosts[owner]->read(layer, OCTAVO_ROLE_WEIGHT);
  }
  EXPECT_THAT(nccl.run([&](uint32_t rank, const octavo_collective &c) {
    return octavo_store_publish(hosts[rank]->store(), &c, nullptr);
  }),
              Each(octavo_status{OCTAVO_OK}));
  for (uint32_t layer = 0; layer < 2; ++layer)
    for (const auto &host : hosts)
      expect_same(host->read(layer, OCTAVO_ROLE_WEIGHT), owned[layer], "a published weight");
}

}  // namespace
}  // namespace octavo::test
