// Ways to make the calls of a case other than at once on the default stream: by the table of
// octavo/draft/streams.h.
//
// Operands hold something else until work on the stream brings their contents, which waits at a
// gate: a call that runs too early, or on another stream, computes something else.
#pragma once

#include "octavo/draft/streams.h"
#include "trial.h"

namespace octavo::conformance::kernels {

// Whether a result is right; `how` says in which way it was made.
using Accept = std::function<void(const Results &found, bool varied, const std::string &how)>;

class Ways {
 public:
  virtual ~Ways() = default;
  virtual void run(const Case &one, Arena &arena, const Accept &accept) = 0;
};

// Throws Skip where the plugin does not offer the table, or not all that these ways need.
const octavo_streams &streams_of(const Side &side);

// On streams that are blocked at first: one, and another for its operands and results.
std::unique_ptr<Ways> on_streams(const Side &side);
// Captured once, and replayed with other contents.
std::unique_ptr<Ways> in_graphs(const Side &side);
// While another device, or none, is current.
std::unique_ptr<Ways> on_other_devices(const Side &side);

}  // namespace octavo::conformance::kernels
