// One bucket of a gradient reduction: its sizes, its scratch, and its stages.
#pragma once

#include "linear.h"

namespace octavo::msamp {

// Shards start at a multiple of this, in codes.
constexpr uint64_t kShardMultiple = 16;

struct Bucket {
  uint64_t count = 0;         // parameters
  uint64_t elements = 0;      // of all of them
  uint64_t shard = 0;         // elements of one rank's part
  uint64_t kernel_bytes = 0;  // workspace of the casts
  bool one_shot = false;
};

template <typename IdAt>
Bucket bucket_of(const octavo_session &s, uint64_t count, uint32_t world, IdAt id_at) {
  Bucket b;
  b.count = count;
  for (uint64_t i = 0; i < count; ++i) {
    const Parameter &p = s.parameters[id_at(i)];
    b.elements += static_cast<uint64_t>(p.rows * p.cols);
    const uint64_t bytes = plugin::quantize_bytes(s.device, p.rows, p.cols);
    b.kernel_bytes = bytes > b.kernel_bytes ? bytes : b.kernel_bytes;
  }
  const uint64_t part = (b.elements + world - 1) / world;
  b.shard = (part + kShardMultiple - 1) / kShardMultiple * kShardMultiple;
  // Everybody gets (W - 1) n bytes in one shot and 2 (W - 1) n / W in two: the limit is on what
  // two ranks would send.
  b.one_shot = b.elements <= s.recipe.one_shot_bytes * 2 / world;
  return b;
}

// Alone, or without a parameter, there is nothing to add to anything.
inline uint32_t stage_count(const Bucket &b, uint32_t world) {
  if (world == 1 || b.count == 0) return 0;
  return b.one_shot ? 3 : 4;
}

// What lives over the stages of a bucket: scales and multipliers, one f32 a parameter.
struct BucketState {
  float *scale;
  float *scale_inv;
  void *kernel;
  uint64_t bytes;
};
BucketState state_of(const Bucket &b, void *state);

// Runs stage c.stage of the bucket; the call was checked.
octavo_status run_bucket_stage(const octavo_session &s, const octavo_gradient_call &c,
                               const Bucket &bucket);

}  // namespace octavo::msamp
