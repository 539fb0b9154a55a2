// Runs by number: what an op looks up first. A number is made from the layout of the run's slots,
// so a compiled graph that was stored refers to an equal model or to nothing: a stale one is an
// error.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "octavo/octavo.h"

namespace octavo::ops {

// One position of an object's pointer list, for one verb.
struct Position {
  uint8_t access;  // OCTAVO_ACCESS_...
  uint32_t slot;
  uint32_t dtype;
  int64_t elements;  // of the use: a column range of a pool, or the whole slot
};

struct ObjectLists {
  std::vector<Position> verbs[6];  // by OCTAVO_VERB_...
};

// What the host knows about a linear in addition to the backend's plan.
struct LinearShape {
  int64_t n = 0;
  int64_t k = 0;
  uint32_t gradient_dtype = 0;
  uint32_t parameter = OCTAVO_NONE;
};

// One registered run. Tables and lists are constant between two calls of refresh, which must not
// overlap with ops of the same run (THREAD_CONTROL).
struct Entry {
  octavo_run *run = nullptr;
  const octavo_backend *backend = nullptr;
  const octavo_optimizer *optimizer = nullptr;
  const octavo_gradients *gradients = nullptr;
  const octavo_fused *fused = nullptr;
  octavo_session *session = nullptr;
  ObjectLists session_lists;
  std::vector<ObjectLists> parameters;
  std::vector<ObjectLists> linears;
  std::vector<LinearShape> shapes;
  std::vector<octavo_linear_plan> plans;
  std::vector<uint64_t> weight_workspace;      // by parameter: the largest of its linears
  std::vector<octavo_extent> fused_workspace;  // by linear; row_multiple 0: cannot be fused
  // The host's, by parameter: 1 once a compiled graph added to its gradient slot. The host clears
  // it.
  uint8_t *graph_gradients = nullptr;
  mutable std::atomic<uint64_t> calls[6] = {};  // verbs that ran, by OCTAVO_VERB_...
};

// The run of this number; throws through torch when there is none. THREAD_ANY.
std::shared_ptr<const Entry> find(int64_t number);

// The lists of one object; throws when the id is out of range.
const std::vector<Position> &positions(const Entry &e, uint32_t verb, uint32_t owner_kind,
                                       int64_t owner);

}  // namespace octavo::ops
