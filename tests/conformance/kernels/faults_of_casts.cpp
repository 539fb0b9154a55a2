// Faults of quantize.
#include <cmath>
#include <cstring>
#include <vector>

#include "faulty.h"
#include "kernels/format/float16.h"
#include "kernels/format/float8.h"

namespace octavo::test {
namespace {

float load(const octavo_tensor &t, int64_t row, int64_t col) {
  const auto *at =
      static_cast<const uint8_t *>(t.data) + (row * t.stride + col) * (t.dtype >> 8) / 8;
  float value = 0;
  uint16_t half = 0;
  switch (t.dtype) {
    case OCTAVO_F32: std::memcpy(&value, at, 4); return value;
    case OCTAVO_E4M3FN: return decode_e4m3(*at);
    case OCTAVO_E5M2: return decode_e5m2(*at);
    default:
      std::memcpy(&half, at, 2);
      return t.dtype == OCTAVO_F16 ? decode_f16(half) : decode_bf16(half);
  }
}

// As quantize, but each code of a given scale is what `kCode` makes of value, code and dtype.
template <uint8_t (*kCode)(float value, uint8_t code, uint32_t dtype)>
octavo_status with_codes(void *ctx, const octavo_quantize *c) {
  const octavo_status status = sound().quantize(ctx, c);
  if (status != OCTAVO_OK || c->out == nullptr || c->out->dtype == OCTAVO_F16 ||
      c->out_scale_inv->granularity != OCTAVO_PER_TENSOR || c->in_scale_inv != nullptr)
    return status;
  const float scale = c->rule == OCTAVO_RULE_GIVEN
                          ? c->scale != nullptr ? *c->scale : 1.0f
                          : 1.0f / *static_cast<const float *>(c->out_scale_inv->data);
  for (int64_t r = 0; r < c->in->rows; ++r)
    for (int64_t i = 0; i < c->in->cols; ++i) {
      uint8_t *code = static_cast<uint8_t *>(c->out->data) + r * c->out->stride + i;
      *code = kCode(load(*c->in, r, i) * scale, *code, c->out->dtype);
    }
  return status;
}

float decoded(uint8_t code, uint32_t dtype) {
  return dtype == OCTAVO_E4M3FN ? decode_e4m3(code) : decode_e5m2(code);
}
uint8_t largest(uint32_t dtype) {
  return dtype == OCTAVO_E4M3FN ? 0x7E : 0x7B;
}
uint8_t away_from_zero(float value, uint8_t code, uint32_t dtype) {
  if (!std::isfinite(value) || (code & 0x7F) >= largest(dtype)) return code;
  const float low = std::abs(decoded(code, dtype));
  const float high = std::abs(decoded(static_cast<uint8_t>(code + 1), dtype));
  return std::abs(value) == low + (high - low) / 2 ? static_cast<uint8_t>(code + 1) : code;
}
uint8_t towards_zero(float value, uint8_t code, uint32_t dtype) {
  return std::abs(decoded(code, dtype)) > std::abs(value) ? static_cast<uint8_t>(code - 1) : code;
}
uint8_t overflow_to_nan(float value, uint8_t code, uint32_t dtype) {
  return std::abs(value) > decoded(largest(dtype), dtype) ? code | 0x7F : code;
}
uint8_t infinity_to_nan(float value, uint8_t code, uint32_t) {
  return std::isinf(value) ? code | 0x7F : code;
}
uint8_t nan_to_largest(float value, uint8_t code, uint32_t dtype) {
  return std::isnan(value) ? static_cast<uint8_t>((code & 0x80) | largest(dtype)) : code;
}
uint8_t flush_subnormals(float, uint8_t code, uint32_t dtype) {
  return (code & 0x7F) < (dtype == OCTAVO_E4M3FN ? 8 : 4) ? code & 0x80 : code;
}
uint8_t lose_sign_of_zero(float, uint8_t code, uint32_t) {
  return code == 0x80 ? 0 : code;
}

// As quantize, of a call that `kChange` has changed.
template <void (*kChange)(octavo_quantize &)>
octavo_status changed(void *ctx, const octavo_quantize *c) {
  octavo_quantize own = *c;
  kChange(own);
  return sound().quantize(ctx, &own);
}
// As quantize, and then `kSpoil`.
template <void (*kSpoil)(const octavo_quantize &, float amax_before)>
octavo_status spoiled(void *ctx, const octavo_quantize *c) {
  const float before = c->amax != nullptr ? *c->amax : 0;
  const octavo_status status = sound().quantize(ctx, c);
  if (status == OCTAVO_OK) kSpoil(*c, before);
  return status;
}

void plain_counter(octavo_quantize &c) {
  if (c.counter != nullptr && c.scale != nullptr && *c.counter == c.window) c.window += 1;
}
void no_warm_up(octavo_quantize &c) {
  if (c.counter != nullptr) c.window = 0;
}
void ignore_scale(octavo_quantize &c) {
  if (c.rule == OCTAVO_RULE_GIVEN) c.scale = nullptr;
}
void ignore_eps(octavo_quantize &c) {
  c.eps = 0;
}
void ignore_keep_positive(octavo_quantize &c) {
  c.flags = 0;
}
void pow2_as_quotient(octavo_quantize &c) {
  if (c.rule == OCTAVO_RULE_POW2) c.rule = OCTAVO_RULE_QUOTIENT;
}
void reciprocal_as_quotient(octavo_quantize &c) {
  if (c.rule == OCTAVO_RULE_RECIPROCAL) c.rule = OCTAVO_RULE_QUOTIENT;
}
void mx_rounds_down(octavo_quantize &c) {
  if (c.rule == OCTAVO_RULE_MX_UP) c.rule = OCTAVO_RULE_MX_FLOOR;
}
void ignore_in_scale(octavo_quantize &c) {
  c.in_scale_inv = nullptr;
}
void read_past_rows(octavo_quantize &c) {
  static thread_local octavo_tensor wide;
  wide = *c.in;
  if (wide.rows > 1 && wide.stride > wide.cols && c.out != nullptr && c.out->cols > wide.cols)
    ++wide.cols, c.in = &wide;
}
void assume_alignment(octavo_quantize &c) {
  static thread_local octavo_tensor aligned;
  aligned = *c.in;
  aligned.data =
      reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(aligned.data) & ~uintptr_t{63});
  c.in = &aligned;
}

bool has_one_scale(const octavo_quantize &c) {
  return c.out_scale_inv != nullptr && c.out_scale_inv->granularity == OCTAVO_PER_TENSOR;
}
void write_scale_as_inverse(const octavo_quantize &c, float) {
  if (!has_one_scale(c) || (c.out == nullptr && c.out_t == nullptr)) return;
  auto *s = static_cast<float *>(c.out_scale_inv->data);
  *s = 1.0f / *s;
}
// fl(amax / M) is often not fl(1 / fl(M / amax)).
void approximate_scale_inv(const octavo_quantize &c, float) {
  if (!has_one_scale(c) || c.rule != OCTAVO_RULE_QUOTIENT || c.amax == nullptr ||
      c.scale != nullptr || (c.out == nullptr && c.out_t == nullptr) || *c.amax < 0x1p-19f ||
      std::isinf(*c.amax) || c.eps > 0)
    return;
  *static_cast<float *>(c.out_scale_inv->data) = *c.amax / c.format_max;
}
void scaled_amax(const octavo_quantize &c, float before) {
  if (c.amax == nullptr || c.rule != OCTAVO_RULE_GIVEN || c.scale == nullptr) return;
  *c.amax = std::fmax(before, *c.amax * *c.scale);
}
void overwrite_amax(const octavo_quantize &c, float before) {
  if (c.amax == nullptr || *c.amax != before) return;
  *c.amax = 0;
}
void amax_of_nan(const octavo_quantize &c, float) {
  for (int64_t r = 0; c.amax != nullptr && r < c.in->rows; ++r)
    for (int64_t i = 0; i < c.in->cols; ++i)
      if (std::isnan(load(*c.in, r, i))) *c.amax = NAN;
}
void clear_nonfinite(const octavo_quantize &c, float) {
  if (c.nonfinite != nullptr && *c.nonfinite != 1) *c.nonfinite = 0;
}
void swap_transposed(const octavo_quantize &c, float) {
  if (c.out == nullptr || c.out_t == nullptr || c.out->rows != c.out->cols) return;
  for (int64_t r = 0; r < c.out->rows; ++r)
    std::memcpy(static_cast<uint8_t *>(c.out_t->data) + r * c.out_t->stride * (c.out->dtype >> 11),
                static_cast<uint8_t *>(c.out->data) + r * c.out->stride * (c.out->dtype >> 11),
                static_cast<size_t>(c.out->cols) * (c.out->dtype >> 11));
}
void write_between_rows(const octavo_quantize &c, float) {
  if (c.out == nullptr || c.out->dtype == OCTAVO_F16 || c.out->stride == c.out->cols ||
      c.out->rows < 2)
    return;
  static_cast<uint8_t *>(c.out->data)[c.out->cols] = 0;
}
void write_input(const octavo_quantize &c, float) {
  if (c.in->dtype == OCTAVO_F32 && c.in->rows > 0) *static_cast<float *>(c.in->data) += 1;
}
void read_past_end(const octavo_quantize &c, float) {
  if (c.in->rows == 0 || c.in->data == nullptr) return;
  const auto *end = static_cast<const volatile uint8_t *>(c.in->data) +
                    ((c.in->rows - 1) * c.in->stride + c.in->cols) * (c.in->dtype >> 8) / 8;
  (void)end[63];
}

octavo_status skip_padding(void *ctx, const octavo_quantize *c) {
  octavo_quantize own = *c;
  octavo_tensor out{};
  const bool padded = c->out != nullptr && c->out_scale_inv->granularity == OCTAVO_PER_TENSOR;
  if (padded) {
    out = *c->out;
    out.rows = c->in->rows;
    out.cols = c->in->cols;
    own.out = &out;
  }
  return sound().quantize(ctx, &own);
}
octavo_status forget_scale_of_transposed(void *ctx, const octavo_quantize *c) {
  if (c->out != nullptr || c->out_t == nullptr || c->out_scale_inv == nullptr)
    return sound().quantize(ctx, c);
  float lost = 0;
  const octavo_scale scale = OCTAVO_SCALE(&lost, 0, OCTAVO_F32, OCTAVO_PER_TENSOR);
  octavo_quantize own = *c;
  own.out_scale_inv = &scale;
  return sound().quantize(ctx, &own);
}
octavo_status flush_float16(void *ctx, const octavo_quantize *c) {
  const octavo_status status = sound().quantize(ctx, c);
  for (octavo_tensor *t : {c->out, c->out_t})
    for (int64_t r = 0;
         status == OCTAVO_OK && t != nullptr && t->dtype == OCTAVO_F16 && r < t->rows; ++r)
      for (int64_t i = 0; i < t->cols; ++i) {
        uint16_t *half = static_cast<uint16_t *>(t->data) + r * t->stride + i;
        if ((*half & 0x7C00) == 0) *half &= 0x8000;
      }
  return status;
}
// Two threads that call it at once share the buffer.
octavo_status share_scratch(void *ctx, const octavo_quantize *c) {
  static std::vector<uint8_t> scratch(1 << 22);
  if (c->in->rows * c->in->stride * 4 > 1 << 22 || c->in->rows == 0 || c->in->data == nullptr)
    return sound().quantize(ctx, c);
  octavo_tensor in = *c->in;
  std::memcpy(scratch.data(), in.data,
              static_cast<size_t>((in.rows - 1) * in.stride + in.cols) * (in.dtype >> 11));
  in.data = scratch.data();
  octavo_quantize own = *c;
  own.in = &in;
  return sound().quantize(ctx, &own);
}

template <octavo_status (*kQuantize)(void *, const octavo_quantize *)>
void plant(octavo_kernels &kernels, octavo_memory &) {
  kernels.quantize = kQuantize;
}

}  // namespace

std::span<const Fault> faults_of_casts() {
  static constexpr Fault kFaults[] = {
      {"rounds_ties_away", plant<with_codes<away_from_zero>>},
      {"rounds_towards_zero", plant<with_codes<towards_zero>>},
      {"overflow_becomes_nan", plant<with_codes<overflow_to_nan>>},
      {"infinity_becomes_nan", plant<with_codes<infinity_to_nan>>},
      {"nan_becomes_largest", plant<with_codes<nan_to_largest>>},
      {"subnormal_codes_flushed", plant<with_codes<flush_subnormals>>},
      {"sign_of_zero_lost", plant<with_codes<lose_sign_of_zero>>},
      {"float16_subnormals_flushed", plant<flush_float16>},
      {"given_scale_ignored", plant<changed<ignore_scale>>},
      {"scale_of_input_ignored", plant<changed<ignore_in_scale>>},
      {"scale_inv_is_the_scale", plant<spoiled<write_scale_as_inverse>>},
      {"scale_inv_is_a_quotient", plant<spoiled<approximate_scale_inv>>},
      {"scale_inv_of_out_t_missing", plant<forget_scale_of_transposed>},
      {"amax_after_scaling", plant<spoiled<scaled_amax>>},
      {"amax_overwritten", plant<spoiled<overwrite_amax>>},
      {"amax_takes_nan", plant<spoiled<amax_of_nan>>},
      {"amax_of_padding", plant<changed<read_past_rows>>},
      {"nonfinite_cleared", plant<spoiled<clear_nonfinite>>},
      {"padding_not_written", plant<skip_padding>},
      {"out_t_not_transposed", plant<spoiled<swap_transposed>>},
      {"counter_off_by_one", plant<changed<plain_counter>>},
      {"warm_up_ignored", plant<changed<no_warm_up>>},
      {"eps_ignored", plant<changed<ignore_eps>>},
      {"pow2_is_the_quotient", plant<changed<pow2_as_quotient>>},
      {"reciprocal_is_the_quotient", plant<changed<reciprocal_as_quotient>>},
      {"keep_positive_ignored", plant<changed<ignore_keep_positive>>},
      {"mx_rounds_down", plant<changed<mx_rounds_down>>},
      {"alignment_assumed", plant<changed<assume_alignment>>},
      {"reads_past_the_end", plant<spoiled<read_past_end>>},
      {"writes_between_rows", plant<spoiled<write_between_rows>>},
      {"writes_its_input", plant<spoiled<write_input>>},
      {"threads_share_scratch", plant<share_scratch>},
  };
  return kFaults;
}

}  // namespace octavo::test
