/* kernels/cpu/level_rows.h: loops over a row of elements; included by level.cpp only.
 *
 * Each is a plain loop over branch-free functions of kernels/format, which the compiler turns into
 * vector code of the level. Keep them free of calls and early exits, or that stops silently.
 */
#pragma once

#include "kernels/cpu/level.h"
#include "kernels/format/float16.h"
#include "kernels/format/float8.h"
#include "octavo/tensor.h"

namespace octavo {
namespace {

template <typename In, typename Out, typename Function>
inline void map_row(const void *in, int64_t n, void *out, Function function) {
  const In *__restrict from = static_cast<const In *>(in);
  Out *__restrict to = static_cast<Out *>(out);
  for (int64_t i = 0; i < n; ++i) to[i] = function(from[i]);
}

void load_row(uint32_t dtype, const void *in, int64_t n, float *out) {
  switch (dtype) {
    case OCTAVO_F32: return map_row<float, float>(in, n, out, [](float v) { return v; });
    case OCTAVO_BF16:
      return map_row<uint16_t, float>(in, n, out, [](uint16_t v) { return decode_bf16(v); });
    case OCTAVO_F16:
      return map_row<uint16_t, float>(in, n, out, [](uint16_t v) { return decode_f16(v); });
    case OCTAVO_E4M3FN:
      return map_row<uint8_t, float>(in, n, out, [](uint8_t v) { return decode_e4m3(v); });
    default: return map_row<uint8_t, float>(in, n, out, [](uint8_t v) { return decode_e5m2(v); });
  }
}

void store_row(uint32_t dtype, const float *in, int64_t n, void *out) {
  switch (dtype) {
    case OCTAVO_F32: return map_row<float, float>(in, n, out, [](float v) { return v; });
    case OCTAVO_BF16:
      return map_row<float, uint16_t>(in, n, out, [](float v) { return encode_bf16(v); });
    default: return map_row<float, uint16_t>(in, n, out, [](float v) { return encode_f16(v); });
  }
}

void cast_row(uint32_t dtype, const float *in, int64_t n, float scale, void *out) {
  switch (dtype) {
    case OCTAVO_E4M3FN:
      return map_row<float, uint8_t>(in, n, out,
                                     [scale](float v) { return encode_e4m3(v * scale); });
    case OCTAVO_E5M2:
      return map_row<float, uint8_t>(in, n, out,
                                     [scale](float v) { return encode_e5m2(v * scale); });
    default:
      return map_row<float, uint16_t>(
          in, n, out, [scale](float v) { return encode_f16_saturating(v * scale); });
  }
}

void multiply_row(float *values, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) values[i] *= factor;
}

void multiply_each_row(const float *in, const float *factors, int64_t n, float *out) {
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] * factors[i];
}

ValueStats measure_row(const float *values, int64_t n) {
  int32_t largest = 0;
  int32_t highest = 0; /* NaN included */
  for (int64_t i = 0; i < n; ++i) {
    const int32_t magnitude = float_bits(values[i]) & kMagnitudeMask;
    const int32_t number = magnitude > kInfinityBits ? 0 : magnitude;
    largest = number > largest ? number : largest;
    highest = magnitude > highest ? magnitude : highest;
  }
  return {largest, highest >= kInfinityBits};
}

void measure_each_row(const float *values, int64_t n, int32_t *amax_bits) {
  for (int64_t i = 0; i < n; ++i) {
    const int32_t magnitude = float_bits(values[i]) & kMagnitudeMask;
    const int32_t number = magnitude > kInfinityBits ? 0 : magnitude;
    amax_bits[i] = number > amax_bits[i] ? number : amax_bits[i];
  }
}

}  // namespace
}  // namespace octavo
