// Whole-tensor sharding: every rank keeps and steps only the states that it owns, and all ranks
// train as one that owns everything, bit for bit.
#include <array>

#include "tests/plugins/owning_host.h"
#include "tests/plugins/rank_threads.h"

namespace octavo::test {
namespace {

// Linears, then a bias that is not converted.
const std::vector<std::pair<int64_t, int64_t>> kLinears = {{16, 24}, {40, 16}, {8, 8}, {16, 24}};
constexpr uint32_t kLinearCount = 4, kBias = 4, kParameters = 5;

class MsampSharding : public testing::TestWithParam<const char *> {
 protected:
  struct Rank {
    Request request;
    std::unique_ptr<OwningHost> host;
  };

  std::unique_ptr<Rank> make(uint32_t rank, uint32_t world) {
    auto r = std::make_unique<Rank>();
    r->request.set("fp8.backend", "msamp").set("fp8.msamp.opt_level", GetParam());
    if (stochastic_)
      r->request.set("fp8.msamp.state_rounding", "stochastic")
          .set("fp8.msamp.weight_rounding", "stochastic");
    if (bounds_) r->request.set("fp8.msamp.state_scale", "bound");
    r->host = std::make_unique<OwningHost>(r->request, rank, world);
    for (uint32_t i = 0; i < kLinearCount; ++i)
      r->host->add_linear(some_matrix(kLinears[i].first, kLinears[i].second, i, 0.5f));
    r->host->add_parameter(some_matrix(1, 29, 7, 0.5f));
    r->host->seal();
    return r;
  }

  // One step on a batch that is the same on every rank, so that gradients need no reduction.
  static octavo_status step(Rank &r, uint32_t number, const octavo_collective *ranks) {
    OwningHost &host = *r.host;
    octavo_status status = OCTAVO_OK;
    for (uint32_t i = 0; i < kLinearCount && status == OCTAVO_OK; ++i) {
      Matrix x = some_matrix(5, kLinears[i].second, 100 * number + i, 2.0f);
      Matrix dy = some_matrix(5, kLinears[i].first, 200 * number + i, 0.5f), y, dx;
      status = host.forward(i, x, y);
      if (status == OCTAVO_OK) status = host.backward(i, dy, dx);
    }
    const Matrix gradient = some_matrix(1, 29, 300 + number, 0.25f);
    std::copy(gradient.v.begin(), gradient.v.end(), host.gradient(kBias).v.begin());
    if (status == OCTAVO_OK) status = octavo_store_reduce(host.store(), ranks, nullptr);
    if (status == OCTAVO_OK) status = host.step();
    if (status == OCTAVO_OK) status = octavo_store_publish(host.store(), ranks, nullptr);
    if (status == OCTAVO_OK) status = host.end_step();
    host.quantize_weights();
    return status;
  }

  // Five steps on `world` ranks.
  std::vector<std::unique_ptr<Rank>> train(uint32_t world) {
    std::vector<std::unique_ptr<Rank>> all;
    for (uint32_t rank = 0; rank < world; ++rank) all.push_back(make(rank, world));
    const auto answers = run_ranks(world, [&](uint32_t rank, const octavo_collective *ranks) {
      octavo_status status = OCTAVO_OK;
      for (uint32_t number = 0; number < 5 && status == OCTAVO_OK; ++number)
        status = step(*all[rank], number, ranks);
      return status;
    });
    for (uint32_t rank = 0; rank < world; ++rank)
      EXPECT_EQ(answers[rank], OCTAVO_OK) << all[rank]->request.host.error();
    return all;
  }
  bool has_master() const { return std::string(GetParam()) == "O3"; }

  Environment environment;
  bool stochastic_ = false;
  bool bounds_ = false;
};

// ZeRO's greedy assignment, from its definition.
std::array<uint32_t, kParameters> greedy(uint32_t world) {
  std::array<int64_t, kParameters> sizes{};
  for (uint32_t p = 0; p < kLinearCount; ++p) sizes[p] = kLinears[p].first * kLinears[p].second;
  sizes[kBias] = 29;
  std::array<uint32_t, kParameters> owner{};
  std::vector<int64_t> loads(world);
  std::vector<bool> done(kParameters);
  for (uint32_t turn = 0; turn < kParameters; ++turn) {
    uint32_t largest = kParameters;
    for (uint32_t p = 0; p < kParameters; ++p)
      if (!done[p] && (largest == kParameters || sizes[p] > sizes[largest])) largest = p;
    const auto least = std::min_element(loads.begin(), loads.end());
    owner[largest] = static_cast<uint32_t>(least - loads.begin());
    *least += sizes[largest];
    done[largest] = true;
  }
  return owner;
}

// Random bits belong to a parameter, not to the rank that steps it.
TEST_P(MsampSharding, stochastic_roundings_equal_those_of_one_rank) {
  const auto nearest = train(1);
  stochastic_ = true;
  const auto alone = train(1);
  EXPECT_NE(alone[0]->host->read(0, OCTAVO_ROLE_WEIGHT).v,
            nearest[0]->host->read(0, OCTAVO_ROLE_WEIGHT).v);
  for (const uint32_t world : {2U, 3U}) {
    const auto all = train(world);
    for (uint32_t p = 0; p < kParameters; ++p)
      expect_same(all[world - 1]->host->read(p, OCTAVO_ROLE_WEIGHT),
                  alone[0]->host->read(p, OCTAVO_ROLE_WEIGHT),
                  "parameter " + std::to_string(p) + " of " + std::to_string(world) + " ranks");
  }
}

// The amaxes that bounds come from are of whole parameters, so one rank has them.
TEST_P(MsampSharding, scales_from_bounds_equal_those_of_one_rank) {
  bounds_ = true;
  const auto alone = train(1);
  for (const uint32_t world : {2U, 3U}) {
    const auto all = train(world);
    for (uint32_t p = 0; p < kParameters; ++p)
      expect_same(all[world - 1]->host->read(p, OCTAVO_ROLE_WEIGHT),
                  alone[0]->host->read(p, OCTAVO_ROLE_WEIGHT),
                  "parameter " + std::to_string(p) + " of " + std::to_string(world) + " ranks");
  }
}

TEST_P(MsampSharding, weights_equal_those_of_one_rank) {
  const auto alone = train(1);
  OwningHost &one = *alone[0]->host;
  const Matrix start = some_matrix(16, 24, 0, 0.5f);
  EXPECT_NE(one.read(0, OCTAVO_ROLE_WEIGHT).v, start.v) << "nothing was trained";
  for (const uint32_t world : {2U, 3U, 4U}) {
    const auto all = train(world);
    for (uint32_t rank = 0; rank < world; ++rank) {
      OwningHost &host = *all[rank]->host;
      for (uint32_t p = 0; p < kParameters; ++p) {
        const std::string what = "parameter " + std::to_string(p) + " on rank " +
                                 std::to_string(rank) + " of " + std::to_string(world);
        if (p == kBias) expect_same(host.value(p), one.value(p), what);
        expect_same(host.read(p, OCTAVO_ROLE_WEIGHT), one.read(p, OCTAVO_ROLE_WEIGHT), what);
        const bool owns = octavo_store_owner(host.store(), p) == rank;
        for (const uint32_t role :
             {OCTAVO_ROLE_MASTER_WEIGHT, OCTAVO_ROLE_EXP_AVG, OCTAVO_ROLE_EXP_AVG_SQ}) {
          if (role == OCTAVO_ROLE_MASTER_WEIGHT && (!has_master() || p == kBias)) continue;
          Matrix values;
          const octavo_status status = host.read(p, role, values);
          ASSERT_EQ(status, owns ? OCTAVO_OK : OCTAVO_INVALID) << what << ", role " << role;
          if (owns) expect_same(values, one.read(p, role), what + ", role " + std::to_string(role));
        }
      }
    }
  }
}

TEST_P(MsampSharding, states_lie_once_and_are_dealt_out_by_size) {
  const auto alone = make(0, 1);
  for (const uint32_t world : {1U, 2U, 3U, 4U}) {
    const auto owners = greedy(world);
    std::vector<std::unique_ptr<Rank>> all;
    for (uint32_t rank = 0; rank < world; ++rank) all.push_back(make(rank, world));
    OwningHost &one = *alone->host;
    uint64_t whole_slots = 0;
    for (uint32_t id = 0; id < octavo_run_slot_count(one.run()); ++id) {
      const octavo_slot &s = *octavo_run_slot(one.run(), id);
      if ((s.flags & OCTAVO_SLOT_NATIVE) != 0) continue;
      const bool whole = s.shard == OCTAVO_SHARD_WHOLE;
      whole_slots += whole ? 1 : 0;
      for (uint32_t rank = 0; rank < world; ++rank) {
        octavo_store *store = all[rank]->host->store();
        EXPECT_EQ(octavo_store_address(store, id) != nullptr, !whole || owners[s.owner] == rank)
            << "slot " << id << " \"" << text_of(s.name) << "\" on rank " << rank << " of "
            << world;
        if (whole) {
          EXPECT_EQ(octavo_store_owner(store, s.owner), owners[s.owner]);
        }
      }
    }
    EXPECT_GE(whole_slots, 3 * kParameters);  // two moments and a step count each
    std::vector<uint32_t> roles = {OCTAVO_ROLE_EXP_AVG, OCTAVO_ROLE_EXP_AVG_SQ};
    if (has_master()) roles.push_back(OCTAVO_ROLE_MASTER_WEIGHT);
    for (const uint32_t role : roles) {
      uint64_t sum = 0;
      for (const auto &rank : all) sum += octavo_store_bytes(rank->host->store(), role);
      EXPECT_EQ(sum, octavo_store_bytes(one.store(), role)) << "role " << role << " of " << world;
      EXPECT_GT(sum, 0U);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Level, MsampSharding, testing::Values("O2", "O3"),
                         [](const auto &one) { return std::string(one.param); });

}  // namespace
}  // namespace octavo::test
