/* kernels/cpu/level_cast_neon.h: the vectors of level_cast_vectors.h on NEON; included by it only.
 *
 * Four patterns of fp32 to a vector. Halves widen in order, since a vector is all of 128 bits.
 */
#pragma once

#include <arm_neon.h>

namespace octavo {
namespace {

using Bits = uint32x4_t; /* 4 fp32 patterns, 8 halves or 16 bytes */
using FourLanes = uint32x4_t;
constexpr int kCastLanes = 4;
constexpr bool kHasStreams = false; /* no intrinsic writes past the caches */

inline uint8x16_t as_bytes(Bits a) {
  return vreinterpretq_u8_u32(a);
}
inline uint16x8_t as_halves(Bits a) {
  return vreinterpretq_u16_u32(a);
}
inline float32x4_t as_floats(Bits a) {
  return vreinterpretq_f32_u32(a);
}
inline Bits bits_of(uint8x16_t a) {
  return vreinterpretq_u32_u8(a);
}
inline Bits bits_of(uint16x8_t a) {
  return vreinterpretq_u32_u16(a);
}
inline Bits bits_of(float32x4_t a) {
  return vreinterpretq_u32_f32(a);
}

inline Bits all_of(int32_t value) {
  return vdupq_n_u32(static_cast<uint32_t>(value));
}
inline Bits all_of(float value) {
  return bits_of(vdupq_n_f32(value));
}
inline Bits load_bits(const void *from) {
  return bits_of(vld1q_u8(static_cast<const uint8_t *>(from)));
}
inline void store_bits(void *to, Bits value) {
  vst1q_u8(static_cast<uint8_t *>(to), as_bytes(value));
}
inline void stream_bits(void *to, Bits value) {
  store_bits(to, value);
}
inline void end_streams() {}
inline Bits and_bits(Bits a, Bits b) {
  return vandq_u32(a, b);
}
inline Bits without_signs(Bits a) {
  return bits_of(vabsq_f32(as_floats(a)));
}
inline Bits shift_left_16(Bits a) {
  return vshlq_n_u32(a, 16);
}
inline Bits larger(Bits a, Bits b) {
  return vmaxq_u32(a, b);
}
inline Bits larger_halves(Bits a, Bits b) {
  return bits_of(vmaxq_u16(as_halves(a), as_halves(b)));
}
inline Bits smaller(Bits a, Bits b) {
  return vminq_u32(a, b);
}
inline Bits product(Bits a, Bits b) {
  return bits_of(vmulq_f32(as_floats(a), as_floats(b)));
}
inline Bits sum(Bits a, Bits b) {
  return bits_of(vaddq_f32(as_floats(a), as_floats(b)));
}
inline Bits plus(Bits a, Bits b) {
  return vaddq_u32(a, b);
}
template <int kShift>
inline Bits plus_shifted(Bits a) {
  return vsraq_n_u32(a, a, kShift);
}
inline Bits low_halves(Bits a) {
  return vshll_n_u16(vget_low_u16(as_halves(a)), 16);
}
inline Bits high_halves(Bits a) {
  return vshll_high_n_u16(as_halves(a), 16);
}
inline FourLanes four_maxima(Bits a, Bits b, Bits c, Bits d) {
  return vpmaxq_u32(vpmaxq_u32(a, b), vpmaxq_u32(c, d));
}
inline void store_four(int32_t *to, FourLanes four) {
  vst1q_s32(to, vreinterpretq_s32_u32(four));
}
inline int32_t largest_lane(Bits a) {
  return static_cast<int32_t>(vmaxvq_u32(a));
}
inline int32_t largest_of_four(FourLanes four) {
  return largest_lane(four);
}
inline Bits widen_bf16(const void *from) {
  return vshll_n_u16(vld1_u16(static_cast<const uint16_t *>(from)), 16);
}
inline Bits widen_f16(const void *from) {
  const uint16x4_t halves = vld1_u16(static_cast<const uint16_t *>(from));
  return bits_of(vcvt_f32_f16(vreinterpret_f16_u16(halves)));
}
/* Byte 0 (kTop: 3) of each lane of four vectors, in order. */
template <bool kTop>
inline uint8x16_t bytes_of_four(const Bits *v) {
  const auto halves = [v](int i) {
    return kTop ? vuzp2q_u16(as_halves(v[i]), as_halves(v[i + 1]))
                : vuzp1q_u16(as_halves(v[i]), as_halves(v[i + 1]));
  };
  const uint8x16_t first = vreinterpretq_u8_u16(halves(0));
  const uint8x16_t second = vreinterpretq_u8_u16(halves(2));
  return kTop ? vuzp2q_u8(first, second) : vuzp1q_u8(first, second);
}
/* The highest bit of each byte of `top`, the others of `rest`. */
inline uint8x16_t with_top_bits(uint8x16_t top, uint8x16_t rest) {
  return vbslq_u8(vdupq_n_u8(0x80), top, rest);
}

}  // namespace
}  // namespace octavo
