/* kernels/cpu/level_prologue.h: norms and activations along a row; included by level.cpp only.
 *
 * See prologue_loops.h for what each computes, and kernels/format/activation.h for the numbers.
 */
#pragma once

#include "kernels/cpu/level_tile.h"
#include "kernels/cpu/prologue_loops.h"
#include "kernels/format/activation.h"
#include "octavo/kernels.h"

namespace octavo {
namespace {

/* kSumParts sums in vectors of the level; term(vector) and term(float) give what is added. */
template <typename Term>
inline void add_up_terms(const float *values, int64_t n, float *parts, Term term) {
  static_assert(kSumParts % kLanes == 0);
  constexpr int kVectors = kSumParts / kLanes;
  Vector sums[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    sums[v] = *reinterpret_cast<const VectorInMemory *>(parts + v * kLanes);
  }
  int64_t i = 0;
  for (; i + kSumParts <= n; i += kSumParts) {
    for (int v = 0; v < kVectors; ++v) {
      const Vector in = *reinterpret_cast<const VectorInMemory *>(values + i + v * kLanes);
      sums[v] += term(in);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    *reinterpret_cast<VectorInMemory *>(parts + v * kLanes) = sums[v];
  }
  for (int64_t part = 0; i + part < n; ++part) parts[part] += term(values[i + part]);
}

void add_up_row(const float *values, int64_t n, float *parts) {
  add_up_terms(values, n, parts, [](const auto &value) { return value; });
}

void add_up_squares_row(const float *values, int64_t n, float shift, float *parts) {
  add_up_terms(values, n, parts, [shift](const auto &value) {
    const auto distance = value - shift;
    return distance * distance;
  });
}

void normalize_row(const float *in, int64_t n, float shift, float factor, const float *gamma,
                   const float *beta, float *out) {
  if (beta == nullptr) {
    for (int64_t i = 0; i < n; ++i) out[i] = with_one_nan((in[i] - shift) * factor * gamma[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    out[i] = with_one_nan((in[i] - shift) * factor * gamma[i] + beta[i]);
  }
}

void activate_row(uint32_t op, const float *in, const float *up, int64_t n, float *out) {
  switch (op) {
    case OCTAVO_PROLOGUE_GELU:
      for (int64_t i = 0; i < n; ++i) out[i] = gelu(in[i]);
      return;
    case OCTAVO_PROLOGUE_GELU_TANH:
      for (int64_t i = 0; i < n; ++i) out[i] = gelu_tanh(in[i]);
      return;
    default:
      for (int64_t i = 0; i < n; ++i) out[i] = swiglu(in[i], up[i]);
      return;
  }
}

constexpr PrologueLoops kPrologueLoops = {&add_up_row, &add_up_squares_row, &normalize_row,
                                          &activate_row};

}  // namespace
}  // namespace octavo
