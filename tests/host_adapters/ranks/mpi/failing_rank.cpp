// One rank of MPI that fails, or that another one leaves: what its calls answer, and how soon.
//
//   failing_rank <way>   one of: abort, killed, late; level, finalized, alone, owned
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "tests/host_adapters/ranks/mpi/ranks.h"

namespace {

using Clock = std::chrono::steady_clock;

octavo_status sum(const octavo_collective &c) {
  float one = 1;
  return c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, &one, 1, &one, 1, nullptr);
}

void tell(octavo::test::MpiRank &mpi, const char *call, octavo_status status,
          Clock::time_point began) {
  std::printf(
      "rank %u: %s: status %d after %lld ms: %s\n", mpi.rank, call, status,
      static_cast<long long>(
          std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began).count()),
      mpi.listener.last().c_str());
  std::fflush(stdout);
}

// After a failure MPI is not finalized: the process ends.
[[noreturn]] void end(int code) {
  std::fflush(stdout);
  _exit(code);
}

[[noreturn]] void lose(const char *way) {
  const bool is_late = std::strcmp(way, "late") == 0;
  octavo::test::MpiRank mpi(is_late ? 500 : 20000);
  if (mpi.opened != OCTAVO_OK || sum(mpi.table()) != OCTAVO_OK) end(2);
  const Clock::time_point began = Clock::now();
  if (mpi.rank == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(is_late ? 1500 : 200));
    if (std::strcmp(way, "killed") == 0) kill(getpid(), SIGKILL);
    if (std::strcmp(way, "abort") == 0) octavo_mpi_abort(mpi.handle);
  }
  const octavo_status status = sum(mpi.table());
  tell(mpi, "sum", status, began);
  const Clock::time_point again = Clock::now();
  const octavo_status later = octavo_mpi_check(mpi.handle);
  tell(mpi, "check", later, again);
  tell(mpi, "later", sum(mpi.table()), again);
  /* mpirun ends all ranks when one ends so; by then the others have told, too. */
  std::this_thread::sleep_for(std::chrono::milliseconds(is_late ? 1500 : 300));
  end(3);
}

int refused(const char *way) {
  const bool is_level = std::strcmp(way, "level") == 0;
  if (std::strcmp(way, "alone") != 0) {
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, is_level ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &level);
    if (!is_level) MPI_Finalize();
  }
  octavo::test::Listener listener;
  octavo_mpi_desc d = {};
  d.size = sizeof(d);
  d.host = listener.host();
  octavo_mpi *out = nullptr;
  const octavo_status status = octavo_mpi_open(&d, &out);
  std::printf("status %d: %s\n", status, listener.last().c_str());
  if (is_level) MPI_Finalize();
  return out == nullptr ? 0 : 1;
}

// The library's own MPI_Init_thread and MPI_Finalize.
int owned() {
  octavo::test::Listener listener;
  const octavo_host *host = listener.host();
  float gradient = 1;
  // [open]
  octavo_mpi_desc desc = {};
  desc.size = sizeof(desc);
  desc.host = host;
  desc.deadline_ms = 120000;
  octavo_mpi *ranks = nullptr;
  octavo_status status = octavo_mpi_open(&desc, &ranks); /* each process that mpirun started */
  if (status != OCTAVO_OK) return 1;                     /* the reason went to host->diagnose */
  const octavo_collective *c = octavo_mpi_collective(ranks);
  status = c->run(c->ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, &gradient, 1, &gradient, 1,
                  nullptr);
  if (status != OCTAVO_OK) octavo_mpi_abort(ranks); /* the others need not wait for this one */
  octavo_mpi_close(ranks);
  // [/open]
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  std::printf("status %d, sum %g, finalized %d\n", status, gradient, is_finalized);
  return 0;
}

}  // namespace

int main(int argc, char **argv) {
  const char *way = argc > 1 ? argv[1] : "";
  if (std::strcmp(way, "owned") == 0) return owned();
  for (const char *one : {"level", "finalized", "alone"})
    if (std::strcmp(way, one) == 0) return refused(way);
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  lose(way);
}
