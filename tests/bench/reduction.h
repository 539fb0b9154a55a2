// The msamp plugin's gradient reduction of one FP8 gradient between ranks of one process.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "octavo/draft/gradients.h"
#include "tests/support/request.h"

namespace octavo::bench {

class MsampReduction {
 public:
  // A gradient of `elements` (a multiple of 4096) normals on each of `world` ranks.
  MsampReduction(uint32_t world, int64_t elements);
  // What went wrong while opening; empty when nothing did.
  const std::string &error() const { return error_; }

  // One reduction of one rank; every rank calls it from its own thread.
  octavo_status reduce(uint32_t rank, const octavo_collective &c);
  // Bytes that one rank sends for each element of its gradient, by the usual algorithms.
  double wire_bytes() const;

 private:
  struct Rank {
    test::StorePtr store;
    octavo_parameter_item item{};
    void *send = nullptr;
    void *recv = nullptr;
    void *state = nullptr;
  };
  bool good(octavo_status status, const char *what);
  bool open_run();
  bool open_rank(uint32_t rank);

  uint32_t world_;
  int64_t elements_;
  std::string error_;
  test::Request request_;
  test::RunPtr run_;
  uint32_t parameter_ = 0;
  uint64_t buffer_bytes_ = 0;
  uint64_t state_bytes_ = 0;
  std::vector<Rank> ranks_;
  std::atomic<uint64_t> sent_{0};
  std::atomic<uint64_t> rounds_{0};
};

}  // namespace octavo::bench
