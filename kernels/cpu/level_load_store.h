/* kernels/cpu/level_load_store.h: Level::load and Level::store; included by level.cpp only.
 *
 * NEON and AVX2 convert f16 with the bits of kernels/format, NaN included. NEON looks codes of 8
 * bits up, AVX2 converts them by way of f16. The rest is in the plain loops of level_rows.h.
 */
#pragma once

#include "kernels/cpu/level_codes.h"

namespace octavo {
namespace {

/* Calls body(first) for steps of `step` elements; gives the first element that is left. */
template <typename Body>
inline int64_t for_steps(int64_t n, int64_t step, Body body) {
  int64_t i = 0;
  for (; i + step <= n; i += step) body(i);
  return i;
}

#ifdef OCTAVO_NEON

/* Two vectors of bf16 to four of fp32. */
inline void store_widened(const Bits *halves, float *out) {
  for (int i = 0; i < 2; ++i) {
    store_bits(out + 8 * i, low_halves(halves[i]));
    store_bits(out + 8 * i + 4, high_halves(halves[i]));
  }
}

void load_all(uint32_t dtype, const void *in, int64_t n, float *out) {
  const auto *codes = static_cast<const uint8_t *>(in);
  const auto *halves = static_cast<const uint16_t *>(in);
  int64_t done = 0;
  if (dtype == OCTAVO_E4M3FN || dtype == OCTAVO_E5M2) {
    const CodeTable table(dtype == OCTAVO_E4M3FN ? kBf16Of<3, 7>.at : kBf16Of<2, 15>.at);
    done = for_steps(n, kCastStep, [&](int64_t i) {
      Bits both[2];
      table.look_up(load_bits(codes + i), both);
      store_widened(both, out + i);
    });
    return load_row(dtype, codes + done, n - done, out + done);
  }
  if (dtype == OCTAVO_F16) {
    done = for_steps(n, kCastStep, [&](int64_t i) {
      for (int v = 0; v < 4; ++v) store_bits(out + i + 4 * v, widen_f16(halves + i + 4 * v));
    });
    return load_row(dtype, halves + done, n - done, out + done);
  }
  load_row(dtype, in, n, out);
}

void store_all(uint32_t dtype, const float *in, int64_t n, void *out) {
  if (dtype != OCTAVO_F16) return store_row(dtype, in, n, out);
  auto *halves = static_cast<uint16_t *>(out);
  const int64_t done = for_steps(n, kCastStep, [&](int64_t i) {
    for (int v = 0; v < 4; ++v) {
      const float16x4_t narrow = vcvt_f16_f32(vld1q_f32(in + i + 4 * v));
      vst1_u16(halves + i + 4 * v, vreinterpret_u16_f16(narrow));
    }
  });
  store_row(dtype, in + done, n - done, halves + done);
}

#else

#ifdef __AVX2__

template <int kMantissaBits>
int64_t load_codes(const uint8_t *codes, int64_t n, float *out) {
  return for_steps(n, kHalfCodes, [&](int64_t i) {
    Bits values[kHalfCodes / kCastLanes];
    values_of_codes<kMantissaBits>(codes + i, values);
    for (int v = 0; v < kHalfCodes / kCastLanes; ++v)
      store_bits(out + i + v * kCastLanes, values[v]);
  });
}

void load_all(uint32_t dtype, const void *in, int64_t n, float *out) {
  const auto *codes = static_cast<const uint8_t *>(in);
  const auto *halves = static_cast<const uint16_t *>(in);
  if (dtype == OCTAVO_E4M3FN || dtype == OCTAVO_E5M2) {
    const int64_t done =
        dtype == OCTAVO_E4M3FN ? load_codes<3>(codes, n, out) : load_codes<2>(codes, n, out);
    return load_row(dtype, codes + done, n - done, out + done);
  }
  if (dtype == OCTAVO_F16) {
    const int64_t done =
        for_steps(n, kCastLanes, [&](int64_t i) { store_bits(out + i, widen_f16(halves + i)); });
    return load_row(dtype, halves + done, n - done, out + done);
  }
  load_row(dtype, in, n, out);
}

void store_all(uint32_t dtype, const float *in, int64_t n, void *out) {
  if (dtype != OCTAVO_F16) return store_row(dtype, in, n, out);
  auto *halves = static_cast<uint16_t *>(out);
  const int64_t done =
      for_steps(n, kCastLanes, [&](int64_t i) { store_f16(halves + i, load_bits(in + i)); });
  store_row(dtype, in + done, n - done, halves + done);
}

#else
constexpr auto *load_all = &load_row;
constexpr auto *store_all = &store_row;
#endif

#endif

}  // namespace
}  // namespace octavo
