// The functions behind the table of checks, one or more per check_*.cpp.
//
// Each throws Failure or Skip, or returns when the backend keeps the rule.
#pragma once

#include <string>

#include "conformance.h"

namespace octavo::conformance {

void check_table(const Context &context);
void check_process(const Context &context);
void check_symbols(const Context &context);
void check_texts(const Context &context);
void check_heap(const Context &context);
void check_refusals(const Context &context);
void check_decline(const Context &context);
void check_own_options(const Context &context);
void check_slots(const Context &context);
void check_checkpoint(const Context &context);
void check_fence(const Context &context);
void check_fence_optimizer(const Context &context);
void check_access(const Context &context);
void check_access_optimizer(const Context &context);
void check_identity(const Context &context);
void check_splits(const Context &context);
void check_replay(const Context &context);
void check_arguments(const Context &context);
void check_failures(const Context &context);
void check_abilities(const Context &context);
void check_order(const Context &context);
void check_sessions(const Context &context);
void check_optimizer(const Context &context);
void check_optimizer_skip(const Context &context);
void check_extents(const Context &context);
void check_empty(const Context &context);
void check_rows(const Context &context);
void check_twice(const Context &context);
void check_late(const Context &context);
void check_nan(const Context &context);
void check_nonfinite(const Context &context);
void check_numerics(const Context &context);
void check_scales(const Context &context);
void check_alignment(const Context &context);
void check_threads(const Context &context);
void check_reduction(const Context &context);
void check_fused(const Context &context);
void check_grouped(const Context &context);
void check_shard(const Context &context);

// What check_session says against kernels of this alignment, or "".
std::string declined_reason(const Context &context);
// Throws Skip when there is nothing for optimizer_step to do.
void need_optimizer(const Context &context);

}  // namespace octavo::conformance
