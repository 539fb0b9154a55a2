// octavo_ranks: every collective over 1 to 5 threads against a plain computation in one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "tests/support/collective.h"
#include "tests/support/param_name.h"
#include "tests/support/rank_threads.h"

namespace octavo::test {
namespace {

using testing::Each;

// Bit patterns: a NaN equals itself, and 0 is not -0.
std::vector<uint32_t> bits(const Values &v) {
  std::vector<uint32_t> b(v.size());
  if (!v.empty()) std::memcpy(b.data(), v.data(), v.size() * sizeof(float));
  return b;
}

// The collective restated over all ranks' inputs: element i of the result of `rank`.
float expected_element(uint32_t collective, const std::vector<Values> &send, uint32_t rank,
                       size_t i) {
  const size_t world = send.size();
  const size_t shard = send[0].size() / world;
  switch (collective) {
    case OCTAVO_COLLECTIVE_ALL_TO_ALL: return send[i / shard][rank * shard + i % shard];
    case OCTAVO_COLLECTIVE_ALL_GATHER: return send[i / send[0].size()][i % send[0].size()];
    default: break;
  }
  const size_t at = collective == OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM ? rank * shard + i : i;
  float result = send[0][at];
  for (size_t r = 1; r < world; ++r) {
    const float v = send[r][at];
    if (collective != OCTAVO_COLLECTIVE_ALL_REDUCE_MAX)
      result = result + v;
    else if (!std::isnan(result) && (std::isnan(v) || v > result))
      result = v;
  }
  return result;
}

Values expected(uint32_t collective, const std::vector<Values> &send, uint32_t rank, size_t count) {
  Values out(count);
  for (size_t i = 0; i < count; ++i) out[i] = expected_element(collective, send, rank, i);
  return out;
}

// Values of mixed sizes, so that the order of a sum shows in its last bits.
Values random_values(std::mt19937 &random, size_t count) {
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-12, 12);
  Values v(count);
  for (float &x : v) x = std::ldexp(normal(random), exponent(random));
  return v;
}

class RanksTest : public testing::TestWithParam<uint32_t> {
 protected:
  void check(uint32_t collective, size_t unit) {
    std::mt19937 random(collective * 1000 + static_cast<uint32_t>(unit) + GetParam());
    const Sizes n = sizes(collective, unit, ranks.world());
    std::vector<Values> send, recv(ranks.world(), Values(n.recv, -7));
    for (uint32_t r = 0; r < ranks.world(); ++r) send.push_back(random_values(random, n.send));
    EXPECT_THAT(ranks.run([&](uint32_t rank, const octavo_collective &c) {
      return run(c, collective, send[rank], recv[rank]);
    }),
                Each(octavo_status{OCTAVO_OK}));
    for (uint32_t r = 0; r < ranks.world(); ++r)
      EXPECT_EQ(bits(recv[r]), bits(expected(collective, send, r, n.recv)))
          << "collective " << collective << ", rank " << r << ", unit " << unit;
  }
  RankThreads ranks{GetParam()};
};

// 1 and 3: fewer elements than ranks. 2500: more than one block of a rank's share.
TEST_P(RanksTest, every_collective) {
  for (uint32_t collective = OCTAVO_COLLECTIVE_ALL_REDUCE_MAX;
       collective <= OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM; ++collective)
    for (size_t unit : {0u, 1u, 3u, 64u, 2500u, 12345u}) check(collective, unit);
}

TEST_P(RanksTest, table_of_a_rank) {
  for (uint32_t r = 0; r < GetParam(); ++r) {
    const octavo_collective *c = ranks.collective(r);
    ASSERT_NE(c, nullptr);
    EXPECT_EQ(c->size, sizeof(*c));
    EXPECT_EQ(c->kind, uint32_t{OCTAVO_KIND_COLLECTIVE});
    EXPECT_EQ(c->world, GetParam());
    EXPECT_EQ(c->reserved, 0u);
  }
  EXPECT_EQ(ranks.collective(GetParam()), nullptr);
  EXPECT_EQ(ranks.collective(OCTAVO_NONE), nullptr);
}

TEST_P(RanksTest, all_reduce_in_place) {
  for (uint32_t collective : {OCTAVO_COLLECTIVE_ALL_REDUCE_MAX, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM}) {
    for (size_t count : {1u, 7u, 9001u}) {
      std::mt19937 random(5);
      std::vector<Values> data;
      for (uint32_t r = 0; r < ranks.world(); ++r) data.push_back(random_values(random, count));
      const std::vector<Values> before = data;
      EXPECT_THAT(ranks.run([&](uint32_t rank, const octavo_collective &c) {
        return run(c, collective, data[rank], data[rank]);
      }),
                  Each(octavo_status{OCTAVO_OK}));
      for (uint32_t r = 0; r < ranks.world(); ++r)
        EXPECT_EQ(bits(data[r]), bits(expected(collective, before, r, count)));
    }
  }
}

// A NaN of any rank is the maximum: nobody goes on as if the step were sound.
TEST_P(RanksTest, maximum_with_nan_and_infinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (uint32_t where = 0; where < ranks.world(); ++where) {
    std::vector<Values> data(ranks.world(), {1, 2, 3});
    data[where] = {nan, inf, -inf};
    EXPECT_THAT(ranks.run([&](uint32_t rank, const octavo_collective &c) {
      return run(c, OCTAVO_COLLECTIVE_ALL_REDUCE_MAX, data[rank], data[rank]);
    }),
                Each(octavo_status{OCTAVO_OK}));
    for (const Values &v : data) {
      EXPECT_TRUE(std::isnan(v[0]));
      EXPECT_EQ(v[1], inf);
      EXPECT_EQ(v[2], ranks.world() == 1 ? -inf : 3.0f);
    }
  }
}

TEST_P(RanksTest, broadcast_from_every_root) {
  for (uint32_t root = 0; root < ranks.world(); ++root) {
    for (size_t bytes : {0u, 1u, 4099u}) {
      std::vector<std::vector<uint8_t>> data(ranks.world());
      for (uint32_t r = 0; r < ranks.world(); ++r) {
        data[r].resize(bytes);
        std::iota(data[r].begin(), data[r].end(), static_cast<uint8_t>(50 * r));
      }
      const std::vector<uint8_t> sent = data[root];
      EXPECT_THAT(ranks.run([&](uint32_t rank, const octavo_collective &c) {
        return c.broadcast(c.ctx, root, data[rank].data(), bytes, nullptr);
      }),
                  Each(octavo_status{OCTAVO_OK}));
      EXPECT_THAT(data, Each(sent));
    }
  }
}

// Bytes move whatever their width and address.
TEST_P(RanksTest, moved_elements_of_every_width) {
  for (uint32_t dtype : {OCTAVO_U8, OCTAVO_E4M3FN, OCTAVO_BF16, OCTAVO_F16, OCTAVO_I32}) {
    const size_t width = OCTAVO_DTYPE_BITS(dtype) / 8;
    const size_t world = ranks.world();
    std::vector<std::vector<uint8_t>> send(world), recv(world);
    for (size_t r = 0; r < world; ++r) {
      send[r].resize(1 + 3 * width);
      recv[r].resize(1 + 3 * width * world);
      std::iota(send[r].begin(), send[r].end(), static_cast<uint8_t>(40 * r));
    }
    EXPECT_THAT(ranks.run([&](uint32_t rank, const octavo_collective &c) {
      return c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_GATHER, dtype, send[rank].data() + 1, 3,
                   recv[rank].data() + 1, 3 * world, nullptr);
    }),
                Each(octavo_status{OCTAVO_OK}));
    for (size_t r = 0; r < world; ++r)
      for (size_t i = 0; i < 3 * width * world; ++i)
        EXPECT_EQ(recv[r][1 + i], send[i / (3 * width)][1 + i % (3 * width)]);
  }
}

// 200 rounds in a row by the same threads: a rank that is ahead never mixes two rounds up.
TEST_P(RanksTest, random_rounds_against_a_plain_computation) {
  constexpr int kRounds = 200;
  struct Round {
    uint32_t collective;
    std::vector<Values> send, recv;
  };
  std::mt19937 random(GetParam());
  std::vector<Round> rounds(kRounds);
  for (Round &round : rounds) {
    round.collective = OCTAVO_COLLECTIVE_ALL_REDUCE_MAX + random() % 5;
    const Sizes n = sizes(round.collective, random() % 300, ranks.world());
    for (uint32_t r = 0; r < ranks.world(); ++r)
      round.send.push_back(random_values(random, n.send));
    round.recv.assign(ranks.world(), Values(n.recv, -7));
  }
  EXPECT_THAT(ranks.run([&](uint32_t rank, const octavo_collective &c) -> octavo_status {
    for (Round &round : rounds) {
      const octavo_status status = run(c, round.collective, round.send[rank], round.recv[rank]);
      if (status != OCTAVO_OK) return status;
    }
    return OCTAVO_OK;
  }),
              Each(octavo_status{OCTAVO_OK}));
  for (const Round &round : rounds)
    for (uint32_t r = 0; r < ranks.world(); ++r)
      ASSERT_EQ(bits(round.recv[r]),
                bits(expected(round.collective, round.send, r, round.recv[r].size())));
}

INSTANTIATE_TEST_SUITE_P(World, RanksTest, testing::Range(1u, 6u), octavo::test::kNameOfValue);

// 1e8 + 1 loses the 1, so another order of the ranks gives another sum.
TEST(RankOrderTest, sums_run_in_rank_order) {
  RankThreads ranks(4);
  std::vector<Values> data = {{1e8f}, {1}, {-1e8f}, {1}};
  EXPECT_THAT(ranks.run([&](uint32_t rank, const octavo_collective &c) {
    return run(c, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, data[rank], data[rank]);
  }),
              Each(octavo_status{OCTAVO_OK}));
  EXPECT_THAT(data, Each(Values{1}));
}

}  // namespace
}  // namespace octavo::test
