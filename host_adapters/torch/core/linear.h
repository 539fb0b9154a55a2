// Forward and backward of one linear. A compiler may call them again, earlier, or not at all: what
// a forward records is a maximum, and what a backward adds to is a slot.
#pragma once

#include "entry.h"

namespace octavo::core {

// flags of forward: OCTAVO_FORWARD_... in bits 0 to 7.
constexpr int64_t kNoBackward = 256;  // no backward follows, so `saved` is not written
constexpr int64_t kQuiet = 512;       // casts record nothing
constexpr int64_t kAsked = 1024;      // the host did what its Callbacks do, before the op
// flags of backward: OCTAVO_BACKWARD_... in bits 0 to 7.
constexpr int64_t kFromCompiledGraph =
    256;  // of a compiled graph: notes that it added to a gradient slot
constexpr int64_t kWeightGathered =
    512;  // FSDP gathered the weight: its codes may be those of no weight
constexpr int64_t kWeightPacked = 1024;  // the same of shard_gathered, without a weight
// wanted of backward.
constexpr int64_t kDx = 1, kDw = 2, kDb = 4;

// What a forward takes in addition to x. weight: torch's own, or none when it is in a slot;
// version: Coupling::settle's; bias: [N] or none.
struct ForwardInput {
  int64_t linear, flags, version;
  View weight, bias;
};

struct Forwarded {
  Owned y;      // [..., N] in x's dtype
  Owned saved;  // bytes for backward; none with kNoBackward or OCTAVO_FORWARD_EVALUATION
};

// x: [..., K], float32, bfloat16 or float16 on the run's device. Throws.
Forwarded linear_forward(const Entry &e, const ForwardInput &in, View x);

// A norm or a gate before the linear. gamma, beta: [K] or none.
struct PrologueInput {
  int64_t op;  // OCTAVO_PROLOGUE_...
  double eps;
  View gamma, beta;
};

struct Fused : Forwarded {
  Owned mean, rstd;  // f32 [M] of a norm, else empty
};

// y = linear(prologue(x)) with nothing in between written to memory: octavo.fused/1.
Fused fused_forward(const Entry &e, const ForwardInput &in, const PrologueInput &prologue, View x);

struct BackwardInput {
  int64_t linear, flags, wanted;
  View x;  // where the plan says OCTAVO_LINEAR_NEEDS_X
  View saved, weight;
  uint32_t db_dtype = 0;  // 0: that of the weight's gradient
};

struct Gradients {
  Owned dx;  // [..., K] in dy's dtype
  Owned dw;  // [N, K]; none when the backend adds it to a slot. With kWeightGathered in weight's
             // dtype
  Owned db;  // [N]
};

// What is not wanted is none.
Gradients linear_backward(const Entry &e, const BackwardInput &in, View dy);

}  // namespace octavo::core
