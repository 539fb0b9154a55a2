/* kernels/cpu/level_dot_packed.h: codes in panel order, see dot_loops.h; included by level.cpp
 * only.
 *
 * The order is that in which transposed codes enter the decoder, so that reading them needs no
 * transposition and runs through memory from front to back.
 */
#pragma once

#include "kernels/cpu/level_dot_panel.h"

namespace octavo {
namespace {

/* FP8 codes as they are: both vectors of a pair have those of all columns. */
class PlainCodes : public CodePairs {
 public:
  using CodePairs::CodePairs;

  __attribute__((always_inline)) void transpose(const Stage &stage, int byte,
                                                __m512i (&left)[kPairs], __m512i (&right)[kPairs]) {
    transpose_codes(stage, byte, left);
    for (int i = 0; i < kPairs; ++i) right[i] = left[i];
  }
};

void pack_code_panel(const void *in, int64_t stride, int cols, int64_t n, void *panel) {
  auto *out = static_cast<uint8_t *>(panel);
  for_pairs<PlainCodes>(OCTAVO_E4M3FN, in, stride, cols, n, [&](int64_t pair, __m512i codes, auto) {
    if (2 * pair + 1 < n) {
      _mm512_storeu_si512(out + pair * 64, codes);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i *>(out + pair * 64),
                          _mm512_cvtepi16_epi8(_mm512_srli_epi16(codes, 8)));
    }
  });
}

/* for_pairs of codes in panel order. */
template <typename Body>
__attribute__((always_inline)) inline DotRange for_packed_pairs(uint32_t dtype, const void *panel,
                                                                int64_t n, Body &&body) {
  const Decoder decoder(dtype);
  const auto *in = static_cast<const uint8_t *>(panel);
  __m512i left;
  __m512i right;
  for (int64_t pair = 0; pair < n / 2; ++pair) {
    decoder.decode(_mm512_loadu_si512(in + pair * 64), &left, &right);
    body(pair, left, right);
  }
  if (n % 2 != 0) {
    const __m256i last = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(in + n / 2 * 64));
    decoder.decode(_mm512_slli_epi16(_mm512_cvtepu8_epi16(last), 8), &left, &right);
    body(n / 2, left, right);
  }
  return range_of_codes(dtype);
}

DotRange decode_code_panel(uint32_t dtype, const void *codes, int64_t n, uint32_t *panel) {
  return for_packed_pairs(dtype, codes, n, [=](int64_t pair, __m512i left, __m512i right) {
    _mm512_storeu_si512(panel + pair * kDotCols, left);
    _mm512_storeu_si512(panel + pair * kDotCols + 16, right);
  });
}

}  // namespace
}  // namespace octavo
