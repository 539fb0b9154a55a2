// What every kernels plugin must keep, as far as it goes: each check on one device.
#ifndef OCTAVO_CONFORMANCE_KERNELS_CHECKS_H
#define OCTAVO_CONFORMANCE_KERNELS_CHECKS_H

#include <span>

#include "trial.h"

namespace octavo::conformance::kernels {

struct Check {
  const char *name;
  const char *meaning;  // one sentence
  const char *clauses;  // of docs/abi.md
  void (*run)(const Bench &bench);
};

std::span<const Check> checks();

void check_quantize(const Bench &bench);
void check_quantize_nonfinite(const Bench &bench);
void check_quantize_delayed(const Bench &bench);
void check_quantize_rows(const Bench &bench);
void check_quantize_blocks(const Bench &bench);
void check_quantize_states(const Bench &bench);

}  // namespace octavo::conformance::kernels

#endif
