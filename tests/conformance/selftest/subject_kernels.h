// A plain kernels table for the suite's own tests: correct, slow, per-tensor scales only.
//
// It shares no code with kernels/, so that the suite can be tested before and without them.
#ifndef OCTAVO_CONFORMANCE_SELFTEST_SUBJECT_KERNELS_H
#define OCTAVO_CONFORMANCE_SELFTEST_SUBJECT_KERNELS_H

#include "octavo/draft/optimizer.h"
#include "octavo/hpp/kernels_tables.hpp"

namespace octavo::selftest {

const octavo_kernels *subject_kernels();

// A call that these kernels add, of which the suite knows nothing; `call` is an octavo_quantize.
struct SubjectCasts {
  uint32_t size;
  uint32_t kind;
  octavo_status (*cast)(void *ctx, const void *call);
};
#define SUBJECT_CASTS_ID "octavo.selftest.casts/1"
octavo_kernels_caps subject_caps();

// One element of a tensor as fp32, and with one rounding to its dtype.
float subject_load(const octavo_tensor &t, int64_t i, int64_t j);
void subject_store(const octavo_tensor &t, int64_t i, int64_t j, float value);
octavo_status subject_prologue(void *ctx, const octavo_prologue_call *c);

}  // namespace octavo::selftest

#endif
