// One dimension or two: what Octavo's hosts can train on.
#include "sdk/cli/plan/mesh.h"

#include <charconv>
#include <vector>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"

namespace octavo::cli::plan {
namespace {

constexpr uint64_t kMostRanks = 4096;  // of octavo_ranks, liboctavo_mpi and liboctavo_nccl

}  // namespace

Mesh parse_mesh(const std::string &text, const std::string &parallel) {
  std::vector<uint64_t> sizes;
  uint64_t world = 1;
  for (const std::string &one : split(text, 'x')) {
    uint64_t size = 0;
    const auto parsed = std::from_chars(one.data(), one.data() + one.size(), size);
    const bool is_whole = parsed.ec == std::errc() && parsed.ptr == one.data() + one.size();
    if (!is_whole || size < 1 || size > kMostRanks)
      throw Failure(OCTAVO_INVALID, kPlanDomain, "--mesh ", text, ": expected sizes from 1 to ",
                    kMostRanks, ", as in 64 or 8x8, found \"", one, "\"");
    sizes.push_back(size);
    if (sizes.size() <= 2) world *= size;
  }
  if (sizes.size() > 2)
    throw Failure(OCTAVO_INVALID, kPlanDomain, "--mesh ", text,
                  ": expected one dimension or two, replicas and shards, found ", sizes.size(),
                  "; tensor and pipeline parallelism are not planned: plan the mesh of one stage");
  if (world > kMostRanks)
    throw Failure(OCTAVO_INVALID, kPlanDomain, "--mesh ", text, ": expected at most ", kMostRanks,
                  " ranks, found ", world);
  Mesh mesh;
  const bool is_ddp = parallel == "ddp" || (parallel.empty() && sizes.size() == 1);
  mesh.parallel = is_ddp ? "ddp" : sizes.size() == 2 ? "hsdp" : "fsdp";
  mesh.replicas = static_cast<uint32_t>(is_ddp ? world : sizes.size() == 2 ? sizes[0] : 1);
  mesh.shards = static_cast<uint32_t>(is_ddp ? 1 : sizes.back());
  return mesh;
}

}  // namespace octavo::cli::plan
