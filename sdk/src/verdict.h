// Verdict: one answer to "can this run here?", kept with its texts for the report.
#pragma once

#include <string>
#include <vector>

#include "failure.h"
#include "octavo/host.h"

namespace octavo {

struct Verdict {
  uint32_t level = 0;     // OCTAVO_LEVEL_...
  uint32_t decision = 0;  // OCTAVO_DECLINE, ...
  uint32_t reason = 0;    // OCTAVO_REASON_...
  std::string text;
  std::string evidence;
  std::string remedy;
  std::string stage = {};  // of negotiation, one of kStages; empty: as the level says
  Mend mend = {};          // the edit that the remedy means; empty: read it from the remedy
};

// Copies what a plugin or kernels table said; fields that its struct is too old for stay empty.
Verdict copy_verdict(const octavo_verdict &v);

// Borrows the texts of `from`, which must outlive what `to` is used for. `to` may be null.
void lend_verdict(const Verdict &from, octavo_verdict *to);

bool declined(const std::vector<Verdict> &verdicts);

const char *level_name(uint32_t level);
const char *decision_name(uint32_t decision);
const char *reason_name(uint32_t reason);

// The page about a reason, "docs/reasons/trust.md"; empty for OCTAVO_REASON_NONE and unknown ones.
std::string reason_page(uint32_t reason);

// A sink that appends to `out`, which must outlive it.
octavo_verdict_sink collect(std::vector<Verdict> &out);

}  // namespace octavo
