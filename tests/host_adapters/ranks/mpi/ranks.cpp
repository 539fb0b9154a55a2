// One rank of MPI: its cases compare with octavo_ranks in the same process, which has the operands
// of all ranks. mpi_test.cpp starts it under mpirun.
#include "tests/host_adapters/ranks/mpi/ranks.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "tests/support/collective.h"
#include "tests/support/rank_threads.h"
#include "tests/support/refused_collectives.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

class MpiCollectives : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mpi.opened, OCTAVO_OK) << mpi.listener.last(); }

  void check(uint32_t collective, size_t unit, bool in_place) {
    std::mt19937 random(collective * 1000 + static_cast<uint32_t>(unit) + mpi.world);
    const Sizes n = sizes(collective, unit, mpi.world);
    // Which NaN a sum of several is depends on the compiler; a maximum keeps the first.
    const bool special = collective != OCTAVO_COLLECTIVE_ALL_REDUCE_SUM &&
                         collective != OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM;
    std::vector<Values> send, recv(mpi.world, Values(n.recv, -7));
    for (uint32_t r = 0; r < mpi.world; ++r) send.push_back(random_values(random, n.send, special));
    Values found = in_place ? send[mpi.rank] : recv[mpi.rank];
    ASSERT_EQ(run(mpi.table(), collective, in_place ? found : send[mpi.rank], found), OCTAVO_OK)
        << mpi.listener.last();
    ranks.run([&](uint32_t r, const octavo_collective &c) {
      if (in_place) recv[r] = send[r];
      return run(c, collective, in_place ? recv[r] : send[r], recv[r]);
    });
    EXPECT_TRUE(bits(found) == bits(recv[mpi.rank]))
        << "collective " << collective << ", rank " << mpi.rank << ", unit " << unit;
  }

  MpiRank mpi;
  RankThreads ranks{mpi.world == 0 ? 1 : mpi.world};
};

// 4096 and 4097: the longest in one exchange, and one more. 16384 floats of all ranks fit into the
// scratch, so longer ones run in pieces.
TEST_F(MpiCollectives, equal_octavo_ranks_in_every_bit) {
  for (uint32_t collective = OCTAVO_COLLECTIVE_ALL_REDUCE_MAX;
       collective <= OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM; ++collective)
    for (size_t unit : {0u, 1u, 3u, 4096u, 4097u, 40001u}) check(collective, unit, false);
}

TEST_F(MpiCollectives, all_reduce_in_place) {
  for (uint32_t collective : {OCTAVO_COLLECTIVE_ALL_REDUCE_MAX, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM})
    for (size_t unit : {1u, 7u, 40001u}) check(collective, unit, true);
}

TEST_F(MpiCollectives, broadcast_from_every_root) {
  for (uint32_t root = 0; root < mpi.world; ++root) {
    for (size_t bytes : {0u, 1u, 4099u, 200001u}) {
      std::vector<uint8_t> data(bytes), sent(bytes);
      std::iota(data.begin(), data.end(), static_cast<uint8_t>(50 * mpi.rank));
      std::iota(sent.begin(), sent.end(), static_cast<uint8_t>(50 * root));
      ASSERT_EQ(mpi.table().broadcast(mpi.table().ctx, root, data.data(), bytes, nullptr),
                OCTAVO_OK);
      EXPECT_EQ(data, sent) << "root " << root;
    }
  }
}

// Every dtype, at an odd address where it has one byte, in pieces.
TEST_F(MpiCollectives, move_every_dtype) {
  for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2,
                               OCTAVO_E8M0FNU, OCTAVO_U8, OCTAVO_I32}) {
    const size_t width = OCTAVO_DTYPE_BITS(dtype) / 8;
    for (const uint32_t collective : {OCTAVO_COLLECTIVE_ALL_TO_ALL, OCTAVO_COLLECTIVE_ALL_GATHER}) {
      const Sizes n = sizes(collective, 20011, mpi.world);
      std::vector<std::vector<uint8_t>> send(mpi.world), expected(mpi.world);
      for (uint32_t r = 0; r < mpi.world; ++r) {
        send[r].resize(1 + n.send * width);
        expected[r].resize(1 + n.recv * width);
        std::iota(send[r].begin(), send[r].end(), static_cast<uint8_t>(40 * r));
      }
      std::vector<uint8_t> found = expected[mpi.rank];
      const auto body = [&](uint32_t r, const octavo_collective &c, std::vector<uint8_t> &recv) {
        return c.run(c.ctx, collective, dtype, send[r].data() + 1, n.send, recv.data() + 1, n.recv,
                     nullptr);
      };
      ASSERT_EQ(body(mpi.rank, mpi.table(), found), OCTAVO_OK) << mpi.listener.last();
      ranks.run([&](uint32_t r, const octavo_collective &c) { return body(r, c, expected[r]); });
      EXPECT_EQ(found, expected[mpi.rank]) << "dtype " << dtype << ", collective " << collective;
    }
  }
}

TEST_F(MpiCollectives, refuse_what_octavo_ranks_refuses) {
  std::vector<Values> memory(mpi.world, Values(64));
  for (const RefusedCollective &k : kRefusedCollectives) {
    const octavo_status found = run(mpi.table(), k, memory[0].data());
    const auto expected = ranks.run(
        [&](uint32_t r, const octavo_collective &c) { return run(c, k, memory[r].data()); });
    EXPECT_EQ(found, expected[0]) << k.text;
    if (mpi.world == 2) {
      EXPECT_THAT(mpi.listener.last(), HasSubstr(k.text));
    }
  }
  check(OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, 5, false);  // it works on
}

// One rank's mistake is every rank's refusal: nobody waits for its deadline.
TEST_F(MpiCollectives, one_rank_that_differs_is_refused_on_all) {
  if (mpi.world < 2) return;
  const bool odd = mpi.rank == 1;
  Values a(64), b(64 * mpi.world);
  const octavo_collective &c = mpi.table();
  const auto expect = [&](octavo_status found, const char *text) {
    EXPECT_EQ(found, OCTAVO_INVALID);
    EXPECT_THAT(mpi.listener.last(), HasSubstr(text));
  };
  expect(c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, a.data(), odd ? 5 : 6, b.data(),
               odd ? 5 : 6, nullptr),
         "expected the same call on every rank");
  expect(c.run(c.ctx, odd ? OCTAVO_COLLECTIVE_ALL_REDUCE_SUM : OCTAVO_COLLECTIVE_ALL_REDUCE_MAX,
               OCTAVO_F32, a.data(), 6, b.data(), 6, nullptr),
         "expected the same call on every rank");
  expect(odd ? c.broadcast(c.ctx, 0, a.data(), 6, nullptr)
             : c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_U8, a.data(), 6, b.data(),
                     6 * mpi.world, nullptr),
         "broadcast of 6");
  expect(c.broadcast(c.ctx, odd ? 0 : 1, a.data(), 6, nullptr), "root 0");
  expect(c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, odd ? nullptr : a.data(), 6,
               b.data(), 6, nullptr),
         odd ? "send: expected an address" : "rank 1 was refused for its arguments");
  expect(c.broadcast(c.ctx, mpi.world, a.data(), 6, nullptr), "expected a root below");
  check(OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, 5, false);  // it works on
}

TEST_F(MpiCollectives, a_second_thread_is_refused) {
  float one = 1;
  const octavo_collective &c = mpi.table();
  std::atomic<octavo_status> first{OCTAVO_INTERNAL};
  std::atomic<int> refused = 0, passed = 0;
  const auto call = [&](float *value) {
    return c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, value, 1, value, 1, nullptr);
  };
  if (mpi.world > 1 && mpi.rank == 0) {
    // Waits for the others, which come when this rank's second call has been refused.
    std::thread thread([&] { first = call(&one); });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    float other = 1;
    EXPECT_EQ(call(&other), OCTAVO_WRONG_STATE);
    EXPECT_THAT(mpi.listener.last(), HasSubstr("expected one thread at a time"));
    MPI_Barrier(MPI_COMM_WORLD);
    thread.join();
    EXPECT_EQ(first, OCTAVO_OK);
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT_EQ(call(&one), OCTAVO_OK);
  }
  EXPECT_EQ(one, static_cast<float>(mpi.world));
}

TEST_F(MpiCollectives, a_child_of_fork_is_refused) {
  const pid_t child = fork();
  if (child == 0) {
    float one = 1;
    const octavo_collective &c = mpi.table();
    const bool is_refused = c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, &one, 1,
                                  &one, 1, nullptr) == OCTAVO_WRONG_STATE &&
                            c.broadcast(c.ctx, 0, &one, 4, nullptr) == OCTAVO_WRONG_STATE &&
                            octavo_mpi_check(mpi.handle) == OCTAVO_WRONG_STATE;
    octavo_mpi_close(mpi.handle);
    _exit(is_refused ? 7 : 1);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_EQ(WEXITSTATUS(state), 7);
  check(OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, 5, false);  // here it works on
}

TEST_F(MpiCollectives, table_of_a_rank) {
  int rank = 0, world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  const octavo_collective &c = mpi.table();
  EXPECT_EQ(c.size, sizeof(c));
  EXPECT_EQ(c.kind, uint32_t{OCTAVO_KIND_COLLECTIVE});
  EXPECT_EQ(c.world, static_cast<uint32_t>(world));
  EXPECT_EQ(mpi.rank, static_cast<uint32_t>(rank));
  EXPECT_EQ(c.reserved, 0u);
  EXPECT_EQ(octavo_mpi_check(mpi.handle), OCTAVO_OK);
  EXPECT_EQ(octavo_mpi_rank(nullptr), uint32_t{OCTAVO_NONE});
  EXPECT_EQ(octavo_mpi_collective(nullptr), nullptr);
}

// A part of the world, and a handler of the host's own that comes back.
TEST(MpiOpen, a_communicator_of_the_host) {
  int rank = 0, world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  {
    MpiRank mpi(20000, half);
    ASSERT_EQ(mpi.opened, OCTAVO_OK) << mpi.listener.last();
    EXPECT_EQ(mpi.world, static_cast<uint32_t>((world + 1 - rank % 2) / 2));
    float sum = static_cast<float>(rank), expected = 0;
    for (int r = rank % 2; r < world; r += 2) expected += static_cast<float>(r);
    const octavo_collective &c = mpi.table();
    EXPECT_EQ(c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, &sum, 1, &sum, 1, nullptr),
              OCTAVO_OK);
    EXPECT_EQ(sum, expected);
  }
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(half, &handler);
  EXPECT_EQ(handler, MPI_ERRORS_ARE_FATAL);
  MPI_Comm_free(&half);
}

TEST(MpiOpen, refuses_a_desc_that_cannot_be) {
  const Listener listener;
  octavo_mpi_desc d = {};
  d.size = sizeof(d);
  octavo_mpi *out = nullptr;
  EXPECT_EQ(octavo_mpi_open(nullptr, &out), OCTAVO_INVALID);
  EXPECT_EQ(octavo_mpi_open(&d, &out), OCTAVO_INVALID);  // nobody to tell
  d.host = listener.host();
  EXPECT_EQ(octavo_mpi_open(&d, nullptr), OCTAVO_INVALID);
  EXPECT_THAT(listener.last(), HasSubstr("out: expected an address"));
  for (const uint64_t bytes : {8u, 65532u, 65540u}) {
    d.scratch_bytes = bytes;
    EXPECT_EQ(octavo_mpi_open(&d, &out), OCTAVO_INVALID);
    EXPECT_THAT(listener.last(), HasSubstr("a multiple of 8 from 65536 on, found "));
  }
  d.scratch_bytes = 0;
  const MPI_Comm none = MPI_COMM_NULL;
  d.comm = &none;
  EXPECT_EQ(octavo_mpi_open(&d, &out), OCTAVO_INVALID);
  EXPECT_THAT(listener.last(), HasSubstr("found MPI_COMM_NULL"));
  EXPECT_EQ(out, nullptr);
  octavo_mpi_close(nullptr);
  octavo_mpi_abort(nullptr);
}

TEST(MpiOpen, refuses_ranks_of_different_scratch) {
  const Listener listener;
  int rank = 0, world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  if (world == 1) return;
  octavo_mpi_desc d = {};
  d.size = sizeof(d);
  d.host = listener.host();
  d.scratch_bytes = rank == 1 ? 65536 : 131072;
  octavo_mpi *out = nullptr;
  EXPECT_EQ(octavo_mpi_open(&d, &out), OCTAVO_INVALID);
  EXPECT_THAT(listener.last(), HasSubstr("found 131072 on rank 0 and 65536 on rank 1"));
  EXPECT_EQ(out, nullptr);
}

}  // namespace
}  // namespace octavo::test

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  const int failed = RUN_ALL_TESTS();
  MPI_Finalize();
  return failed;
}
