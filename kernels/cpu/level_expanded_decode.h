/* kernels/cpu/level_expanded_decode.h: codes of EXPANDED_128 to values by a table of powers;
 * included by level.cpp only.
 *
 * An estimate with a bound, as in level_expanded.h:
 * (code * scale_inv)^(1/k) * c = code^(1/k) * (scale_inv^(1/k) * c), a table times a
 * factor of the group, in fp64. log2 and exp2 have relative errors below 2^-50. Exponents of finite
 * results are at most 1,024, so each is off by at most 2^-40, and its power by 2^-40 ln 2: the
 * definition's value by less than 2^-40, the product of two powers by less than 2^-39. kDecodeSlack
 * is 2^-37.
 */
#pragma once

#include "kernels/cpu/expanded_powers.h"
#include "kernels/cpu/level_tile.h"
#include "kernels/format/block_state.h"

namespace octavo {
namespace {

constexpr double kDecodeSlack = 0x1p-37;

constexpr int kDoubles = kLanes / 2;
typedef double Doubles __attribute__((vector_size(kDoubles * sizeof(double))));
typedef float Floats __attribute__((vector_size(kDoubles * sizeof(float))));
typedef int32_t IntLanes __attribute__((vector_size(kDoubles * sizeof(int32_t))));
typedef float FloatsInMemory
    __attribute__((vector_size(kDoubles * sizeof(float)), aligned(sizeof(float)), may_alias));

/* The powers of kDoubles codes. */
inline Doubles powers_of(const double *powers, const uint8_t *codes) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  return Doubles{powers[codes[0]], powers[codes[1]], powers[codes[2]], powers[codes[3]]};
#else
  Doubles found;
  for (int i = 0; i < kDoubles; ++i) found[i] = powers[codes[i]];
  return found;
#endif
}

/* decode_expanded by a table of powers and the group's factor. */
inline void decode_estimated(const ExpandedGroup &g, const double *powers, double factor,
                             const uint8_t *codes, int64_t count, float *values) {
  const double low = factor * (1.0 - kDecodeSlack), high = factor * (1.0 + kDecodeSlack);
  IntLanes differ = {};
  int64_t i = 0;
  for (; i + kDoubles <= count; i += kDoubles) {
    const Doubles power = powers_of(powers, codes + i);
    const Floats smaller = __builtin_convertvector(power * low, Floats);
    const Floats larger = __builtin_convertvector(power * high, Floats);
    differ |= reinterpret_cast<IntLanes>(smaller) ^ reinterpret_cast<IntLanes>(larger);
    *reinterpret_cast<FloatsInMemory *>(values + i) = larger;
  }
  int32_t any = 0;
  for (int k = 0; k < kDoubles; ++k) any |= differ[k];
  for (; i < count; ++i) values[i] = decode_expanded(g, codes[i]);
  if (__builtin_expect(any == 0, 1)) return;
  for (i = 0; i < count; ++i) {
    const float smaller = static_cast<float>(powers[codes[i]] * low);
    if (float_bits(smaller) != float_bits(values[i])) values[i] = decode_expanded(g, codes[i]);
  }
}

}  // namespace
}  // namespace octavo
