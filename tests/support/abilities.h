// Kernels that decline some formats: a table whose `ability` answers from the lists of a test.
#pragma once

#include <algorithm>
#include <vector>

#include "octavo/kernels.h"

namespace octavo::test {

// Valid while it lives; one at a time in a thread.
class LackingKernels {
 public:
  // `kernels` answer what nothing below declines; without their `ability`, all of it is accepted.
  explicit LackingKernels(const octavo_kernels &kernels) : table(kernels) {
    real() = kernels.ability;
    table.ability = answer;
    dtypes().clear();
    granularities().clear();
    calls().clear();
  }
  LackingKernels(const LackingKernels &) = delete;
  LackingKernels &operator=(const LackingKernels &) = delete;

  // What every question about is declined.
  static std::vector<uint32_t> &dtypes() {
    static thread_local std::vector<uint32_t> lacking;
    return lacking;
  }
  static std::vector<uint32_t> &granularities() {
    static thread_local std::vector<uint32_t> lacking;
    return lacking;
  }
  static std::vector<uint32_t> &calls() {
    static thread_local std::vector<uint32_t> lacking;
    return lacking;
  }

  octavo_kernels table;

 private:
  using Ability = decltype(octavo_kernels::ability);
  static Ability &real() {
    static thread_local Ability function = nullptr;
    return function;
  }
  static octavo_status answer(void *ctx, octavo_ability *q) {
    const auto has = [](const std::vector<uint32_t> &all, uint32_t one) {
      return std::find(all.begin(), all.end(), one) != all.end();
    };
    q->decision = OCTAVO_ACCEPT;
    if (has(calls(), q->call) || has(dtypes(), q->dtype) || has(dtypes(), q->b_dtype) ||
        has(granularities(), q->granularity) || has(granularities(), q->b_granularity)) {
      q->decision = OCTAVO_DECLINE;
      q->evidence = OCTAVO_STR("left out by a test");
      return OCTAVO_OK;
    }
    return real() == nullptr ? octavo_status{OCTAVO_OK} : real()(ctx, q);
  }
};

}  // namespace octavo::test
