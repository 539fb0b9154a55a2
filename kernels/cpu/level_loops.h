/* kernels/cpu/level_loops.h: the loops of delayed scaling's histories, of telemetry and of
 * prologues; included by level.cpp only. */
#pragma once

#include "kernels/cpu/level_tile.h"
#include "kernels/cpu/prologue_loops.h"
#include "kernels/cpu/stats_loops.h"
#include "kernels/format/activation.h"
#include "kernels/format/bits.h"
#include "octavo/kernels.h"

namespace octavo {
namespace {

/* The roll of delayed scaling's histories.
 *
 * Several rows are taken at once, so that what is kept of a column is loaded and stored once
 * for all of them and the history itself is what moves through the cache. */

typedef int32_t Integers __attribute__((vector_size(kLanes * sizeof(int32_t))));
typedef int32_t IntegersInMemory
    __attribute__((vector_size(kLanes * sizeof(int32_t)), aligned(sizeof(int32_t)), may_alias));

/* kRows rows of kLanes columns; `next` is the row after them. */
template <int kRows>
inline void roll_lanes(float *rows, int64_t stride, const float *next, const int32_t *rolls,
                       float *largest, int32_t *has_nan) {
  Vector values[kRows + 1];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
    values[row] = *reinterpret_cast<const VectorInMemory *>(rows + row * stride);
  values[kRows] = *reinterpret_cast<const VectorInMemory *>(next);
  Vector high = *reinterpret_cast<const VectorInMemory *>(largest);
  Integers nan = *reinterpret_cast<const IntegersInMemory *>(has_nan);
  const Integers moves = *reinterpret_cast<const IntegersInMemory *>(rolls) != 0;
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
    high = values[row] > high ? values[row] : high;
    nan |= static_cast<Integers>(values[row] != values[row]);
    *reinterpret_cast<VectorInMemory *>(rows + row * stride) =
        moves ? values[row + 1] : values[row];
  }
  *reinterpret_cast<VectorInMemory *>(largest) = high;
  *reinterpret_cast<IntegersInMemory *>(has_nan) = nan;
}

/* The same for one column. */
inline void roll_column(float *rows, int64_t count, int64_t stride, float newest, bool moves,
                        float *largest, int32_t *has_nan) {
  for (int64_t row = 0; row < count; ++row) {
    const float value = rows[row * stride];
    *largest = value > *largest ? value : *largest;
    *has_nan |= value != value ? 1 : 0;
    if (moves) rows[row * stride] = row + 1 < count ? rows[(row + 1) * stride] : newest;
  }
}

void roll_history(float *rows, int64_t count, int64_t stride, const float *newest,
                  const int32_t *rolls, int64_t n, float *largest, int32_t *has_nan) {
  constexpr int kRows = 8;
  const int64_t whole = n / kLanes * kLanes;
  int64_t row = 0;
  for (; row + kRows <= count; row += kRows) {
    float *at = rows + row * stride;
    const float *next = row + kRows < count ? at + kRows * stride : newest;
    for (int64_t i = 0; i < whole; i += kLanes)
      roll_lanes<kRows>(at + i, stride, next + i, rolls + i, largest + i, has_nan + i);
  }
  for (; row < count; ++row) {
    float *at = rows + row * stride;
    const float *next = row + 1 < count ? at + stride : newest;
    for (int64_t i = 0; i < whole; i += kLanes)
      roll_lanes<1>(at + i, stride, next + i, rolls + i, largest + i, has_nan + i);
  }
  for (int64_t i = whole; i < n; ++i)
    roll_column(rows + i, count, stride, newest[i], rolls[i] != 0, largest + i, has_nan + i);
}

/* How well codes represent values.
 *
 * Everything but the two sums is done in vectors: counts are integers, in any order the same.
 * The squares go through memory, so that they are added in the order of the elements on every
 * level; an element that does not count adds +0, which leaves a sum that is at least +0 as it
 * is. */

constexpr int64_t kStatsChunk = 128; /* its squares stay in the first cache */

void count_row(const float *values, const float *codes, int64_t n, float scale_inv, float limit,
               CastStats *stats) {
  double signals[kStatsChunk];
  double noises[kStatsChunk];
  double signal = stats->signal;
  double noise = stats->noise;
  for (int64_t start = 0; start < n; start += kStatsChunk) {
    const int64_t count = n - start < kStatsChunk ? n - start : kStatsChunk;
    const float *value = values + start;
    const float *code = codes + start;
    int32_t saturated = 0;
    int32_t underflow = 0;
    for (int64_t i = 0; i < count; ++i) {
      const bool finite = is_finite(value[i]) & is_finite(code[i] * scale_inv);
      const bool above = absolute(value[i]) > limit;
      const bool vanished = (value[i] != 0.0f) & (code[i] == 0.0f);
      saturated += (!finite | above) ? 1 : 0;
      underflow += (finite & vanished) ? 1 : 0;
    }
    for (int64_t i = 0; i < count; ++i) {
      const float decoded = code[i] * scale_inv;
      const bool finite = is_finite(value[i]) & is_finite(decoded);
      const double wanted = static_cast<double>(finite ? value[i] : 0.0f);
      const double error = wanted - static_cast<double>(finite ? decoded : 0.0f);
      signals[i] = wanted * wanted;
      noises[i] = error * error;
    }
    for (int64_t i = 0; i < count; ++i) {
      signal += signals[i];
      noise += noises[i];
    }
    stats->saturated += saturated;
    stats->underflow += underflow;
  }
  stats->signal = signal;
  stats->noise = noise;
}

constexpr StatsLoops kStatsLoops = {&count_row};

/* Norms and activations along a row.
 *
 * See prologue_loops.h for what each computes, and kernels/format/activation.h for the numbers. */

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
