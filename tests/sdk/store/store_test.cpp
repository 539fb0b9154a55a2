// octavo_store: memory for slots, and one pointer list per object and verb.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/model.h"

namespace octavo::test {
namespace {

// Slots of the fake after model(): 0 nonfinite, 1 weight, 2 counter, 3 codes, 4 x/amax.
class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    put_fake(dir, "plugins");
    request.set("plugins.trust", "dev").set("fp8.backend", "fake").plugins(dir / "plugins");
    ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
    add_weight(run.get(), "w", 4, 8);
    add_linear(run.get(), "a", 0);
    add_linear(run.get(), "b", 0);
    ASSERT_EQ(octavo_seal(run.get()), OCTAVO_OK) << request.host.error();
  }
  void open_store() {
    octavo_store *raw = nullptr;
    ASSERT_EQ(octavo_store_open(run.get(), &raw), OCTAVO_OK) << request.host.error();
    store.reset(raw);
  }
  octavo_store *s() { return store.get(); }

  Environment environment;
  TempDir dir;
  Request request;
  RunPtr run;
  StorePtr store;
};

TEST_F(StoreTest, initial_values_and_alignment) {
  open_store();
  for (uint32_t id : {0u, 2u, 3u, 4u}) {
    ASSERT_NE(octavo_store_address(s(), id), nullptr) << id;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(octavo_store_address(s(), id)) % 256, 0u) << id;
  }
  EXPECT_EQ(*static_cast<float *>(octavo_store_address(s(), 0)), 0.0f);
  const auto *counter = static_cast<int32_t *>(octavo_store_address(s(), 2));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(counter[i], 7);
  const auto *codes = static_cast<uint8_t *>(octavo_store_address(s(), 3));
  for (int i = 0; i < 32; ++i) EXPECT_EQ(codes[i], 0);
  const auto *amax = static_cast<float *>(octavo_store_address(s(), 4));
  EXPECT_EQ(amax[0], 0.25f);
  EXPECT_EQ(amax[1], 0.25f);
  EXPECT_EQ(octavo_store_address(s(), 5), nullptr);
}

TEST_F(StoreTest, lists_hold_null_where_a_verb_has_no_access) {
  open_store();
  void *const *forward = octavo_store_slots(s(), OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, 1);
  EXPECT_EQ(forward[0], octavo_store_address(s(), 3));
  EXPECT_EQ(forward[1], static_cast<float *>(octavo_store_address(s(), 4)) + 1);
  EXPECT_EQ(forward[2], nullptr);  // nonfinite: backward only
  void *const *backward = octavo_store_slots(s(), OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, 1);
  EXPECT_EQ(backward[0], nullptr);
  EXPECT_EQ(backward[1], nullptr);
  EXPECT_EQ(backward[2], octavo_store_address(s(), 0));
  void *const *step = octavo_store_slots(s(), OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0);
  EXPECT_EQ(step[0], octavo_store_address(s(), 0));
  EXPECT_EQ(step[1], octavo_store_address(s(), 4));
}

TEST_F(StoreTest, lists_of_nobody_are_empty_and_never_null) {
  open_store();
  for (uint32_t verb : {0u, 5u, 6u, 1000u}) {
    for (uint32_t kind : {0u, 1u, 2u, 3u, 4u}) {
      void *const *list = octavo_store_slots(s(), verb, kind, 99);
      ASSERT_NE(list, nullptr);
      EXPECT_EQ(list[0], nullptr);
    }
  }
}

TEST_F(StoreTest, bytes_by_role_are_the_sum_over_slots) {
  open_store();
  std::map<uint32_t, uint64_t> expected;
  uint64_t total = 0;
  for (uint32_t id = 0; id < octavo_run_slot_count(run.get()); ++id) {
    const octavo_slot *slot = octavo_run_slot(run.get(), id);
    if ((slot->flags & OCTAVO_SLOT_NATIVE) != 0) continue;
    const auto bytes =
        static_cast<uint64_t>(slot->rows * slot->cols) * (OCTAVO_DTYPE_BITS(slot->dtype) / 8);
    expected[slot->role] += bytes;
    total += bytes;
  }
  EXPECT_EQ(total, 4u + 24u + 32u + 8u);
  for (uint32_t role = 1; role <= OCTAVO_ROLE_OTHER; ++role)
    EXPECT_EQ(octavo_store_bytes(s(), role), expected[role]) << role;
  EXPECT_EQ(octavo_store_bytes(s(), 0), total);
  EXPECT_EQ(octavo_store_bytes(s(), 1234), 0u);
}

TEST_F(StoreTest, native_tensor_is_handed_in) {
  open_store();
  float weight[32] = {};
  EXPECT_EQ(octavo_store_address(s(), 1), nullptr);
  ASSERT_EQ(octavo_store_native(s(), 0, OCTAVO_ROLE_WEIGHT, weight), OCTAVO_OK);
  EXPECT_EQ(octavo_store_address(s(), 1), weight);
  EXPECT_EQ(octavo_store_slots(s(), OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, 0)[0],
            weight);
  EXPECT_EQ(octavo_store_bytes(s(), OCTAVO_ROLE_WEIGHT), 0u);
}

TEST_F(StoreTest, native_tensor_that_nobody_asked_for) {
  open_store();
  float memory[32];
  EXPECT_EQ(octavo_store_native(s(), 0, OCTAVO_ROLE_MASTER_WEIGHT, memory), OCTAVO_INVALID);
  EXPECT_EQ(request.host.error(),
            "parameter 0: expected a native slot of role 2, found none; the backend keeps this "
            "tensor itself, or the store was not extended after the seal");
  EXPECT_EQ(octavo_store_native(s(), 7, OCTAVO_ROLE_WEIGHT, memory), OCTAVO_INVALID);
  EXPECT_EQ(octavo_store_native(s(), 0, OCTAVO_ROLE_COUNTER, memory), OCTAVO_INVALID);
}

TEST_F(StoreTest, extend_keeps_old_addresses) {
  open_store();
  float weight[32] = {};
  ASSERT_EQ(octavo_store_native(s(), 0, OCTAVO_ROLE_WEIGHT, weight), OCTAVO_OK);
  std::vector<void *> before;
  for (uint32_t id = 0; id < 5; ++id) before.push_back(octavo_store_address(s(), id));
  static_cast<float *>(before[4])[1] = 9.0f;
  add_weight(run.get(), "v", 2, 2);
  add_linear(run.get(), "c", 1);
  ASSERT_EQ(octavo_seal(run.get()), OCTAVO_OK);
  ASSERT_EQ(octavo_store_extend(s()), OCTAVO_OK);
  for (uint32_t id = 0; id < 5; ++id) EXPECT_EQ(octavo_store_address(s(), id), before[id]);
  EXPECT_EQ(static_cast<float *>(before[4])[1], 9.0f);
  EXPECT_NE(octavo_store_address(s(), 8), nullptr);
  EXPECT_EQ(octavo_store_slots(s(), OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, 2)[1],
            octavo_store_address(s(), 8));
  EXPECT_EQ(octavo_store_slots(s(), OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0)[2],
            octavo_store_address(s(), 8));
}

// After a seal and before extend, what is new is refused and what is old still works.
TEST_F(StoreTest, not_extended_yet) {
  open_store();
  add_weight(run.get(), "v", 2, 2);
  add_linear(run.get(), "c", 1);
  ASSERT_EQ(octavo_seal(run.get()), OCTAVO_OK);
  float memory[32] = {};
  EXPECT_EQ(octavo_store_native(s(), 1, OCTAVO_ROLE_WEIGHT, memory), OCTAVO_INVALID);
  EXPECT_EQ(octavo_store_native(s(), 0, OCTAVO_ROLE_WEIGHT, memory), OCTAVO_OK);
  EXPECT_EQ(octavo_store_address(s(), 5), nullptr);
  ASSERT_EQ(octavo_store_extend(s()), OCTAVO_OK);
  EXPECT_EQ(octavo_store_native(s(), 1, OCTAVO_ROLE_WEIGHT, memory), OCTAVO_OK);
}

// Lists of objects that no seal covers would be empty.
TEST_F(StoreTest, a_store_needs_a_seal_of_all_that_was_added) {
  RunPtr fresh;
  ASSERT_EQ(request.open(fresh), OCTAVO_OK) << request.host.error();
  octavo_store *raw = nullptr;
  const auto refuses = [&](octavo_status status, const char *counts) {
    EXPECT_EQ(status, OCTAVO_WRONG_STATE);
    EXPECT_THAT(request.host.error(), testing::HasSubstr(counts));
    EXPECT_THAT(request.host.error(), testing::HasSubstr("call octavo_seal before"));
    EXPECT_EQ(raw, nullptr);
  };
  refuses(octavo_store_open(fresh.get(), &raw), "0 parameters and 0 linears");
  ASSERT_EQ(add_weight(fresh.get(), "w", 32, 32).status, OCTAVO_OK);
  refuses(octavo_store_open(fresh.get(), &raw), "1 parameters and 0 linears");
  ASSERT_EQ(octavo_seal(fresh.get()), OCTAVO_OK);
  ASSERT_EQ(add_weight(fresh.get(), "v", 32, 32).status, OCTAVO_OK);
  refuses(octavo_store_open_sharded(fresh.get(), 0, 2, &raw), "2 parameters and 0 linears");
  ASSERT_EQ(octavo_seal(fresh.get()), OCTAVO_OK);
  ASSERT_EQ(octavo_store_open(fresh.get(), &raw), OCTAVO_OK) << request.host.error();
  const StorePtr held(std::exchange(raw, nullptr));
  ASSERT_EQ(add_linear(fresh.get(), "l", 0).status, OCTAVO_OK);
  refuses(octavo_store_extend(held.get()), "2 parameters and 1 linears");
  ASSERT_EQ(octavo_seal(fresh.get()), OCTAVO_OK);
  EXPECT_EQ(octavo_store_extend(held.get()), OCTAVO_OK);
}

TEST_F(StoreTest, null_arguments) {
  octavo_store *raw = nullptr;
  EXPECT_EQ(octavo_store_open(nullptr, &raw), OCTAVO_INVALID);
  EXPECT_EQ(octavo_store_open(run.get(), nullptr), OCTAVO_INVALID);
  EXPECT_EQ(octavo_store_extend(nullptr), OCTAVO_INVALID);
  EXPECT_EQ(octavo_store_native(nullptr, 0, 1, nullptr), OCTAVO_INVALID);
  octavo_store_close(nullptr);
}

}  // namespace
}  // namespace octavo::test
