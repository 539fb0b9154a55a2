// The ranks of a plan: how many there are, and what they are to each other.
#pragma once

#include <cstdint>
#include <string>

namespace octavo::cli::plan {

inline constexpr const char *kPlanDomain = "octavo.plan";

struct Mesh {
  std::string parallel;  // "ddp"; "fsdp": shards alone; "hsdp": replicas of shards
  uint32_t replicas = 1, shards = 1;
  uint32_t world() const { return replicas * shards; }
  bool is_sharded() const { return parallel != "ddp"; }
};

// "64" or "8x8", in the order of torch's device mesh: replicas, then shards. parallel: "ddp",
// "fsdp", or empty for the usual one: ddp of one dimension, fsdp of two. Throws
// Failure(OCTAVO_INVALID).
Mesh parse_mesh(const std::string &text, const std::string &parallel);

}  // namespace octavo::cli::plan
