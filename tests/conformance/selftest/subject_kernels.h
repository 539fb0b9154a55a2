// A plain kernels table for the suite's own tests: correct, slow, per-tensor scales only.
//
// It shares no code with kernels/, so that the suite can be tested before and without them.
#ifndef OCTAVO_CONFORMANCE_SELFTEST_SUBJECT_KERNELS_H
#define OCTAVO_CONFORMANCE_SELFTEST_SUBJECT_KERNELS_H

#include "octavo/kernels.h"
#include "octavo/optimizer.h"

namespace octavo::selftest {

const octavo_kernels *subject_kernels();
octavo_kernels_caps subject_caps();

}  // namespace octavo::selftest

#endif
