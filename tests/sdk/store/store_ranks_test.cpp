// octavo_store_reduce and octavo_store_publish over ranks in threads, and what they refuse.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "tests/support/rank_threads.h"
#include "tests/support/sharded_runs.h"

namespace octavo::test {
namespace {

using testing::Each;
using testing::ElementsAre;

size_t bytes_of(const octavo_slot &s) {
  return static_cast<size_t>(s.rows * s.cols) * (OCTAVO_DTYPE_BITS(s.dtype) / 8);
}

class StoreRanksTest : public ShardedTest {
 protected:
  using World = std::vector<std::unique_ptr<ShardedRun>>;

  static float *floats(const ShardedRun &r, const char *name) {
    return static_cast<float *>(r.address(OCTAVO_NONE, name));
  }
  // A collective for calls that must not reach it, or fail there.
  octavo_collective table(uint32_t world) {
    answer = OCTAVO_NO_RESOURCE;
    return counted(world);
  }
};

TEST_F(StoreRanksTest, reduce_combines_what_says_so) {
  for (uint32_t world : {1u, 2u, 3u, 4u}) {
    for (bool is_sharded : {false, true}) {
      World all;
      for (uint32_t rank = 0; rank < world; ++rank) {
        all.push_back(open_run());
        all.back()->seal({{"a", 2, 2}});
        open_store(*all.back(), is_sharded ? rank : 0, is_sharded ? world : 1);
        *floats(*all.back(), "nonfinite") = rank == world - 1 ? 1.0f : 0.0f;
        std::fill_n(floats(*all.back(), "saturated"), 6, static_cast<float>(rank + 1));
        std::fill_n(floats(*all.back(), "not combined"), 6, static_cast<float>(rank + 1));
      }
      RankThreads ranks(world);
      EXPECT_THAT(ranks.run([&](uint32_t rank, const octavo_collective &c) {
        return octavo_store_reduce(all[rank]->s(), &c, nullptr);
      }),
                  Each(octavo_status{OCTAVO_OK}));
      const auto sum = static_cast<float>(world * (world + 1) / 2);
      for (uint32_t rank = 0; rank < world; ++rank) {
        EXPECT_EQ(*floats(*all[rank], "nonfinite"), 1.0f);
        const float *saturated = floats(*all[rank], "saturated");
        EXPECT_THAT(std::vector<float>(saturated, saturated + 6), Each(sum));
        const float *apart = floats(*all[rank], "not combined");
        EXPECT_THAT(std::vector<float>(apart, apart + 6), Each(static_cast<float>(rank + 1)));
      }
    }
  }
}

// A pool's columns belong to objects, by label: ranks that have other ones do not mix them.
TEST_F(StoreRanksTest, ranks_with_other_objects_are_refused) {
  for (const bool is_same : {true, false}) {
    World all;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      all.push_back(open_run("pool"));
      all.back()->seal({{rank == 0 || is_same ? "experts.0" : "experts.4", 2, 2}});
      open_store(*all.back(), rank, 2);
    }
    for (int step = 0; step < 2; ++step) {
      for (uint32_t rank = 0; rank < 2; ++rank)
        std::fill_n(floats(*all[rank], "saturated"), 6, static_cast<float>(rank + 1));
      RankThreads ranks(2);
      EXPECT_THAT(ranks.run([&](uint32_t rank, const octavo_collective &c) {
        return octavo_store_reduce(all[rank]->s(), &c, nullptr);
      }),
                  Each(octavo_status{is_same ? uint32_t{OCTAVO_OK} : OCTAVO_INVALID}));
      for (uint32_t rank = 0; rank < 2; ++rank) {
        const float *saturated = floats(*all[rank], "saturated");
        EXPECT_THAT(std::vector<float>(saturated, saturated + 6),
                    Each(is_same ? 3.0f : static_cast<float>(rank + 1)));
        if (is_same) continue;
        EXPECT_EQ(all[rank]->error(),
                  "octavo_store_reduce: expected the same REDUCE slots with the same labels on "
                  "every rank, found others; this rank has 2, the first is session/nonfinite: seal "
                  "the same layers under the same names in the same order, or combine the slots of "
                  "ranks with other objects yourself, column by column of a pool's labels");
      }
    }
  }
}

// The comparison of labels is one more call, once.
TEST_F(StoreRanksTest, labels_are_compared_once) {
  const World all = open_world(2, {{"a", 2, 2}}, "pool");
  const octavo_collective two = counted(2);
  for (const int expected : {3, 5}) {
    EXPECT_EQ(octavo_store_reduce(all[0]->s(), &two, nullptr), OCTAVO_OK) << all[0]->error();
    EXPECT_EQ(calls, expected);
  }
}

// Every byte of every slot holds its rank; afterwards what a step writes holds the owner's.
TEST_F(StoreRanksTest, publish_sends_what_the_owner_stepped) {
  for (uint32_t world : {2u, 3u, 4u}) {
    const World all =
        open_world(world, {{"a", 3, 3}, {"native", 2, 5}, {"frozen", 2, 2, true}, {"b", 1, 300}});
    std::vector<std::vector<float>> native(world, std::vector<float>(10));
    for (uint32_t rank = 0; rank < world; ++rank) {
      ShardedRun &r = *all[rank];
      ASSERT_EQ(octavo_store_native(r.s(), 1, OCTAVO_ROLE_WEIGHT, native[rank].data()), OCTAVO_OK);
      for (uint32_t id = 0; id < octavo_run_slot_count(r.run.get()); ++id)
        if (void *data = octavo_store_address(r.s(), id))
          std::memset(data, static_cast<int>(10 + rank),
                      bytes_of(*octavo_run_slot(r.run.get(), id)));
    }
    RankThreads ranks(world);
    EXPECT_THAT(ranks.run([&](uint32_t rank, const octavo_collective &c) {
      return octavo_store_publish(all[rank]->s(), &c, nullptr);
    }),
                Each(octavo_status{OCTAVO_OK}));
    int published = 0;
    for (uint32_t rank = 0; rank < world; ++rank) {
      for (uint32_t id = 0; id < octavo_run_slot_count(all[rank]->run.get()); ++id) {
        const octavo_slot &s = *octavo_run_slot(all[rank]->run.get(), id);
        const auto *data = static_cast<const uint8_t *>(octavo_store_address(all[rank]->s(), id));
        if (data == nullptr) continue;
        const std::string name = text_of(s.name);
        const bool is_sent = s.owner_kind == OCTAVO_OWNER_PARAMETER && s.owner != 2 &&
                             (name == "weight" || name == "weight/scale_inv");
        const uint32_t from = is_sent ? octavo_store_owner(all[rank]->s(), s.owner) : rank;
        EXPECT_THAT(std::vector<uint8_t>(data, data + bytes_of(s)), Each(10 + from))
            << name << " of " << s.owner << " on rank " << rank;
        published += is_sent && from != rank;
      }
    }
    EXPECT_EQ(published, static_cast<int>(3 * 2 * (world - 1)));
  }
}

// A slot that a list names twice crosses once.
TEST_F(StoreRanksTest, publish_sends_each_slot_once) {
  const World all = open_world(2, {{"a", 2, 2}, {"b", 2, 2}});
  const octavo_collective two = counted(2);
  EXPECT_EQ(octavo_store_publish(all[0]->s(), &two, nullptr), OCTAVO_OK) << all[0]->error();
  EXPECT_EQ(calls, 2 * 2);  // weight and weight/scale_inv of each
}

TEST_F(StoreRanksTest, publish_without_sharding_does_nothing) {
  const World all = open_world(1, {{"native", 2, 2}});  // not handed in: nobody asks for it
  octavo_collective one = table(1);
  one.broadcast = nullptr;
  EXPECT_EQ(octavo_store_publish(all[0]->s(), &one, nullptr), OCTAVO_OK) << all[0]->error();
  EXPECT_EQ(octavo_store_reduce(all[0]->s(), &one, nullptr), OCTAVO_OK) << all[0]->error();
  EXPECT_EQ(calls, 0);
  const octavo_collective three = table(3);
  EXPECT_EQ(octavo_store_publish(all[0]->s(), &three, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(
      all[0]->error(),
      "octavo_store_publish: the store is not distributed, the collective has 3 ranks: open it "
      "with octavo_store_open_sharded, or let every rank step every parameter and publish "
      "nothing");
}

TEST_F(StoreRanksTest, another_world_than_the_store) {
  const World all = open_world(4, {{"a", 2, 2}});
  const octavo_collective three = table(3);
  const std::string text =
      ": the store is distributed over 4 ranks, the collective has 3: open the store for 3 ranks "
      "and "
      "hand the states over with read_parameter / write_parameter";
  EXPECT_EQ(octavo_store_publish(all[0]->s(), &three, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(all[0]->error(), "octavo_store_publish" + text);
  EXPECT_EQ(octavo_store_reduce(all[0]->s(), &three, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(all[0]->error(), "octavo_store_reduce" + text);
  EXPECT_EQ(calls, 0);
}

TEST_F(StoreRanksTest, collectives_that_lack_something) {
  const World all = open_world(2, {{"a", 2, 2}});
  const auto expect = [&](const octavo_collective *c, const char *text) {
    EXPECT_EQ(octavo_store_publish(all[0]->s(), c, nullptr), OCTAVO_INVALID);
    EXPECT_EQ(all[0]->error(), std::string("octavo_store_publish") + text);
    EXPECT_EQ(octavo_store_reduce(all[0]->s(), c, nullptr), OCTAVO_INVALID);
    EXPECT_EQ(all[0]->error(), std::string("octavo_store_reduce") + text);
  };
  expect(nullptr, ": expected a collective with a run function, found no collective");
  octavo_collective c = table(2);
  c.run = nullptr;
  expect(&c, ": expected a collective with a run function, found null");
  c = table(0);
  expect(&c, ": expected a collective of at least 1 rank, found world 0");
  // Half a pointer is none.
  c = table(2);
  c.size = OCTAVO_SIZE_THROUGH(octavo_collective, run) - 4;
  expect(&c, ": expected a collective with a run function, found null");
  // A caller of an older header, whose table ends before broadcast.
  c = table(2);
  c.size = OCTAVO_SIZE_THROUGH(octavo_collective, run);
  EXPECT_EQ(octavo_store_publish(all[0]->s(), &c, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(all[0]->error(),
            "octavo_store_publish: expected a collective with a broadcast function, found null: "
            "without one a store cannot be distributed; open it with octavo_store_open");
  EXPECT_EQ(octavo_store_publish(nullptr, &c, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(octavo_store_reduce(nullptr, &c, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(calls, 0);
}

TEST_F(StoreRanksTest, native_tensor_that_was_not_handed_in) {
  const octavo_collective two = table(2);
  const World all = open_world(2, {{"a", 2, 2}, {"native weight", 2, 2}});
  EXPECT_EQ(octavo_store_publish(all[0]->s(), &two, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(all[0]->error(),
            "octavo_store_publish: parameter 1 \"native weight\", slot 10 \"weight\": expected the "
            "host's tensor, found none: hand it in with octavo_store_native");
  const World reduced = open_world(2, {}, "native_reduce");
  EXPECT_EQ(octavo_store_reduce(reduced[0]->s(), &two, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(reduced[0]->error(),
            "octavo_store_reduce: slot 1 \"saturated\": expected the host's tensor, found none: "
            "hand it in with octavo_store_native");
  EXPECT_EQ(calls, 0);
}

TEST_F(StoreRanksTest, a_slot_that_cannot_be_combined) {
  const octavo_collective two = table(2);
  const World all = open_world(2, {}, "dtype");
  EXPECT_EQ(octavo_store_reduce(all[0]->s(), &two, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(
      all[0]->error(),
      "octavo_store_reduce: slot 1 \"saturated\": expected f32 in a REDUCE slot, found dtype " +
          std::to_string(OCTAVO_I32));
  EXPECT_EQ(calls, 0);
}

TEST_F(StoreRanksTest, failure_of_the_collective_comes_back) {
  const octavo_collective two = table(2);
  const World all = open_world(2, {{"a", 2, 2}});
  EXPECT_EQ(octavo_store_reduce(all[0]->s(), &two, nullptr), OCTAVO_NO_RESOURCE);
  EXPECT_EQ(all[0]->error(), "octavo_store_reduce: the host's collective answered status 6");
  EXPECT_EQ(octavo_store_publish(all[0]->s(), &two, nullptr), OCTAVO_NO_RESOURCE);
  EXPECT_EQ(all[0]->error(),
            "octavo_store_publish: parameter 0 \"a\", slot 3 \"weight\": the host's broadcast "
            "answered status 6");
  EXPECT_EQ(calls, 2);  // the first failure ends each
}

}  // namespace
}  // namespace octavo::test
