// Faults that special values show, and those of a thread's floating-point mode.
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "faulty.h"
#include "kernels/check/granularity.h"
#include "kernels/check/verbs.h"
#include "kernels/cpu/context.h"

namespace octavo::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// An element of a tensor, or its copy in float32.
float load(const octavo_tensor &t, int64_t row, int64_t col) {
  const char *at = element(t, row, col);
  uint16_t half = 0;
  float value = 0;
  switch (t.dtype) {
    case OCTAVO_F32: std::memcpy(&value, at, 4); return value;
    case OCTAVO_E4M3FN: return decode_e4m3(static_cast<uint8_t>(*at));
    case OCTAVO_E5M2: return decode_e5m2(static_cast<uint8_t>(*at));
    default:
      std::memcpy(&half, at, 2);
      return t.dtype == OCTAVO_F16 ? decode_f16(half) : decode_bf16(half);
  }
}
template <typename Visit>
void each(const octavo_tensor &t, Visit visit) {
  for (int64_t r = 0; r < t.rows; ++r)
    for (int64_t c = 0; c < t.cols; ++c) visit(r, c, load(t, r, c));
}
bool has_codes_with_one_scale(const octavo_quantize &c) {
  return c.out != nullptr && c.out->dtype != OCTAVO_F16 && c.out_scale_inv != nullptr &&
         c.out_scale_inv->granularity == OCTAVO_PER_TENSOR;
}
float factor(const octavo_quantize &c) {
  return c.in_scale_inv != nullptr ? *c.in_scale_inv : 1.0f;
}
uint8_t &code_at(const octavo_quantize &c, int64_t row, int64_t col) {
  return *reinterpret_cast<uint8_t *>(element(*c.out, row, col));
}

// As quantize, and then `kSpoil`; of a call that `kChange` has changed.
template <void (*kSpoil)(const octavo_quantize &)>
octavo_status spoiled(void *ctx, const octavo_quantize *c) {
  const octavo_status status = sound().quantize(ctx, c);
  if (status == OCTAVO_OK) kSpoil(*c);
  return status;
}
template <void (*kChange)(octavo_quantize &)>
octavo_status changed(void *ctx, const octavo_quantize *c) {
  octavo_quantize own = *c;
  if (c->size >= sizeof own && c->in != nullptr) kChange(own);
  return sound().quantize(ctx, &own);
}

void sign_of_product(const octavo_quantize &c) {
  if (!has_codes_with_one_scale(c) || c.rule != OCTAVO_RULE_GIVEN || c.scale == nullptr) return;
  each(*c.in, [&](int64_t r, int64_t i, float in) {
    const volatile float value = in * factor(c), product = value * *c.scale;
    if (std::isnan(product)) code_at(c, r, i) = std::signbit(product) ? 0xFF : 0x7F;
  });
}
void keep_minus_zero(const octavo_quantize &c) {
  if (!has_codes_with_one_scale(c) || c.flags == 0) return;
  each(*c.in, [&](int64_t r, int64_t i, float in) {
    if (in * factor(c) > 0 && code_at(c, r, i) == 0x80) code_at(c, r, i) = 0x81;
  });
}
void flush_pow2(octavo_quantize &c) {
  static constexpr float kZero = 0;
  if (c.rule != OCTAVO_RULE_POW2) return;
  float amax = c.eps;
  each(*c.in, [&](int64_t, int64_t, float in) { amax = std::fmax(amax, std::abs(in)); });
  if (c.counter != nullptr || c.out_scale_inv == nullptr ||
      c.out_scale_inv->granularity != OCTAVO_PER_TENSOR || std::isinf(amax) ||
      !(c.format_max / amax < 0x1p-126f))
    return;
  c.rule = OCTAVO_RULE_GIVEN;
  c.scale = &kZero;
}
octavo_status limit_blocks_by_float(void *ctx, const octavo_quantize *c) {
  if (c->in == nullptr || c->in->data == nullptr ||
      !is_block_granularity(c->out_scale_inv != nullptr ? c->out_scale_inv->granularity : 0) ||
      (c->in->dtype != OCTAVO_F16 && c->in->dtype != OCTAVO_BF16))
    return sound().quantize(ctx, c);
  std::vector<float> values;
  each(*c->in, [&](int64_t, int64_t, float in) { values.push_back(in); });
  const octavo_tensor in = {values.data(), c->in->rows, c->in->cols, c->in->cols, OCTAVO_F32, 0};
  octavo_quantize own = *c;
  own.in = &in;
  return sound().quantize(ctx, &own);
}
void blocks_without_eps(octavo_quantize &c) {
  if (c.out_scale_inv != nullptr && is_block_granularity(c.out_scale_inv->granularity) &&
      std::isfinite(c.eps) && c.eps > 0)
    c.eps = 0;
}
octavo_status lose_nan(void *ctx, const octavo_quantize *c) {
  if (c->amax != nullptr && reinterpret_cast<uintptr_t>(c->amax) % 4 == 0 && std::isnan(*c->amax))
    *c->amax = 0;
  return sound().quantize(ctx, c);
}
octavo_status nonfinite_of_elements(void *ctx, const octavo_quantize *c) {
  octavo_quantize own = *c;
  bool is_finite = c->in != nullptr && c->in->data != nullptr && c->in->reserved == 0 &&
                   c->in->dtype == OCTAVO_F32;
  if (is_finite && c->in_scale_inv != nullptr)
    each(*c->in, [&](int64_t, int64_t, float in) { is_finite = is_finite && std::isfinite(in); });
  if (is_finite) own.nonfinite = nullptr;
  return c->in_scale_inv != nullptr ? sound().quantize(ctx, &own) : sound().quantize(ctx, c);
}
void given_by_counter(octavo_quantize &c) {
  if (c.rule == OCTAVO_RULE_GIVEN && c.counter != nullptr && !(*c.counter >= c.window))
    c.scale = nullptr;
}
void infinite_group(const octavo_quantize &c) {
  if (c.out_scale_inv == nullptr || c.out_scale_inv->granularity != OCTAVO_FLAT_256) return;
  each(*c.in, [&](int64_t r, int64_t i, float in) {
    if (std::isinf(in))
      static_cast<float *>(c.out_scale_inv->data)[(r * c.in->cols + i) / kFlatBlock] = kInfinity;
  });
}
void divide_in_mode_of_caller(const octavo_quantize &c) {
  if (!has_codes_with_one_scale(c) || c.rule != OCTAVO_RULE_GIVEN || c.scale == nullptr) return;
  const volatile float scale = *c.scale, inverse = 1.0f / scale;
  *static_cast<float *>(c.out_scale_inv->data) = inverse;
}
void leave_mode(const octavo_quantize &) {
  std::fesetround(FE_TONEAREST);
}

octavo_status margin_first(void *ctx, const octavo_delayed_scale_update *c) {
  octavo_delayed_scale_update own = *c;
  if (c->rule == OCTAVO_RULE_RECIPROCAL && c->margin > 0 && c->margin <= 30) {
    own.format_max = std::ldexp(c->format_max, -c->margin);
    own.margin = 0;
  }
  return sound().delayed_scale_update(ctx, &own);
}
octavo_status saturate_at_code(void *ctx, const octavo_quantize_stats *c) {
  const octavo_status status = sound().quantize_stats(ctx, c);
  if (status != OCTAVO_OK || c->saturated == nullptr || c->scale_inv->granularity != OCTAVO_PER_ROW)
    return status;
  each(*c->in, [&](int64_t r, int64_t, float in) {
    const float scale = static_cast<const float *>(c->scale_inv->data)[r * c->scale_inv->stride];
    const float code = scale * largest_of(c->codes->dtype);
    const double limit = static_cast<double>(scale) * largest_of(c->codes->dtype) * (1 + 0x1p-20);
    if (std::isfinite(code) && std::abs(in) > code && std::abs(in) <= static_cast<float>(limit))
      *c->saturated += 1;
  });
  return status;
}
octavo_status empty_gemm_unscaled(void *ctx, const octavo_gemm *c) {
  if (c->a == nullptr || c->a->cols != 0 || c->a_scale_inv == nullptr || c->layout != 0 ||
      c->a_scale_inv->granularity != OCTAVO_PER_TENSOR)
    return sound().gemm(ctx, c);
  octavo_gemm own = *c;
  own.a_scale_inv = nullptr;
  return sound().gemm(ctx, &own);
}
octavo_status refuse_no_rows(void *ctx, const octavo_prologue_call *c) {
  if (c->out != nullptr && c->out->rows == 0)
    return report_error(context_of(ctx).caller(), OCTAVO_INVALID, "prologue: no rows");
  return sound().prologue(ctx, c);
}
octavo_status refuse_gelu(void *ctx, const octavo_prologue_call *c) {
  if (c->prologue->op == OCTAVO_PROLOGUE_GELU)
    return report_error(context_of(ctx).caller(), OCTAVO_UNSUPPORTED, "prologue: no GELU");
  return sound().prologue(ctx, c);
}

template <auto kVerb, auto kFunction>
void plant(octavo_kernels &kernels, octavo_memory &) {
  kernels.*kVerb = kFunction;
}
template <octavo_status (*kQuantize)(void *, const octavo_quantize *)>
constexpr auto kCast = plant<&octavo_kernels::quantize, kQuantize>;

}  // namespace

std::span<const Fault> faults_of_special() {
  using K = octavo_kernels;
  static constexpr Fault kFaults[] = {
      {"nan_has_the_sign_of_the_product", kCast<spoiled<sign_of_product>>},
      {"keep_positive_of_minus_zero", kCast<spoiled<keep_minus_zero>>},
      {"pow2_of_a_subnormal_is_zero", kCast<changed<flush_pow2>>},
      {"limit_of_blocks_is_that_of_float32", kCast<limit_blocks_by_float>},
      {"eps_ignored_by_blocks", kCast<changed<blocks_without_eps>>},
      {"amax_loses_nan", kCast<lose_nan>},
      {"nonfinite_of_elements_only", kCast<nonfinite_of_elements>},
      {"given_scale_by_the_counter", kCast<changed<given_by_counter>>},
      {"amax_of_a_state_counts_infinity", kCast<spoiled<infinite_group>>},
      {"mode_of_the_caller_used", kCast<spoiled<divide_in_mode_of_caller>>},
      {"mode_of_the_caller_changed", kCast<spoiled<leave_mode>>},
      {"history_margin_before_the_reciprocal", plant<&K::delayed_scale_update, margin_first>},
      {"stats_saturate_at_the_code", plant<&K::quantize_stats, saturate_at_code>},
      {"gemm_of_no_column_unscaled", plant<&K::gemm, empty_gemm_unscaled>},
      {"prologue_of_no_row_refused", plant<&K::prologue, refuse_no_rows>},
      {"prologue_of_gelu_refused", plant<&K::prologue, refuse_gelu>},
  };
  return kFaults;
}

}  // namespace octavo::test
