// Faults of codes of four bits.
#include <cstring>

#include "faulty.h"
#include "kernels/check/granularity.h"
#include "octavo/draft/fp4.h"
#include "octavo/hpp/text.hpp"

namespace octavo::test {
namespace {

bool has_codes(const octavo_tensor *t) {
  return t != nullptr && t->dtype == OCTAVO_E2M1;
}

// As quantize, and then `kSpoil` of `out`, where it has codes of four bits.
template <void (*kSpoil)(const octavo_tensor &out, const octavo_scale &scale)>
void plant_cast(octavo_kernels &kernels, octavo_memory &) {
  kernels.quantize = [](void *ctx, const octavo_quantize *c) {
    const octavo_status status = sound().quantize(ctx, c);
    if (status == OCTAVO_OK && has_codes(c->out)) kSpoil(*c->out, *c->out_scale_inv);
    return status;
  };
}
uint8_t *row_of(const octavo_tensor &t, int64_t row) {
  return static_cast<uint8_t *>(t.data) + row * t.stride / 2;
}
void swap_halves(const octavo_tensor &out, const octavo_scale &) {
  for (int64_t r = 0; r < out.rows; ++r)
    for (int64_t i = 0; i < out.cols / 2; ++i) {
      uint8_t &both = row_of(out, r)[i];
      both = static_cast<uint8_t>(both << 4 | both >> 4);
    }
}
void a_byte_for_each(const octavo_tensor &out, const octavo_scale &) {
  uint8_t *row = row_of(out, out.rows - 1);
  for (int64_t i = out.cols; i-- > 0;) row[i] = static_cast<uint8_t>(row[i / 2] >> i % 2 * 4 & 15);
}
void second_is_one(const octavo_tensor &, const octavo_scale &scale) {
  *scale.second = 1;
}
void minus_zero(const octavo_tensor &out, const octavo_scale &) {
  for (int64_t r = 0; r < out.rows; ++r)
    for (int64_t i = 0; i < out.cols / 2; ++i)
      if (row_of(out, r)[i] == 0) row_of(out, r)[i] = 0x88;
}

octavo_scale without_second(const octavo_scale *s) {
  static float nothing = 2688;
  octavo_scale own = *s;
  own.second = &nothing;
  return own;
}
octavo_status dequantize_one_level(void *ctx, const octavo_dequantize *c) {
  if (!has_codes(c->in)) return sound().dequantize(ctx, c);
  const octavo_scale scale = without_second(c->scale_inv);
  octavo_dequantize own = *c;
  own.scale_inv = &scale;
  return sound().dequantize(ctx, &own);
}
octavo_status gemm_one_level(void *ctx, const octavo_gemm *c) {
  if (!has_codes(c->a)) return sound().gemm(ctx, c);
  const octavo_scale scale = without_second(c->b_scale_inv);
  octavo_gemm own = *c;
  own.b_scale_inv = &scale;
  return sound().gemm(ctx, &own);
}

template <void (*kChange)(octavo_quantize_fp4 &)>
void plant_way(octavo_kernels &kernels, octavo_memory &) {
  kernels.get_extension = [](void *ctx, octavo_str id) -> const void * {
    static const octavo_fp4_kernels table = {
        sizeof table, OCTAVO_KIND_FP4_KERNELS, [](void *on, const octavo_quantize_fp4 *c) {
          octavo_quantize_fp4 own = *c;
          kChange(own);
          const void *real = sound().get_extension(on, OCTAVO_STR(OCTAVO_FP4_KERNELS_ID));
          return static_cast<const octavo_fp4_kernels *>(real)->quantize_fp4(on, &own);
        }};
    return view(id) == OCTAVO_FP4_KERNELS_ID ? &table : sound().get_extension(ctx, id);
  };
}
void without_key(octavo_quantize_fp4 &c) {
  c.key = 0;
}
void without_step(octavo_quantize_fp4 &c) {
  c.count = nullptr;
}
void without_transform(octavo_quantize_fp4 &c) {
  c.flags &= ~uint32_t{OCTAVO_FP4_HADAMARD};
}

}  // namespace

std::span<const Fault> faults_of_fp4() {
  static constexpr Fault kFaults[] = {
      {"fp4_halves_of_bytes_swapped", plant_cast<swap_halves>},
      {"fp4_a_byte_for_each_code", plant_cast<a_byte_for_each>},
      {"fp4_amax_of_tensor_missing", plant_cast<second_is_one>},
      {"fp4_writes_minus_zero", plant_cast<minus_zero>},
      {"fp4_dequantize_ignores_second",
       [](octavo_kernels &k, octavo_memory &) { k.dequantize = dequantize_one_level; }},
      {"fp4_gemm_ignores_second",
       [](octavo_kernels &k, octavo_memory &) { k.gemm = gemm_one_level; }},
      {"fp4_ignores_key", plant_way<without_key>},
      {"fp4_ignores_step", plant_way<without_step>},
      {"fp4_drops_transform", plant_way<without_transform>},
  };
  return kFaults;
}

}  // namespace octavo::test
