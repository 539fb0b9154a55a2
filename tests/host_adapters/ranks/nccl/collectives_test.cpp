// Every collective over the fake libnccl against octavo_ranks: the same bits, the same refusals.
#include <gmock/gmock.h>

#include <numeric>
#include <random>

#include "tests/host_adapters/ranks/nccl/world.h"
#include "tests/support/collective.h"
#include "tests/support/param_name.h"
#include "tests/support/rank_threads.h"
#include "tests/support/refused_collectives.h"

namespace octavo::test {
namespace {

using testing::Each;

class NcclCollectives : public testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override {
    for (const octavo_status s : nccl.open()) ASSERT_EQ(s, OCTAVO_OK) << nccl.listener(0).first();
  }
  void TearDown() override {
    nccl.close();
    EXPECT_EQ(fake().violations, 0) << fake().violation.load();
    EXPECT_EQ(fake().alive, 0);
    EXPECT_EQ(fake().aborts, 0);
    EXPECT_EQ(cuda_on_cpu::events_alive(), 0);
    EXPECT_EQ(cuda_on_cpu::streams_alive(), 0);
  }
  std::vector<Values> on_all(bool use_nccl, uint32_t collective, const std::vector<Values> &send,
                             size_t count, bool in_place) {
    std::vector<Values> recv(send.size(), Values(count, -7));
    if (in_place) recv = send;
    const auto body = [&](uint32_t rank, const octavo_collective &c) {
      return run(c, collective, in_place ? recv[rank] : send[rank], recv[rank]);
    };
    EXPECT_THAT(use_nccl ? nccl.run(body) : ranks.run(body), Each(octavo_status{OCTAVO_OK}));
    return recv;
  }
  void check(uint32_t collective, size_t unit, bool in_place) {
    std::mt19937 random(collective * 1000 + static_cast<uint32_t>(unit) + GetParam());
    const Sizes n = sizes(collective, unit, GetParam());
    // Which NaN a sum of several is differs between devices; a maximum keeps the first.
    const bool special = collective != OCTAVO_COLLECTIVE_ALL_REDUCE_SUM &&
                         collective != OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM;
    std::vector<Values> send;
    for (uint32_t r = 0; r < GetParam(); ++r)
      send.push_back(random_values(random, n.send, special));
    const auto found = on_all(true, collective, send, n.recv, in_place);
    const auto expected = on_all(false, collective, send, n.recv, in_place);
    for (uint32_t r = 0; r < GetParam(); ++r)
      EXPECT_EQ(bits(found[r]), bits(expected[r]))
          << "collective " << collective << ", rank " << r << ", unit " << unit;
  }
  NcclWorld nccl{GetParam()};
  RankThreads ranks{GetParam()};
};

// 4096 and 4097: the longest in one exchange, and one more. 16384 floats of all ranks fit into the
// scratch, so longer ones run in pieces.
TEST_P(NcclCollectives, equal_octavo_ranks_in_every_bit) {
  for (uint32_t collective = OCTAVO_COLLECTIVE_ALL_REDUCE_MAX;
       collective <= OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM; ++collective)
    for (size_t unit : {0u, 1u, 3u, 4096u, 4097u, 40001u}) check(collective, unit, false);
}

TEST_P(NcclCollectives, all_reduce_in_place) {
  for (uint32_t collective : {OCTAVO_COLLECTIVE_ALL_REDUCE_MAX, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM})
    for (size_t unit : {1u, 7u, 40001u}) check(collective, unit, true);
}

TEST_P(NcclCollectives, broadcast_from_every_root) {
  for (uint32_t root = 0; root < GetParam(); ++root) {
    for (size_t bytes : {0u, 1u, 4099u}) {
      std::vector<std::vector<uint8_t>> data(GetParam());
      for (uint32_t r = 0; r < GetParam(); ++r) {
        data[r].resize(bytes);
        std::iota(data[r].begin(), data[r].end(), static_cast<uint8_t>(50 * r));
      }
      const std::vector<uint8_t> sent = data[root];
      EXPECT_THAT(nccl.run([&](uint32_t rank, const octavo_collective &c) {
        return c.broadcast(c.ctx, root, data[rank].data(), bytes, nullptr);
      }),
                  Each(octavo_status{OCTAVO_OK}));
      EXPECT_THAT(data, Each(sent));
    }
  }
}

// Whatever their width, elements cross as bytes, which every NCCL has.
TEST_P(NcclCollectives, moved_elements_of_every_width) {
  for (uint32_t dtype : {OCTAVO_U8, OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_E8M0FNU, OCTAVO_BF16,
                         OCTAVO_F16, OCTAVO_I32}) {
    const size_t width = OCTAVO_DTYPE_BITS(dtype) / 8;
    const size_t world = GetParam();
    for (uint32_t collective : {OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_COLLECTIVE_ALL_TO_ALL}) {
      const Sizes n = sizes(collective, 3, world);
      std::vector<std::vector<uint8_t>> send(world), found(world), expected(world);
      for (size_t r = 0; r < world; ++r) {
        send[r].resize(1 + n.send * width);
        found[r].resize(1 + n.recv * width);
        std::iota(send[r].begin(), send[r].end(), static_cast<uint8_t>(40 * r));
      }
      expected = found;
      const auto body = [&](std::vector<std::vector<uint8_t>> &recv) {
        return [&, dtype, collective, n](uint32_t rank, const octavo_collective &c) {
          return c.run(c.ctx, collective, dtype, send[rank].data() + 1, n.send,
                       recv[rank].data() + 1, n.recv, nullptr);
        };
      };
      EXPECT_THAT(nccl.run(body(found)), Each(octavo_status{OCTAVO_OK}));
      EXPECT_THAT(ranks.run(body(expected)), Each(octavo_status{OCTAVO_OK}));
      EXPECT_EQ(found, expected) << "dtype " << dtype << ", collective " << collective;
    }
  }
}

// Operands that no device has: the same bits, and there when the call returns.
TEST_P(NcclCollectives, of_cpu_memory) {
  for (uint32_t collective = OCTAVO_COLLECTIVE_ALL_REDUCE_MAX;
       collective <= OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM; ++collective) {
    for (const size_t unit : {0u, 1u, 5000u, 40001u}) {
      std::mt19937 random(collective + static_cast<uint32_t>(unit));
      const Sizes n = sizes(collective, unit, GetParam());
      std::vector<Values> send, found(GetParam(), Values(n.recv)), expected = found;
      for (uint32_t r = 0; r < GetParam(); ++r)
        send.push_back(random_values(random, n.send, false));
      EXPECT_THAT(nccl.each([&](uint32_t r) {
        return run(*octavo_nccl_host_collective(nccl.get(r)), collective, send[r], found[r]);
      }),
                  Each(octavo_status{OCTAVO_OK}));
      ranks.run([&](uint32_t r, const octavo_collective &c) {
        return run(c, collective, send[r], expected[r]);
      });
      EXPECT_TRUE(found == expected) << "collective " << collective << ", unit " << unit;
    }
  }
  std::vector<Values> data(GetParam(), Values(7));
  data.back() = Values(7, 3.0f);
  EXPECT_THAT(nccl.each([&](uint32_t r) {
    const octavo_collective &c = *octavo_nccl_host_collective(nccl.get(r));
    return c.broadcast(c.ctx, GetParam() - 1, data[r].data(), 28, nullptr);
  }),
              Each(octavo_status{OCTAVO_OK}));
  EXPECT_THAT(data, Each(Values(7, 3.0f)));
  // What one rank can tell is refused as by the other table.
  const octavo_collective &c = *octavo_nccl_host_collective(nccl.get(0));
  EXPECT_EQ(c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_U8, data[0].data(), 4,
                  data[0].data(), 4, nullptr),
            OCTAVO_UNSUPPORTED);
  EXPECT_EQ(c.broadcast(c.ctx, GetParam(), data[0].data(), 4, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(c.world, GetParam());
}

TEST_P(NcclCollectives, runs_on_the_given_stream) {
  std::vector<cudaStream_t> streams(2 * GetParam());
  for (cudaStream_t &s : streams) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  const int before = cuda_on_cpu::event_waits();
  std::vector<Values> data(GetParam(), Values(8, 1.0f));
  for (const size_t which : {0u, 1u, 1u}) {
    EXPECT_THAT(nccl.run([&](uint32_t rank, const octavo_collective &c) {
      return c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, data[rank].data(), 8,
                   data[rank].data(), 8, streams[2 * rank + which]);
    }),
                Each(octavo_status{OCTAVO_OK}));
    EXPECT_THAT(streams, testing::Contains(fake().last_stream.load()));
  }
  // Each rank left the stream of open for its first, and that for its second.
  EXPECT_EQ(cuda_on_cpu::event_waits() - before, static_cast<int>(2 * GetParam()));
  for (const cudaStream_t s : streams) cudaStreamDestroy(s);
}

// Captured operations record no event of their own, since a graph's events cannot be asked. The
// fake's part happens in the call, the kernels' in the replay.
TEST_P(NcclCollectives, captured_into_a_graph) {
  std::vector<cudaStream_t> streams(GetParam());
  for (cudaStream_t &s : streams) {
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  }
  std::vector<Values> data(GetParam(), Values(8, 1.0f));
  EXPECT_THAT(nccl.run([&](uint32_t rank, const octavo_collective &c) {
    return c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, data[rank].data(), 8,
                 data[rank].data(), 8, streams[rank]);
  }),
              Each(octavo_status{OCTAVO_OK}));
  for (const cudaStream_t s : streams) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(replay, s), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(s);
  }
  EXPECT_THAT(data, Each(Values(8, static_cast<float>(GetParam()))));
}

TEST_P(NcclCollectives, table_of_a_rank) {
  for (uint32_t r = 0; r < GetParam(); ++r) {
    const octavo_collective &c = *nccl.collective(r);
    EXPECT_EQ(c.size, sizeof(c));
    EXPECT_EQ(c.kind, uint32_t{OCTAVO_KIND_COLLECTIVE});
    EXPECT_EQ(c.world, GetParam());
    EXPECT_EQ(c.reserved, 0u);
    EXPECT_EQ(octavo_nccl_check(nccl.get(r)), OCTAVO_OK);
  }
}

INSTANTIATE_TEST_SUITE_P(World, NcclCollectives, testing::Values(1u, 2u, 3u, 4u),
                         octavo::test::kNameOfValue);

// What one rank can tell is refused before NCCL is asked, with octavo_ranks' status.
TEST(NcclRefusals, answer_as_octavo_ranks) {
  NcclWorld nccl(2);
  for (const octavo_status s : nccl.open()) ASSERT_EQ(s, OCTAVO_OK) << nccl.listener(0).first();
  RankThreads ranks(2);
  Values memory[2] = {Values(64), Values(64)};
  for (const RefusedCollective &k : kRefusedCollectives) {
    const auto body = [&](uint32_t rank, const octavo_collective &c) {
      return run(c, k, memory[rank].data());
    };
    const int before = fake().operations;
    EXPECT_EQ(nccl.run(body), ranks.run(body)) << k.text;
    EXPECT_EQ(fake().operations, before) << k.text;
    EXPECT_THAT(nccl.listener(0).last(), testing::HasSubstr(k.text));
  }
  const auto broadcast = [&](uint32_t root, void *data) {
    const octavo_collective &c = *nccl.collective(0);
    return c.broadcast(c.ctx, root, data, 4, nullptr);
  };
  EXPECT_EQ(broadcast(2, memory[0].data()), OCTAVO_INVALID);
  EXPECT_EQ(nccl.listener(0).last(),
            "broadcast: expected a root below 2, the number of ranks, found 2");
  EXPECT_EQ(broadcast(0, nullptr), OCTAVO_INVALID);
  // The communicator works on.
  for (uint32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(octavo_nccl_check(nccl.get(rank)), OCTAVO_OK);
  EXPECT_EQ(fake().violations, 0);
}

}  // namespace
}  // namespace octavo::test
