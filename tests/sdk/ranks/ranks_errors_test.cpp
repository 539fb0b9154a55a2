// octavo_ranks when ranks disagree, hand in wrong memory, or give up: one answer, and no deadlock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "tests/support/rank_threads.h"

namespace octavo::test {
namespace {

using testing::Each;

// One call of run or broadcast, as a test varies it.
struct Call {
  uint32_t collective = OCTAVO_COLLECTIVE_ALL_REDUCE_SUM;
  uint32_t dtype = OCTAVO_F32;
  const void *send = nullptr;
  uint64_t send_count = 0;
  void *recv = nullptr;
  uint64_t recv_count = 0;
  bool is_broadcast = false;
  uint32_t root = 0;

  octavo_status operator()(const octavo_collective &c) const {
    if (is_broadcast) return c.broadcast(c.ctx, root, recv, recv_count, nullptr);
    return c.run(c.ctx, collective, dtype, send, send_count, recv, recv_count, nullptr);
  }
};

class RankErrorsTest : public testing::Test {
 protected:
  static constexpr uint32_t kWorld = 3;
  using Change = std::function<void(uint32_t rank, Call &call)>;

  Call good(uint32_t rank) {
    Call c;
    c.send = send[rank].data();
    c.recv = recv[rank].data();
    c.send_count = c.recv_count = 6;
    return c;
  }
  // Every rank makes the good call, changed; then a good round shows that all go on together.
  std::vector<octavo_status> calls(const Change &change) {
    const auto answers = ranks.run([&](uint32_t rank, const octavo_collective &c) {
      Call call = good(rank);
      change(rank, call);
      return call(c);
    });
    EXPECT_THAT(ranks.run([&](uint32_t rank, const octavo_collective &c) { return good(rank)(c); }),
                Each(octavo_status{OCTAVO_OK}));
    return answers;
  }
  void expect(octavo_status status, const Change &change) {
    EXPECT_THAT(calls(change), Each(status));
  }
  // The same with the change on one rank only, for each rank.
  void expect_on_one(octavo_status status, const std::function<void(Call &)> &change) {
    for (uint32_t odd = 0; odd < kWorld; ++odd)
      expect(status, [&](uint32_t rank, Call &call) {
        if (rank == odd) change(call);
      });
  }

  RankThreads ranks{kWorld};
  std::array<std::array<float, 64>, kWorld> send = {}, recv = {};
};

TEST_F(RankErrorsTest, ranks_that_ask_for_different_things) {
  expect_on_one(OCTAVO_INVALID, [](Call &c) { c.collective = OCTAVO_COLLECTIVE_ALL_REDUCE_MAX; });
  expect_on_one(OCTAVO_INVALID, [](Call &c) { c.dtype = OCTAVO_I32; });
  expect_on_one(OCTAVO_INVALID, [](Call &c) { c.send_count = c.recv_count = 5; });
  expect_on_one(OCTAVO_INVALID, [](Call &c) { c.recv_count = 5; });
  expect_on_one(OCTAVO_INVALID, [](Call &c) { c.collective = 99; });
  expect_on_one(OCTAVO_INVALID, [](Call &c) { c.is_broadcast = true; });
  expect(OCTAVO_INVALID, [](uint32_t rank, Call &c) {
    c.is_broadcast = true;
    c.root = rank == 2 ? 1 : 0;
  });
  expect(OCTAVO_INVALID, [](uint32_t rank, Call &c) {
    c.is_broadcast = true;
    c.recv_count = rank == 1 ? 7 : 6;
  });
}

TEST_F(RankErrorsTest, counts_that_do_not_fit_the_world) {
  const auto all = [&](uint32_t collective, uint64_t send_count, uint64_t recv_count) {
    expect(OCTAVO_INVALID, [&](uint32_t, Call &c) {
      c.collective = collective;
      c.send_count = send_count;
      c.recv_count = recv_count;
    });
  };
  all(OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, 6, 5);
  all(OCTAVO_COLLECTIVE_ALL_REDUCE_MAX, 5, 6);
  all(OCTAVO_COLLECTIVE_ALL_TO_ALL, 6, 3);
  all(OCTAVO_COLLECTIVE_ALL_TO_ALL, 7, 7);
  all(OCTAVO_COLLECTIVE_ALL_GATHER, 2, 5);
  all(OCTAVO_COLLECTIVE_ALL_GATHER, 2, 7);
  all(OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM, 7, 2);
  all(OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM, 6, 3);
  // world * count would wrap to what is asked for.
  all(OCTAVO_COLLECTIVE_ALL_GATHER, 0xAAAAAAAAAAAAAAACu, 4);
  // Elements that fit a count but no memory.
  all(OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, uint64_t{1} << 62, uint64_t{1} << 62);
}

TEST_F(RankErrorsTest, missing_memory) {
  expect_on_one(OCTAVO_INVALID, [](Call &c) { c.send = nullptr; });
  expect_on_one(OCTAVO_INVALID, [](Call &c) { c.recv = nullptr; });
  for (uint32_t odd = 0; odd < kWorld; ++odd)
    expect(OCTAVO_INVALID, [&](uint32_t rank, Call &c) {
      c.is_broadcast = true;
      if (rank == odd) c.recv = nullptr;
    });
  expect(OCTAVO_OK, [](uint32_t, Call &c) {
    c.send = c.recv = nullptr;
    c.send_count = c.recv_count = 0;
  });
}

TEST_F(RankErrorsTest, misaligned_floats) {
  expect_on_one(OCTAVO_INVALID, [](Call &c) { c.send = static_cast<const char *>(c.send) + 2; });
}

TEST_F(RankErrorsTest, overlapping_memory) {
  // In place, but shifted; a gather onto its own input; one rank's result on another's input.
  expect_on_one(OCTAVO_INVALID, [](Call &c) {
    c.recv = const_cast<float *>(static_cast<const float *>(c.send)) + 5;
  });
  expect(OCTAVO_INVALID, [&](uint32_t rank, Call &c) {
    c.collective = OCTAVO_COLLECTIVE_ALL_GATHER;
    c.send_count = 2;
    c.send = recv[rank].data() + 2 * rank;
  });
  expect(OCTAVO_INVALID, [&](uint32_t rank, Call &c) {
    if (rank == 0) c.recv = send[1].data();
  });
  expect(OCTAVO_INVALID, [&](uint32_t rank, Call &c) {
    if (rank == 0) c.recv = recv[1].data() + 5;
  });
  expect(OCTAVO_INVALID, [&](uint32_t, Call &c) {
    c.is_broadcast = true;
    c.recv = recv[0].data();
  });
  // Ranks may send the same memory: nobody writes it.
  expect(OCTAVO_OK, [&](uint32_t, Call &c) { c.send = send[0].data(); });
}

TEST_F(RankErrorsTest, unknown_or_unsupported) {
  expect(OCTAVO_INVALID, [](uint32_t, Call &c) { c.collective = OCTAVO_COLLECTIVE_NONE; });
  expect(OCTAVO_UNSUPPORTED, [](uint32_t, Call &c) { c.collective = 6; });
  expect(OCTAVO_UNSUPPORTED, [](uint32_t, Call &c) {
    c.collective = OCTAVO_COLLECTIVE_ALL_TO_ALL;
    c.dtype = 0x2063u;
  });
  for (uint32_t collective : {OCTAVO_COLLECTIVE_ALL_REDUCE_MAX, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM})
    for (uint32_t dtype : {OCTAVO_F16, OCTAVO_BF16, OCTAVO_I32, OCTAVO_U8})
      expect(OCTAVO_UNSUPPORTED, [&](uint32_t, Call &c) {
        c.collective = collective;
        c.dtype = dtype;
      });
  expect(OCTAVO_INVALID, [](uint32_t, Call &c) {
    c.is_broadcast = true;
    c.root = kWorld;
  });
}

TEST_F(RankErrorsTest, refused_calls_write_nothing) {
  recv[1].fill(5);
  calls([](uint32_t rank, Call &c) { c.recv_count = rank == 0 ? 5 : 6; });
  EXPECT_EQ(recv[1][6], 5.0f);  // beyond what the good round after it writes
  recv[1].fill(5);
  const auto answers = ranks.run([&](uint32_t rank, const octavo_collective &c) {
    Call call = good(rank);
    if (rank == 0) call.send = nullptr;
    return call(c);
  });
  EXPECT_THAT(answers, Each(octavo_status{OCTAVO_INVALID}));
  EXPECT_THAT(recv[1], Each(5.0f));
}

// The last rank never comes: the others wait until somebody gives up.
TEST_F(RankErrorsTest, abort_wakes_who_waits) {
  std::atomic<int> entered{0};
  EXPECT_THAT(ranks.run([&](uint32_t rank, const octavo_collective &c) -> octavo_status {
    if (rank != 2) {
      ++entered;
      return good(rank)(c);
    }
    while (entered < 2) std::this_thread::yield();
    octavo_ranks_abort(ranks.get());
    return OCTAVO_FAILED_DEVICE;
  }),
              Each(octavo_status{OCTAVO_FAILED_DEVICE}));
  // Later calls do not wait for anybody.
  for (uint32_t rank = 0; rank < kWorld; ++rank) {
    EXPECT_EQ(good(rank)(*ranks.collective(rank)), OCTAVO_FAILED_DEVICE);
    Call call = good(rank);
    call.is_broadcast = true;
    EXPECT_EQ(call(*ranks.collective(rank)), OCTAVO_FAILED_DEVICE);
  }
  octavo_ranks_abort(ranks.get());  // twice is once
}

// Memory that a rank frees when its call returns is read by nobody, abort or not; and a round ends
// alike on all ranks.
TEST(RankAbortTest, abort_in_the_middle_of_rounds) {
  for (int repetition = 0; repetition < 20; ++repetition) {
    RankThreads ranks(3);
    std::array<std::atomic<int>, 3> done = {};
    std::thread aborter([&] {
      while (done[0] < 5 + repetition) std::this_thread::yield();
      octavo_ranks_abort(ranks.get());
    });
    const auto answers = ranks.run([&](uint32_t rank, const octavo_collective &c) -> octavo_status {
      for (;;) {
        const std::vector<float> send(3000, 1);
        std::vector<float> recv(3000);
        const octavo_status status =
            c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, send.data(), send.size(),
                  recv.data(), recv.size(), nullptr);
        if (status != OCTAVO_OK) return status;
        if (recv != std::vector<float>(3000, 3)) return OCTAVO_INTERNAL;
        ++done[rank];
      }
    });
    aborter.join();
    EXPECT_THAT(answers, Each(octavo_status{OCTAVO_FAILED_DEVICE}));
    EXPECT_EQ(done[0], done[1]);
    EXPECT_EQ(done[0], done[2]);
  }
}

// A second thread with the same rank is refused and disturbs no other.
TEST_F(RankErrorsTest, one_rank_from_two_threads) {
  std::array<octavo_status, 2> answers = {OCTAVO_INTERNAL, OCTAVO_INTERNAL};
  std::atomic<int> returned{0};
  std::vector<std::thread> twins;
  for (size_t i = 0; i < 2; ++i)
    twins.emplace_back([&, i] {
      answers[i] = good(0)(*ranks.collective(0));
      ++returned;
    });
  while (returned < 1) std::this_thread::yield();  // the refused one: the other waits
  std::vector<std::thread> others;
  std::array<octavo_status, 2> rest = {OCTAVO_INTERNAL, OCTAVO_INTERNAL};
  for (uint32_t rank = 1; rank < kWorld; ++rank)
    others.emplace_back([&, rank] { rest[rank - 1] = good(rank)(*ranks.collective(rank)); });
  for (auto *group : {&twins, &others})
    for (std::thread &t : *group) t.join();
  EXPECT_THAT(answers, testing::UnorderedElementsAre(octavo_status{OCTAVO_OK},
                                                     octavo_status{OCTAVO_WRONG_STATE}));
  EXPECT_THAT(rest, Each(octavo_status{OCTAVO_OK}));
}

TEST(RanksOpenTest, arguments) {
  octavo_ranks *raw = nullptr;
  EXPECT_EQ(octavo_ranks_open(2, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(octavo_ranks_open(0, &raw), OCTAVO_INVALID);
  EXPECT_EQ(octavo_ranks_open(4097, &raw), OCTAVO_INVALID);
  EXPECT_EQ(raw, nullptr);
  EXPECT_EQ(octavo_ranks_collective(nullptr, 0), nullptr);
  octavo_ranks_abort(nullptr);
  octavo_ranks_close(nullptr);
}

}  // namespace
}  // namespace octavo::test
