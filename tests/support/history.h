// The history flags of the library that a rule for scales comes from.
#pragma once

#include "octavo/draft/msamp.h"

namespace octavo::test {

inline uint32_t history_of(uint32_t rule) {
  switch (rule) {
    case OCTAVO_RULE_RECIPROCAL: return OCTAVO_HISTORY_TE_UNFUSED;
    case OCTAVO_RULE_MSAMP: return OCTAVO_HISTORY_MSAMP;
    // Not OCTAVO_HISTORY_MSAMP04, which restarts the warm-up at 1.
    case OCTAVO_RULE_MSAMP04: return OCTAVO_HISTORY_DROP_NONFINITE | OCTAVO_HISTORY_NAN_KEEPS;
    default: return OCTAVO_HISTORY_TE;
  }
}

}  // namespace octavo::test
