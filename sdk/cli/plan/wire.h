// What the ranks of a mesh exchange in one step.
#pragma once

#include <string>
#include <vector>

#include "sdk/cli/estimate/ledger.h"
#include "sdk/cli/plan/mesh.h"

namespace octavo::cli::plan {

// Operations of one kind. given: bytes that a rank hands to them, together; of a broadcast, that
// all owners do. sent: bytes that leave a rank by the shortest way, a ring, on average over the
// ranks.
struct Operation {
  std::string what;        // "gradients", "weights", "maxima and counts"
  std::string collective;  // "all_reduce_sum", ...; "gather": to one rank
  uint32_t ranks = 1;      // that take part
  uint64_t calls = 0, given = 0, sent = 0;
};

struct Gather {
  bool codes = false;        // FP8 gather: codes in the place of values where the backend can
  uint64_t value_bytes = 4;  // of an element otherwise
};

// Who gets the means of gradients in slots: every rank, as in train_gpt; or the owner of a
// parameter alone, as with octavo.prepare(shard_optimizer_state=True).
enum class GradientPlacement { kAll, kOwner };

struct Wire {
  std::vector<Operation> operations;
  size_t gathered_codes = 0;  // weights whose codes are gathered
  uint64_t sent() const;
};

// For what refusal_of (ranks.h) does not refuse.
Wire wire_of(const estimate::Model &model, const Mesh &mesh, const Gather &gather,
             GradientPlacement means);

}  // namespace octavo::cli::plan
