// liboctavo_mpi in processes that mpirun starts: the cases of ranks.cpp on 1 to 4 ranks, and ranks
// that fail (failing_rank.cpp).
#include <gmock/gmock.h>

#include <regex>

#include "octavo/abi.h"
#include "tests/support/mpi_run.h"
#include "tests/support/param_name.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

class MpiWorld : public testing::TestWithParam<int> {};

TEST_P(MpiWorld, equals_octavo_ranks_and_refuses_as_it) {
  const Finished f =
      run_program(as_ranks(OCTAVO_MPIRUN, GetParam(), {OCTAVO_MPI_RANKS, "--gtest_brief=1"}));
  EXPECT_EQ(f.exit_code, 0) << f.out << f.err;
}

INSTANTIATE_TEST_SUITE_P(Ranks, MpiWorld, testing::Values(1, 2, 3, 4), kNameOfValue);

struct Told {
  int status = -1;
  int ms = -1;
  std::string text;
};

// What rank `rank` said of this call.
Told told(const Finished &f, int rank, const std::string &call) {
  std::smatch m;
  const std::regex line("rank " + std::to_string(rank) + ": " + call +
                        ": status (-?[0-9]+) after ([0-9]+) ms: ([^\n]*)");
  if (!std::regex_search(f.out, m, line)) return {};
  return {std::stoi(m[1]), std::stoi(m[2]), m[3]};
}

Finished fail_on_four(const char *way, int grace = 1) {
  return run_program(as_ranks(OCTAVO_MPIRUN, 4, {OCTAVO_MPI_FAILING_RANK, way}, grace));
}

void expect_failed(const Finished &f, const std::vector<int> &ranks, int within_ms,
                   const std::string &text) {
  for (const int rank : ranks) {
    const Told sum = told(f, rank, "sum");
    EXPECT_EQ(sum.status, OCTAVO_FAILED_DEVICE) << "rank " << rank << "\n" << f.out << f.err;
    EXPECT_LE(sum.ms, within_ms) << "rank " << rank;
    EXPECT_THAT(sum.text, testing::ContainsRegex(text)) << "rank " << rank;
    for (const char *call : {"check", "later"}) {
      const Told after = told(f, rank, call);
      EXPECT_EQ(after.status, OCTAVO_FAILED_DEVICE) << call << " of rank " << rank;
      EXPECT_LE(after.ms, 100) << call << " of rank " << rank;
      EXPECT_THAT(after.text, HasSubstr("not carried out, since the communicator of rank"));
    }
  }
}

TEST(MpiFailures, abort_lets_the_others_leave) {
  const Finished f = fail_on_four("abort");
  expect_failed(f, {0, 2, 3}, 3000, "rank 1 has failed or called octavo_mpi_abort");
  expect_failed(f, {1}, 3000, "the host called octavo_mpi_abort");
}

// mpirun ends the survivors soon after a process was killed; by then they have said why.
TEST(MpiFailures, a_rank_that_was_killed_is_named_long_before_the_deadline) {
  const Finished f = fail_on_four("killed", 3);
  expect_failed(
      f, {0, 2, 3}, 3000,
      "expected rank 1 to take part, found its process [0-9]+ ended|has failed or called");
  EXPECT_THAT(f.out, HasSubstr("expected rank 1 to take part"));
}

TEST(MpiFailures, a_deadline_ends_all_ranks) {
  const Finished f = fail_on_four("late");
  expect_failed(f, {0, 2, 3}, 1400, "expected an end within 500 ms|has failed or called");
  expect_failed(f, {1}, 4000, "has failed or called");
  EXPECT_THAT(f.out, HasSubstr("expected an end within 500 ms, found it pending"));
}

TEST(MpiFailures, mpi_that_cannot_be_used_is_refused) {
  EXPECT_THAT(fail_on_four("level").out,
              HasSubstr("status " + std::to_string(OCTAVO_UNSUPPORTED) +
                        ": octavo_mpi_open: expected MPI with MPI_THREAD_SERIALIZED or "
                        "MPI_THREAD_MULTIPLE, found MPI_THREAD_FUNNELED"));
  EXPECT_THAT(fail_on_four("finalized").out,
              HasSubstr("status " + std::to_string(OCTAVO_WRONG_STATE) +
                        ": octavo_mpi_open: expected MPI before MPI_Finalize"));
  const Finished alone = run_program({OCTAVO_MPI_FAILING_RANK, "alone"});
  EXPECT_THAT(alone.out, HasSubstr("status " + std::to_string(OCTAVO_WRONG_STATE) +
                                   ": octavo_mpi_open: expected a process that a launcher of MPI "
                                   "started"));
  EXPECT_THAT(alone.out, HasSubstr("mpirun -n 4"));
}

TEST(MpiFailures, mpi_that_open_started_is_finalized_by_close) {
  const Finished f = fail_on_four("owned");
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, HasSubstr("status 0, sum 4, finalized 1"));
}

}  // namespace
}  // namespace octavo::test
