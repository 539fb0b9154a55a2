// octavo_store_open_sharded: who owns what, and what a rank has memory for.
#include <gmock/gmock.h>

#include <cstring>
#include <map>
#include <random>

#include "tests/support/sharded_runs.h"

namespace octavo::test {
namespace {

using Model = std::vector<ShardedParameter>;

Model random_model(std::mt19937 &random, size_t count) {
  Model m;
  // Few sizes, so that many parameters are equally large.
  for (size_t i = 0; i < count; ++i)
    m.push_back({"p" + std::to_string(random()), 1 + static_cast<int64_t>(random() % 3),
                 1 + static_cast<int64_t>(random() % 3), random() % 5 == 0});
  return m;
}

// The rule in other words: again and again the largest parameter that is left (the first of them)
// goes to the rank with the least (the first of them). Owners of frozen ones: nobody.
class Rule {
 public:
  explicit Rule(uint32_t world) : loads_(world, 0) {}
  void seal(const Model &m) {
    const size_t first = owners.size();
    owners.resize(first + m.size(), OCTAVO_NONE);
    for (;;) {
      int64_t largest = 0;
      size_t chosen = 0;
      for (size_t i = 0; i < m.size(); ++i) {
        if (m[i].is_frozen || owners[first + i] != OCTAVO_NONE || m[i].rows * m[i].cols <= largest)
          continue;
        largest = m[i].rows * m[i].cols;
        chosen = i;
      }
      if (largest == 0) return;
      uint32_t least = 0;
      for (uint32_t rank = 1; rank < loads_.size(); ++rank)
        if (loads_[rank] < loads_[least]) least = rank;
      loads_[least] += largest;
      owners[first + chosen] = least;
    }
  }
  std::vector<uint32_t> owners;

 private:
  std::vector<int64_t> loads_;
};

class StoreShardTest : public ShardedTest {};

TEST_F(StoreShardTest, assignment_follows_the_rule_over_several_seals) {
  std::mt19937 random(1);
  for (uint32_t world : {1u, 2u, 3u, 5u}) {
    const Model seals[] = {random_model(random, 9), random_model(random, 1),
                           random_model(random, 17)};
    Rule rule(world);
    for (const Model &m : seals) rule.seal(m);
    for (uint32_t rank = 0; rank < world; ++rank) {
      // Even ranks extend after each seal, odd ones once after two: the assignment is the same.
      const auto r = open_run();
      r->seal(seals[0]);
      open_store(*r, rank, world);
      r->seal(seals[1]);
      if (rank % 2 == 0) {
        ASSERT_EQ(octavo_store_extend(r->s()), OCTAVO_OK);
      }
      r->seal(seals[2]);
      ASSERT_EQ(octavo_store_extend(r->s()), OCTAVO_OK);
      for (uint32_t p = 0; p < rule.owners.size(); ++p) {
        // What nobody owns is stepped by every rank.
        const uint32_t expected = rule.owners[p] == OCTAVO_NONE ? rank : rule.owners[p];
        EXPECT_EQ(octavo_store_owner(r->s(), p), expected) << "parameter " << p;
      }
    }
  }
}

TEST_F(StoreShardTest, equal_sizes_go_by_id_and_rank) {
  const auto all = open_world(3, {{"a", 2, 2}, {"b", 4, 1}, {"c", 1, 4}, {"d", 1, 9}, {"e", 2, 2}});
  // d (9) first, to rank 0; then a, b, c, e (4 each): ranks 1, 2, 1, 2.
  const uint32_t expected[] = {1, 2, 1, 0, 2};
  for (const auto &r : all)
    for (uint32_t p = 0; p < 5; ++p) EXPECT_EQ(octavo_store_owner(r->s(), p), expected[p]) << p;
}

// What a seal emitted never changes: not the owner either, nor what the others are charged with.
TEST_F(StoreShardTest, parameter_that_gets_a_whole_slot_later_keeps_its_owner) {
  for (uint32_t rank : {0u, 1u}) {
    const auto r = open_run("late");
    r->seal({{"a", 2, 2}, {"b", 3, 3}});
    open_store(*r, rank, 2);
    r->seal({{"c", 1, 1}});
    ASSERT_EQ(octavo_store_extend(r->s()), OCTAVO_OK);
    EXPECT_EQ(octavo_store_owner(r->s(), 0), 1u);
    EXPECT_EQ(octavo_store_owner(r->s(), 1), 0u);
    EXPECT_EQ(octavo_store_owner(r->s(), 2), 1u);  // 4 against 9 elements
    EXPECT_EQ(r->address(0, "late") != nullptr, rank == 1);
  }
}

TEST_F(StoreShardTest, native_tensor_of_another_rank_is_not_listed) {
  const auto all = open_world(2, {{"native states", 2, 2}});
  uint8_t exp_avg[4];
  for (uint32_t rank : {0u, 1u}) {
    const ShardedRun &r = *all[rank];
    ASSERT_EQ(octavo_store_native(r.s(), 0, OCTAVO_ROLE_EXP_AVG, exp_avg), OCTAVO_OK) << r.error();
    void *const *step =
        octavo_store_slots(r.s(), OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, 0);
    EXPECT_EQ(step[4], rank == 0 ? exp_avg : nullptr);
    EXPECT_EQ(octavo_store_bytes(r.s(), OCTAVO_ROLE_EXP_AVG), 0u);
  }
}

TEST_F(StoreShardTest, owners_without_sharding_and_of_no_parameter) {
  const auto r = open_run();
  r->seal({{"a", 2, 2}, {"frozen", 2, 2, true}});
  octavo_store *raw = nullptr;
  ASSERT_EQ(octavo_store_open(r->run.get(), &raw), OCTAVO_OK);
  r->store.reset(raw);
  EXPECT_EQ(octavo_store_owner(r->s(), 0), 0u);
  EXPECT_EQ(octavo_store_owner(r->s(), 1), 0u);
  EXPECT_EQ(octavo_store_owner(r->s(), 2), OCTAVO_NONE);
  EXPECT_EQ(octavo_store_owner(r->s(), OCTAVO_NONE), OCTAVO_NONE);
  EXPECT_EQ(octavo_store_owner(nullptr, 0), OCTAVO_NONE);
}

TEST_F(StoreShardTest, bytes_of_the_ranks_add_up) {
  std::mt19937 random(2);
  const Model model = random_model(random, 20);
  const auto whole = open_world(1, model);
  const uint32_t roles[] = {OCTAVO_ROLE_EXP_AVG, OCTAVO_ROLE_COUNTER};
  for (uint32_t world : {2u, 3u, 4u}) {
    const auto all = open_world(world, model);
    std::map<uint32_t, uint64_t> sums;
    uint64_t total = 0, replicated = 0;
    for (const auto &r : all) {
      for (uint32_t role : roles) sums[role] += octavo_store_bytes(r->s(), role);
      total += octavo_store_bytes(r->s(), 0);
    }
    for (uint32_t id = 0; id < octavo_run_slot_count(whole[0]->run.get()); ++id) {
      const octavo_slot *s = octavo_run_slot(whole[0]->run.get(), id);
      if (s->shard == OCTAVO_SHARD_REPLICATED)
        replicated += static_cast<uint64_t>(s->rows * s->cols) * (OCTAVO_DTYPE_BITS(s->dtype) / 8);
    }
    for (uint32_t role : roles)
      EXPECT_EQ(sums[role], octavo_store_bytes(whole[0]->s(), role)) << role;
    EXPECT_EQ(total, octavo_store_bytes(whole[0]->s(), 0) + (world - 1) * replicated);
  }
}

TEST_F(StoreShardTest, lists_hold_null_for_what_lies_elsewhere) {
  const auto all = open_world(2, {{"a", 3, 3}, {"b", 2, 2}});
  for (uint32_t rank = 0; rank < 2; ++rank) {
    for (uint32_t p = 0; p < 2; ++p) {
      const ShardedRun &r = *all[rank];
      void *const *step =
          octavo_store_slots(r.s(), OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, p);
      const bool is_owner = octavo_store_owner(r.s(), p) == rank;
      EXPECT_EQ(is_owner, p == rank);
      for (int i : {0, 1, 2}) EXPECT_NE(step[i], nullptr) << i;
      EXPECT_EQ(step[3], nullptr);  // weight_cache: no access
      for (int i : {4, 5, 6}) EXPECT_EQ(step[i] != nullptr, is_owner) << i;
      for (const char *name : {"exp_avg", "exp_avg/scale_inv", "step"})
        EXPECT_EQ(r.address(p, name) != nullptr, is_owner) << name;
    }
  }
}

TEST_F(StoreShardTest, clear_fills_one_role_with_zero_bytes) {
  const auto all = open_world(2, {{"a", 3, 3}, {"native", 2, 2}, {"frozen", 1, 1, true}});
  float weight[4] = {1, 2, 3, 4};
  for (const auto &r : all) {
    ASSERT_EQ(octavo_store_native(r->s(), 1, OCTAVO_ROLE_WEIGHT, weight), OCTAVO_OK);
    for (uint32_t p : {0u, 1u})
      for (const char *name : {"gradient", "weight_cache"})
        std::memset(r->address(p, name), 0x55, p == 0 ? 9 : 4);
    ASSERT_EQ(octavo_store_clear(r->s(), OCTAVO_ROLE_GRADIENT), OCTAVO_OK);
    for (uint32_t p : {0u, 1u}) {
      const size_t n = p == 0 ? 9 : 4;
      const auto bytes = [&](const char *name) {
        const auto *b = static_cast<const uint8_t *>(r->address(p, name));
        return std::vector<uint8_t>(b, b + n);
      };
      EXPECT_THAT(bytes("gradient"), testing::Each(0));
      EXPECT_THAT(bytes("weight_cache"), testing::Each(0x55));
    }
    // A role that is partly elsewhere or nowhere, and the host's own tensor.
    EXPECT_EQ(octavo_store_clear(r->s(), OCTAVO_ROLE_EXP_AVG), OCTAVO_OK);
    EXPECT_EQ(octavo_store_clear(r->s(), OCTAVO_ROLE_EXP_AVG_SQ), OCTAVO_OK);
    EXPECT_EQ(octavo_store_clear(r->s(), OCTAVO_ROLE_WEIGHT), OCTAVO_OK);
    EXPECT_THAT(weight, testing::ElementsAre(1, 2, 3, 4));
    EXPECT_EQ(octavo_store_clear(r->s(), 0), OCTAVO_INVALID);
    EXPECT_EQ(r->error(), "octavo_store_clear: expected a slot role (OCTAVO_ROLE_...), found 0");
  }
  EXPECT_EQ(octavo_store_clear(nullptr, OCTAVO_ROLE_GRADIENT), OCTAVO_INVALID);
}

TEST_F(StoreShardTest, rank_and_world_are_checked) {
  const auto r = open_run();
  r->seal({{"a", 2, 2}});
  octavo_store *raw = nullptr;
  EXPECT_EQ(octavo_store_open_sharded(r->run.get(), 0, 0, &raw), OCTAVO_INVALID);
  EXPECT_EQ(r->error(), "a store: expected a world of 1 to 65536 ranks, found 0");
  EXPECT_EQ(octavo_store_open_sharded(r->run.get(), 0, 65537, &raw), OCTAVO_INVALID);
  EXPECT_EQ(octavo_store_open_sharded(r->run.get(), 4, 4, &raw), OCTAVO_INVALID);
  EXPECT_EQ(r->error(), "a store for one of 4 ranks: expected a rank from 0 to 3, found 4");
  EXPECT_EQ(octavo_store_open_sharded(nullptr, 0, 1, &raw), OCTAVO_INVALID);
  EXPECT_EQ(octavo_store_open_sharded(r->run.get(), 0, 1, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(raw, nullptr);
}

// A plugin whose WHOLE slots nobody could own is refused at seal.
TEST_F(StoreShardTest, whole_slots_that_cannot_be) {
  auto r = open_run("whole_session");
  EXPECT_EQ(octavo_seal(r->run.get()), OCTAVO_INTERNAL);
  EXPECT_EQ(
      r->error(),
      "backend sharded: seal failed: slot 0 \"nonfinite\": expected a parameter as owner of a "
      "WHOLE slot, found 0 of kind 1");
  r = open_run("whole_reduce");
  r->add({{"a", 2, 2}});
  EXPECT_EQ(octavo_seal(r->run.get()), OCTAVO_INTERNAL);
  EXPECT_EQ(
      r->error(),
      "backend sharded: seal failed: slot 7 \"exp_avg\": a WHOLE slot lives on one rank, so it "
      "cannot also be a REDUCE slot");
}

}  // namespace
}  // namespace octavo::test
