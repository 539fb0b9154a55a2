// octavo.shard/1 on torch's tensors: ranks that each have some rows of a weight gather codes.
#pragma once

#include <cstdint>
#include <vector>

#include "entry.h"

namespace octavo::core {

// Plans shards of `rows` rows of a parameter, which the calls below then follow. Setup. Throws
// nothing; the diagnostics of this thread have the reason of a failure: OCTAVO_UNSUPPORTED for a
// backend without the interface, and for what it refuses.
octavo_status plan_shard(const Entry &e, uint32_t parameter, int64_t rows,
                         uint64_t *packet_bytes) noexcept;

// The maxima of this rank's rows of each parameter. shards: [rows, K] in the parameter's dtype;
// amax: f32 [count], 0 at first. Throws.
void shard_measure(const Entry &e, const std::vector<int64_t> &parameters, const Views &shards,
                   View amax);

// This rank's rows as a packet of codes: bytes of the plan. amax: f32 [1], of all ranks. Throws.
void shard_cast(const Entry &e, int64_t parameter, View shard, View amax, View packet);

// The packets of all ranks in place of the weight, until the next boundary: a forward or a backward
// with Coupling::kPacked, or kWeightPacked, then has their codes. They are used, not copied. No
// bytes: those that came before are no longer right. Throws.
void shard_gathered(const Entry &e, int64_t parameter, View packets, View amax);

// Such packets into the slots of the parameter, as quantize_weight leaves them. Throws.
void shard_place(const Entry &e, uint32_t parameter, View packets, View amax, bool records);

}  // namespace octavo::core
