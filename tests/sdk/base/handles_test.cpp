// Handles of the C API after their end: closed twice, used after close, or never opened. Each
// answers as octavo.h documents, and none reaches an object that was opened since.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "octavo/draft/grouped.h"
#include "octavo/draft/reduction.h"
#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/model.h"

namespace octavo::test {
namespace {

class Handles : public testing::Test {
 protected:
  void SetUp() override {
    put_fake(dir, "plugins");
    request.set("plugins.trust", "dev").set("fp8.backend", "fake").plugins(dir / "plugins");
  }
  octavo_run *open_run() {
    const octavo_open_desc d = request.desc();
    octavo_run *run = nullptr;
    EXPECT_EQ(octavo_open(&d, &run), OCTAVO_OK) << request.host.error();
    return run;
  }
  octavo_run *open_sealed() {
    octavo_run *run = open_run();
    EXPECT_EQ(add_weight(run, "w", 4, 8).status, OCTAVO_OK);
    EXPECT_EQ(add_linear(run, "a", 0).status, OCTAVO_OK);
    EXPECT_EQ(octavo_seal(run), OCTAVO_OK) << request.host.error();
    return run;
  }
  static octavo_store *open_store(octavo_run *run) {
    octavo_store *store = nullptr;
    EXPECT_EQ(octavo_store_open(run, &store), OCTAVO_OK);
    return store;
  }

  // What every function that takes a run answers for one that is not open.
  void expect_no_run(octavo_run *run, octavo_status expected) {
    std::string out;
    EXPECT_EQ(octavo_report(run, borrow("text"), Request::append_line, &out), expected);
    EXPECT_EQ(out, "");
    EXPECT_EQ(add_weight(run, "w", 4, 8).status, expected);
    EXPECT_EQ(add_linear(run, "a", 0).status, expected);
    EXPECT_EQ(octavo_seal(run), expected);
    EXPECT_EQ(octavo_run_slot_count(run), 0u);
    EXPECT_EQ(octavo_run_slot(run, 0), nullptr);
    EXPECT_EQ(octavo_run_use_count(run, OCTAVO_OWNER_SESSION, 0), 0u);
    EXPECT_EQ(octavo_run_use(run, OCTAVO_OWNER_SESSION, 0, 0), nullptr);
    EXPECT_EQ(octavo_run_plan(run, 0), nullptr);
    EXPECT_EQ(octavo_run_backend(run), nullptr);
    EXPECT_EQ(static_cast<const octavo_optimizer *>(
                  octavo_run_interface(run, OCTAVO_STR(OCTAVO_OPTIMIZER_ID))),
              nullptr);
    EXPECT_EQ(static_cast<const octavo_gradients *>(
                  octavo_run_interface(run, OCTAVO_STR(OCTAVO_GRADIENTS_ID))),
              nullptr);
    EXPECT_EQ(
        static_cast<const octavo_fused *>(octavo_run_interface(run, OCTAVO_STR(OCTAVO_FUSED_ID))),
        nullptr);
    EXPECT_EQ(static_cast<const octavo_grouped *>(
                  octavo_run_interface(run, OCTAVO_STR(OCTAVO_GROUPED_ID))),
              nullptr);
    EXPECT_EQ(
        static_cast<const octavo_shard *>(octavo_run_interface(run, OCTAVO_STR(OCTAVO_SHARD_ID))),
        nullptr);
    EXPECT_EQ(octavo_run_session(run), nullptr);
    EXPECT_EQ(octavo_run_session_desc(run), nullptr);
    EXPECT_EQ(octavo_run_precision(run).size, 0u);
    EXPECT_EQ(octavo_run_backend_id(run).size, 0u);
    octavo_store *store = reinterpret_cast<octavo_store *>(this);
    EXPECT_EQ(octavo_store_open(run, &store), expected);
    EXPECT_EQ(store, nullptr);
    EXPECT_EQ(octavo_store_open_sharded(run, 0, 2, &store), expected);
    void *slot = nullptr;
    EXPECT_EQ(octavo_store_over(run, &slot, nullptr, &store), expected);
    const uint32_t parameter = 0;
    uint64_t bytes = 0;
    EXPECT_EQ(octavo_reduction_bytes(run, &parameter, 1, 2, &bytes, &bytes), expected);
    EXPECT_EQ(octavo_reduce_gradients(run, nullptr, 0, nullptr, nullptr, nullptr, nullptr, nullptr),
              expected);
    octavo_close(run);
  }

  // What works only with an open store of an open run.
  void expect_no_work(octavo_store *store, octavo_status expected) {
    float data[32] = {};
    uint64_t step = 7;
    EXPECT_EQ(octavo_store_extend(store), expected);
    EXPECT_EQ(octavo_store_native(store, 0, OCTAVO_ROLE_WEIGHT, data), expected);
    EXPECT_EQ(octavo_store_clear(store, OCTAVO_ROLE_WEIGHT), expected);
    EXPECT_EQ(octavo_store_save(store, borrow(dir / "state"), 1), expected);
    EXPECT_EQ(octavo_store_load(store, borrow(dir / "state"), &step), expected);
    EXPECT_EQ(step, 7u);
    EXPECT_EQ(octavo_store_reduce(store, nullptr, nullptr), expected);
    EXPECT_EQ(octavo_store_publish(store, nullptr, nullptr), expected);
    EXPECT_FALSE(std::filesystem::exists(dir / "state"));
  }
  void expect_no_store(octavo_store *store, octavo_status expected) {
    expect_no_work(store, expected);
    EXPECT_EQ(octavo_store_owner(store, 0), OCTAVO_NONE);
    void *const *list = octavo_store_slots(store, OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, 0);
    ASSERT_NE(list, nullptr);
    EXPECT_EQ(list[0], nullptr);
    EXPECT_EQ(octavo_store_address(store, 0), nullptr);
    EXPECT_EQ(octavo_store_bytes(store, 0), 0u);
    octavo_store_close(store);
  }

  Environment environment;
  TempDir dir;
  Request request;
};

TEST_F(Handles, null_is_no_handle) {
  expect_no_run(nullptr, OCTAVO_INVALID);
  expect_no_store(nullptr, OCTAVO_INVALID);
  EXPECT_EQ(octavo_threads_parallel(nullptr), nullptr);
  octavo_threads_close(nullptr);
  EXPECT_EQ(octavo_ranks_collective(nullptr, 0), nullptr);
  octavo_ranks_abort(nullptr);
  octavo_ranks_close(nullptr);
}

TEST_F(Handles, closed_run) {
  octavo_run *run = open_sealed();
  octavo_close(run);
  expect_no_run(run, OCTAVO_WRONG_STATE);
}

TEST_F(Handles, closed_store) {
  octavo_run *run = open_sealed();
  octavo_store *store = open_store(run);
  octavo_store_close(store);
  expect_no_store(store, OCTAVO_WRONG_STATE);
  octavo_close(run);
}

TEST_F(Handles, store_of_a_closed_run_keeps_its_memory) {
  octavo_run *run = open_sealed();
  octavo_store *store = open_store(run);
  const uint64_t bytes = octavo_store_bytes(store, 0);
  ASSERT_GT(bytes, 0u);
  void *address = octavo_store_address(store, 0);
  ASSERT_NE(address, nullptr);
  octavo_close(run);
  expect_no_work(store, OCTAVO_WRONG_STATE);
  EXPECT_EQ(octavo_store_bytes(store, 0), bytes);
  EXPECT_EQ(octavo_store_address(store, 0), address);
  EXPECT_EQ(octavo_store_owner(store, 0), 0u);
  static_cast<char *>(address)[0] = 1;
  // Nor does a run that was opened since answer for the old one.
  octavo_run *other = open_sealed();
  expect_no_work(store, OCTAVO_WRONG_STATE);
  octavo_store_close(store);
  octavo_close(other);
}

TEST_F(Handles, closed_threads) {
  octavo_threads *threads = nullptr;
  ASSERT_EQ(octavo_threads_open(2, &threads), OCTAVO_OK);
  octavo_threads_close(threads);
  EXPECT_EQ(octavo_threads_parallel(threads), nullptr);
  octavo_threads_close(threads);
}

TEST_F(Handles, closed_ranks) {
  octavo_ranks *ranks = nullptr;
  ASSERT_EQ(octavo_ranks_open(2, &ranks), OCTAVO_OK);
  octavo_ranks_close(ranks);
  EXPECT_EQ(octavo_ranks_collective(ranks, 0), nullptr);
  octavo_ranks_abort(ranks);
  octavo_ranks_close(ranks);
}

TEST_F(Handles, old_handle_never_names_what_was_opened_since) {
  octavo_run *first = open_run();
  octavo_close(first);
  std::set<octavo_run *> seen = {first};
  for (int i = 0; i < 100; ++i) {
    octavo_run *next = open_run();
    EXPECT_TRUE(seen.insert(next).second);
    EXPECT_EQ(octavo_seal(first), OCTAVO_WRONG_STATE);
    octavo_close(first);  // again, and without an effect on the next
    EXPECT_EQ(text_of(octavo_run_backend_id(next)), "fake");
    octavo_close(next);
  }
}

TEST_F(Handles, values_that_were_never_opened) {
  octavo_run *run = open_run();
  int local = 0;
  const auto number = reinterpret_cast<uintptr_t>(run);
  for (const uintptr_t other :
       {uintptr_t{1}, uintptr_t{16}, number ^ 16, number + (uintptr_t{1} << 24), number | 1,
        number | 0xFFFFF0, ~uintptr_t{0}, reinterpret_cast<uintptr_t>(&local)})
    expect_no_run(reinterpret_cast<octavo_run *>(other), OCTAVO_WRONG_STATE);
  expect_no_store(reinterpret_cast<octavo_store *>(run), OCTAVO_WRONG_STATE);
  octavo_threads_close(reinterpret_cast<octavo_threads *>(run));
  octavo_ranks_close(reinterpret_cast<octavo_ranks *>(run));
  EXPECT_EQ(text_of(octavo_run_backend_id(run)), "fake");
  octavo_close(run);
}

TEST_F(Handles, of_many_who_close_one_handle_one_does) {
  for (int round = 0; round < 20; ++round) {
    octavo_threads *threads = nullptr;
    ASSERT_EQ(octavo_threads_open(1, &threads), OCTAVO_OK);
    std::vector<std::thread> closers;
    for (int i = 0; i < 8; ++i) closers.emplace_back([&] { octavo_threads_close(threads); });
    for (std::thread &t : closers) t.join();
    EXPECT_EQ(octavo_threads_parallel(threads), nullptr);
  }
}

TEST_F(Handles, more_than_one_chunk_is_open_at_once) {
  std::vector<octavo_ranks *> all(3000);
  for (octavo_ranks *&ranks : all) ASSERT_EQ(octavo_ranks_open(1, &ranks), OCTAVO_OK);
  EXPECT_EQ(std::set<octavo_ranks *>(all.begin(), all.end()).size(), all.size());
  for (octavo_ranks *ranks : all) {
    EXPECT_EQ(octavo_ranks_collective(ranks, 0)->world, 1u);
    octavo_ranks_close(ranks);
  }
  for (octavo_ranks *ranks : all) EXPECT_EQ(octavo_ranks_collective(ranks, 0), nullptr);
}

}  // namespace
}  // namespace octavo::test
