// What every op that runs a linear's forward shares.
#pragma once

#include "arguments.h"

namespace octavo::ops {

// flags of forward: OCTAVO_FORWARD_... in bits 0 to 7.
constexpr int64_t kNoBackward = 256;  // no backward follows, so `saved` is not written
constexpr int64_t kQuiet = 512;       // casts record nothing

// A forward of one linear: its list with the codes of the weight as it is now.
struct ForwardCall {
  const List &list;
  const LinearShape &shape;
  const octavo_linear_plan &plan;
  Pointers pointers;
  WeightMatrix matrix_of_weight;
  octavo_forward_call call = {};

  // version: Coupling::settle's. Throws for an id out of range.
  ForwardCall(const Entry &e, int64_t linear, int64_t flags, View weight, int64_t version)
      : list(list_of(e, OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, linear)),
        shape(e.shapes[static_cast<size_t>(linear)]),
        plan(e.plans[static_cast<size_t>(linear)]),
        pointers(list, (flags & kQuiet) == 0),
        matrix_of_weight(e, shape.parameter, list, weight, &pointers) {
    e.coupling.settle(e, shape, weight, version,
                      {(flags & kQuiet) == 0, (flags & OCTAVO_FORWARD_EVALUATION) != 0});
    call.size = sizeof call;
    call.kind = OCTAVO_KIND_FORWARD_CALL;
    call.linear = static_cast<uint32_t>(linear);
    call.flags = static_cast<uint32_t>(flags & 0xFF);
    call.slots = pointers.data();
  }

  void take(const octavo_tensor *x, octavo_tensor *y, const octavo_tensor *bias, View saved,
            void *workspace) {
    call.x = x;
    call.y = y;
    call.bias = bias;
    call.saved = saved.numel() > 0 ? saved.mutable_data() : nullptr;
    call.workspace = workspace;
  }

  void ran(const Entry &e) const {
    e.calls[OCTAVO_VERB_FORWARD].fetch_add(1, std::memory_order_relaxed);
    e.forwards[call.linear].fetch_add(1, std::memory_order_relaxed);
  }
};

inline Owned make_saved(const Entry &e, const octavo_linear_plan &plan, int64_t rows,
                        int64_t flags) {
  const bool keeps = (flags & (kNoBackward | OCTAVO_FORWARD_EVALUATION)) == 0;
  return empty_bytes(e, keeps ? octavo_extent_bytes(&plan.saved, static_cast<uint64_t>(rows)) : 0);
}

// A dense row of `cols` operands, or none.
inline octavo_tensor optional_row(const Entry &e, View t, int64_t cols, const char *name,
                                  int64_t linear) {
  if (!t) return {};
  check_operand(e, t, cols, name, linear);
  check_dense(e, t, name);
  return row(t);
}

}  // namespace octavo::ops
