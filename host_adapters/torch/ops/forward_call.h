// What every op that runs a linear's forward shares.
#pragma once

#include "arguments.h"

namespace octavo::ops {

// flags of forward: OCTAVO_FORWARD_... in bits 0 to 7, bit 8: no backward follows, so `saved` is
// not written.
constexpr int64_t kNoBackward = 256;

inline void count(const Entry &e, uint32_t verb) {
  e.calls[verb].fetch_add(1, std::memory_order_relaxed);
}

inline octavo_forward_call forward_call(int64_t linear, int64_t flags, const octavo_tensor *x,
                                        octavo_tensor *y, const octavo_tensor *bias,
                                        const std::vector<void *> &list, View saved,
                                        void *workspace) {
  octavo_forward_call call = {};
  call.size = sizeof call;
  call.kind = OCTAVO_KIND_FORWARD_CALL;
  call.linear = static_cast<uint32_t>(linear);
  call.flags = static_cast<uint32_t>(flags & 0xFF);
  call.x = x;
  call.y = y;
  call.bias = bias;
  call.slots = list.data();
  call.saved = saved.numel() > 0 ? saved.mutable_data() : nullptr;
  call.workspace = workspace;
  return call;
}

inline Owned make_saved(const octavo_linear_plan &plan, int64_t rows, int64_t flags) {
  const bool keeps = (flags & (kNoBackward | OCTAVO_FORWARD_EVALUATION)) == 0;
  return empty_bytes(keeps ? octavo_extent_bytes(&plan.saved, static_cast<uint64_t>(rows)) : 0);
}

// A dense row of `cols` operands, or none.
inline octavo_tensor optional_row(View t, int64_t cols, const char *name, const char *what,
                                  int64_t id) {
  if (!t) return {};
  check_operand(t, cols, name, what, id);
  check_dense(t, name);
  return row(t);
}

}  // namespace octavo::ops
