// Calls of octavo/draft by the type of their struct: draft_call(kernels, ctx, &call).
#pragma once

#include "octavo/hpp/kernels_tables.hpp"

namespace octavo::test {

template <typename Call>
struct DraftVerb;
#define DRAFT_VERB(table, name)                                     \
  template <>                                                       \
  struct DraftVerb<octavo_##name> {                                 \
    using Table = octavo_##table##_kernels;                         \
    static constexpr auto member = &octavo_##table##_kernels::name; \
  }
DRAFT_VERB(adam, adam_step);
DRAFT_VERB(adam, gradient_scale);
DRAFT_VERB(msamp, sum_quantized);
DRAFT_VERB(msamp, scale_values);
DRAFT_VERB(msamp, prescale_update);
DRAFT_VERB(rounding, adam_rounded);
DRAFT_VERB(rounding, round_codes);
DRAFT_VERB(rounding, count);
DRAFT_VERB(one_pass, adam_one_pass);
DRAFT_VERB(fp4, quantize_fp4);
#undef DRAFT_VERB

// OCTAVO_UNSUPPORTED where the kernels have no such table.
template <typename Call>
octavo_status draft_call(const octavo_kernels *kernels, void *ctx, const Call *call) {
  const KernelsTables tables(kernels, ctx);
  const auto *table = tables.template get<typename DraftVerb<Call>::Table>();
  return table == nullptr ? OCTAVO_UNSUPPORTED : (table->*DraftVerb<Call>::member)(ctx, call);
}

}  // namespace octavo::test
