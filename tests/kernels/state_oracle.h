/* tests/kernels/state_oracle.h: FLAT_256 and EXPANDED_128 by their formulas, in long double.
 *
 * Nothing here uses kernels/format/block_state.h or power.h; only E4M3 itself is shared, whose own
 * tests rest on exact arithmetic.
 */
#ifndef OCTAVO_TESTS_KERNELS_STATE_ORACLE_H
#define OCTAVO_TESTS_KERNELS_STATE_ORACLE_H

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/format/float8.h"
#include "octavo/draft/msamp.h"

namespace octavo::test {

/* How states are grouped. */
inline constexpr uint32_t kStateGroups[] = {OCTAVO_FLAT_256, OCTAVO_EXPANDED_128};

inline int64_t block_size(uint32_t granularity) {
  return granularity == OCTAVO_FLAT_256 ? 256 : 128;
}

inline int64_t scale_count(uint32_t granularity, int64_t elements) {
  const int64_t size = block_size(granularity);
  return (elements + size - 1) / size * (granularity == OCTAVO_FLAT_256 ? 1 : 3);
}

/* The value of element i, from its code and the scales beside it. */
inline double block_value(uint32_t granularity, const std::vector<uint8_t> &codes,
                          const std::vector<float> &scales, size_t i) {
  const long double code = decode_e4m3(codes.at(i));
  if (granularity == OCTAVO_FLAT_256) return static_cast<double>(code * scales.at(i / 256));
  if (code == 0) return 0.0;
  const float *s = &scales.at(i / 128 * 3);
  const long double power = std::pow(std::abs(code) * s[0], 1.0L / s[1]) * s[2];
  return static_cast<double>(code < 0 ? -power : power);
}

/* Codes and scales of finite values, block by block. */
inline void expect_blocks(uint32_t granularity, const std::vector<float> &values,
                          const std::vector<uint8_t> &codes, const std::vector<float> &scales) {
  const size_t size = static_cast<size_t>(block_size(granularity));
  ASSERT_EQ(codes.size(), values.size());
  for (size_t first = 0; first < values.size(); first += size) {
    const size_t end = std::min(values.size(), first + size);
    float largest = 0;
    float smallest = INFINITY;
    for (size_t i = first; i < end; ++i) {
      largest = std::fmax(largest, std::fabs(values[i]));
      if (values[i] != 0) smallest = std::fmin(smallest, std::fabs(values[i]));
    }
    long double k = 1;
    long double center = 1;
    long double scale_inv = 1;
    if (granularity == OCTAVO_FLAT_256) {
      scale_inv = std::fmax(largest, 1e-12f) / 448.0f;
      ASSERT_EQ(scales.at(first / size), static_cast<float>(scale_inv)) << first;
    } else if (largest > 0) {
      const long double ratio = std::log2(static_cast<long double>(largest) / smallest);
      k = ratio == 0 ? 16 : std::floor(std::log2(448.0L * 448 / 2) / ratio * 16) / 16;
      k = std::clamp(k, 0.0625L, 16.0L);
      center = std::sqrt(static_cast<long double>(largest) * smallest);
      scale_inv = std::pow(largest / center, k) / 448;
    }
    if (granularity == OCTAVO_EXPANDED_128) {
      const float *s = &scales.at(first / size * 3);
      ASSERT_NEAR(s[0], scale_inv, 4e-6L * scale_inv) << first; /* c is rounded, then to the 16th */
      ASSERT_EQ(s[1], static_cast<float>(k)) << first;
      ASSERT_EQ(s[2], static_cast<float>(center)) << first;
      scale_inv = s[0];
      center = s[2];
    }
    for (size_t i = first; i < end; ++i) {
      const int found = codes[i] & 0x7F;
      if (granularity == OCTAVO_FLAT_256) {
        /* The quotient is one fp32 rounding, so its code has no slack. */
        const float quotient = std::fabs(values[i]) / static_cast<float>(scale_inv);
        ASSERT_EQ(found, encode_e4m3(quotient)) << i;
      } else {
        const long double exact = std::pow(std::abs(values[i]) / center, k) / scale_inv;
        ASSERT_GE(found, encode_e4m3(static_cast<float>(exact * (1 - 1e-6L)))) << i;
        ASSERT_LE(found, encode_e4m3(static_cast<float>(exact * (1 + 1e-6L)))) << i;
      }
      ASSERT_EQ((codes[i] & 0x80) != 0, std::signbit(values[i])) << i;
    }
  }
}

}  // namespace octavo::test

#endif
