// What the cases of one rank's process share: the communicator, and what it told its host.
#pragma once

#include <gtest/gtest.h>
#include <mpi.h>

#include "host_adapters/ranks/mpi/octavo_mpi.h"
#include "tests/host_adapters/ranks/listener.h"

namespace octavo::test {

class MpiRank {
 public:
  explicit MpiRank(uint32_t deadline_ms = 20000, MPI_Comm comm = MPI_COMM_WORLD) {
    octavo_mpi_desc d = {};
    d.size = sizeof(d);
    d.host = listener.host();
    d.comm = &comm;
    d.deadline_ms = deadline_ms;
    d.scratch_bytes = 65536;
    opened = octavo_mpi_open(&d, &handle);
    if (opened != OCTAVO_OK) return;
    rank = octavo_mpi_rank(handle);
    world = table().world;
  }
  ~MpiRank() { octavo_mpi_close(handle); }
  MpiRank(const MpiRank &) = delete;
  MpiRank &operator=(const MpiRank &) = delete;

  const octavo_collective &table() { return *octavo_mpi_collective(handle); }

  Listener listener;
  octavo_status opened = OCTAVO_INTERNAL;
  octavo_mpi *handle = nullptr;
  uint32_t rank = 0, world = 0;
};

}  // namespace octavo::test
