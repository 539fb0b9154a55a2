// What a verb of the subject does to its process, for tests of `octavo plugin verify`; never in a
// test program.
#ifndef OCTAVO_CONFORMANCE_SELFTEST_SUBJECT_PROCESS_H
#define OCTAVO_CONFORMANCE_SELFTEST_SUBJECT_PROCESS_H

#include "subject.h"

namespace octavo::selftest {

// In the first linear_forward of the process; returns when the fault is none of these.
void misbehave(int64_t fault);

}  // namespace octavo::selftest

#endif
