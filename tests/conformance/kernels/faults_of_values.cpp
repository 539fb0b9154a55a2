// Faults of every other call.
#include <cmath>
#include <cstring>
#include <vector>

#include "faulty.h"
#include "kernels/format/float16.h"
#include "octavo/hpp/kernels_tables.hpp"
#include "octavo/hpp/text.hpp"

namespace octavo::test {
namespace {

// A verb of the sound table, of a call that `kChange` has changed.
template <auto kVerb, typename Call, void (*kChange)(Call &)>
octavo_status changed(void *ctx, const Call *c) {
  Call own = *c;
  kChange(own);
  return (sound().*kVerb)(ctx, &own);
}
// The same, and then `kSpoil`.
template <auto kVerb, typename Call, void (*kSpoil)(const Call &)>
octavo_status spoiled(void *ctx, const Call *c) {
  const octavo_status status = (sound().*kVerb)(ctx, c);
  if (status == OCTAVO_OK) kSpoil(*c);
  return status;
}

void dequantize_overwrites(octavo_dequantize &c) {
  c.accumulate = 0;
}
octavo_status dequantize_not_in_place(void *ctx, const octavo_dequantize *c) {
  if (c->in->data == c->out->data) return OCTAVO_OK;
  return sound().dequantize(ctx, c);
}
octavo_status dequantize_first_row(void *ctx, const octavo_dequantize *c) {
  if (c->scale_inv == nullptr || c->scale_inv->granularity != OCTAVO_PER_ROW)
    return sound().dequantize(ctx, c);
  octavo_scale one = *c->scale_inv;
  one.granularity = OCTAVO_PER_TENSOR;
  one.stride = 0;
  octavo_dequantize own = *c;
  own.scale_inv = &one;
  return sound().dequantize(ctx, &own);
}
void scale_forgets(octavo_scale_from_amax &c) {
  c.kept = nullptr;
}
void scale_not_divided(octavo_scale_from_amax &c) {
  c.divide_by = 1;
}

void history_of_last(octavo_delayed_scale_update &c) {
  c.use_max = 0;
}
void history_without_margin(octavo_delayed_scale_update &c) {
  c.margin = 0;
}
void history_without_flags(octavo_delayed_scale_update &c) {
  c.history_flags = 0;
}
void history_rolls_twice(const octavo_delayed_scale_update &c) {
  if (c.length < 3) return;
  const uint64_t row = c.n;
  std::vector<float> first(c.history + row, c.history + 2 * row);
  std::memmove(c.history + row, c.history + 2 * row, (c.length - 2) * row * sizeof(float));
  std::memcpy(c.history + (c.length - 1) * row, first.data(), row * sizeof(float));
}
octavo_status history_keeps_amax(void *ctx, const octavo_delayed_scale_update *c) {
  const std::vector<float> amax(c->amax, c->amax + c->n);
  const octavo_status status = sound().delayed_scale_update(ctx, c);
  if (status == OCTAVO_OK) std::memcpy(c->amax, amax.data(), c->n * sizeof(float));
  return status;
}

octavo_status gemm_ignores_scale(void *ctx, const octavo_gemm *c) {
  float one = 1;
  octavo_scale scale = OCTAVO_SCALE(&one, 0, OCTAVO_F32, OCTAVO_PER_TENSOR);
  octavo_gemm own = *c;
  if (c->b_scale_inv != nullptr && c->b_scale_inv->granularity == OCTAVO_PER_TENSOR)
    own.b_scale_inv = &scale;
  return sound().gemm(ctx, &own);
}
octavo_status gemm_first_row_scale(void *ctx, const octavo_gemm *c) {
  octavo_gemm own = *c;
  octavo_scale one{};
  if (c->b_scale_inv != nullptr && c->b_scale_inv->granularity == OCTAVO_PER_ROW) {
    one = *c->b_scale_inv;
    one.granularity = OCTAVO_PER_TENSOR;
    one.stride = 0;
    own.b_scale_inv = &one;
  }
  return sound().gemm(ctx, &own);
}
void gemm_rounds_sums(const octavo_gemm &c) {
  for (int64_t m = 0; c.d->dtype == OCTAVO_F32 && m < c.d->rows; ++m)
    for (int64_t n = 0; n < c.d->cols; ++n) {
      float *d = static_cast<float *>(c.d->data) + m * c.d->stride + n;
      *d = decode_bf16(encode_bf16(*d));
    }
}
// A sum that loses 12 bits of each product of plain float32, as with units for tf32.
void gemm_in_tf32(const octavo_gemm &c) {
  for (int64_t m = 0; c.a->dtype == OCTAVO_F32 && c.d->dtype == OCTAVO_F32 && m < c.d->rows; ++m)
    for (int64_t n = 0; n < c.d->cols; ++n) {
      float *d = static_cast<float *>(c.d->data) + m * c.d->stride + n;
      *d *= 1 + 0x1p-13f;
    }
}
octavo_status gemm_drops_tail(void *ctx, const octavo_gemm *c) {
  octavo_tensor a = *c->a, b = *c->b;
  octavo_gemm own = *c;
  if (c->layout == 0 && a.cols > 16 && a.cols % 16 != 0) {
    a.cols = b.cols = a.cols / 16 * 16;
    own.a = &a;
    own.b = &b;
  }
  return sound().gemm(ctx, &own);
}
void gemm_without_bias(octavo_gemm &c) {
  c.bias = nullptr;
}
void gemm_rounds_once(octavo_gemm &c) {
  c.bias_after = 0;
}
void gemm_overwrites(octavo_gemm &c) {
  c.accumulate = 0;
}
void gemm_hides_nan(const octavo_gemm &c);
void gemm_fast_hides_nan(const octavo_gemm &c) {
  if (c.fast_accumulation != 0) gemm_hides_nan(c);
}
void gemm_hides_nan(const octavo_gemm &c) {
  for (int64_t m = 0; c.d->dtype == OCTAVO_F32 && m < c.d->rows; ++m)
    for (int64_t n = 0; n < c.d->cols; ++n) {
      float *d = static_cast<float *>(c.d->data) + m * c.d->stride + n;
      if (std::isnan(*d)) *d = 0;
    }
}
octavo_status gemm_overruns_workspace(void *ctx, const octavo_gemm *c) {
  uint64_t bytes = 0;
  const octavo_status status = sound().gemm(ctx, c);
  if (status == OCTAVO_OK && sound().workspace_bytes(ctx, c, &bytes) == OCTAVO_OK && bytes > 0)
    std::memset(static_cast<uint8_t *>(c->workspace) + bytes, 0, 64);
  return status;
}
void gemm_unsteady(const octavo_gemm &c) {
  static int turn = 0;
  if (c.d->dtype == OCTAVO_F32 && c.d->rows > 0 && ++turn % 2 == 0) {
    auto *d = static_cast<float *>(c.d->data);
    *d = std::nextafter(*d, 1e30f);
  }
}

octavo_status sums_in_float32(void *ctx, const octavo_sum *c) {
  if (c->in->dtype != OCTAVO_F32 || c->in_scale_inv != nullptr) return sound().sum_rows(ctx, c);
  for (int64_t i = 0; i < c->in->cols; ++i) {
    float sum = 0, *out = static_cast<float *>(c->out) + i;
    for (int64_t r = 0; r < c->in->rows; ++r)
      sum += static_cast<const float *>(c->in->data)[r * c->in->stride + i];
    *out = c->accumulate != 0 ? *out + sum : sum;
  }
  return OCTAVO_OK;
}
octavo_status sums_in_another_order(void *ctx, const octavo_sum *c) {
  if (c->in->dtype != OCTAVO_F32 || c->in_scale_inv != nullptr) return sound().sum_rows(ctx, c);
  for (int64_t i = 0; i < c->in->cols; ++i) {
    double sum = 0;
    float *out = static_cast<float *>(c->out) + i;
    for (int64_t r = c->in->rows; r-- > 0;)
      sum += static_cast<double>(static_cast<const float *>(c->in->data)[r * c->in->stride + i]);
    const auto rounded = static_cast<float>(sum);
    *out = c->accumulate != 0 ? *out + rounded : rounded;
  }
  return OCTAVO_OK;
}
void sum_overwrites(octavo_sum &c) {
  c.accumulate = 0;
}
void copy_whole_words(octavo_copy &c) {
  c.bytes = (c.bytes + 3) / 4 * 4;
}
octavo_status copy_clears_nothing(void *ctx, const octavo_copy *c) {
  return c->in == nullptr ? octavo_status{OCTAVO_OK} : sound().copy(ctx, c);
}
void stats_count_ends(const octavo_quantize_stats &c) {
  if (c.saturated != nullptr) *c.saturated += 1;
}
octavo_status amax_without_scale(void *ctx, const octavo_compute_amax *c) {
  octavo_compute_amax own = *c;
  own.in_scale_inv = nullptr;
  return sound().compute_amax(ctx, &own);
}

octavo_status prologue_without_beta(void *ctx, const octavo_prologue_call *c) {
  octavo_prologue p = *c->prologue;
  p.beta = nullptr;
  octavo_prologue_call own = *c;
  own.prologue = &p;
  return sound().prologue(ctx, &own);
}
octavo_status fused_without_eps(void *ctx, const octavo_prologue_call *c) {
  octavo_prologue p = *c->prologue;
  p.eps = 0;
  octavo_prologue_call own = *c;
  own.prologue = &p;
  return sound().prologue_quantize(ctx, &own);
}

// A table of octavo/draft with one function that changes its call.
template <typename Table, auto kVerb, typename Call, void (*kChange)(Call &)>
void plant_draft(octavo_kernels &kernels, octavo_memory &) {
  kernels.get_extension = [](void *ctx, octavo_str id) -> const void * {
    const void *given = sound().get_extension(ctx, id);
    if (given == nullptr || view(id) != view(KernelsTableId<Table>::id)) return given;
    static Table table;
    table = *static_cast<const Table *>(given);
    table.*kVerb = [](void *on, const Call *c) {
      Call own = *c;
      kChange(own);
      const void *real = sound().get_extension(on, KernelsTableId<Table>::id);
      return (static_cast<const Table *>(real)->*kVerb)(on, &own);
    };
    return &table;
  };
}
void adam_never_skips(octavo_adam_step &c) {
  c.skip = nullptr;
}
void adam_decays_by_gradient(octavo_adam_step &c) {
  c.decay_mode = OCTAVO_DECAY_L2;
}
void rounds_to_nearest(octavo_adam_rounded &c) {
  c.weight_rounding = c.exp_avg_rounding = c.exp_avg_sq_rounding = OCTAVO_ROUND_NEAREST_EVEN;
}
void one_key_for_all(octavo_adam_rounded &c) {
  static constexpr uint64_t kKey = 1;
  if (c.keys != nullptr && c.step->count == 1) c.keys = &kKey;
}
void codes_without_count(octavo_round_codes &c) {
  c.count = nullptr;
}
void one_pass_to_nearest(octavo_adam_one_pass &c) {
  static thread_local octavo_adam_rounded nearest;
  nearest = *c.rounded;
  rounds_to_nearest(nearest);
  c.rounded = &nearest;
}
void squares_overwrite(octavo_sum &c) {
  *static_cast<float *>(c.out) = 0;
}

template <auto kVerb, auto kFunction>
void plant(octavo_kernels &kernels, octavo_memory &) {
  kernels.*kVerb = kFunction;
}
template <void (*kChange)(octavo_gemm &)>
constexpr auto kGemm =
    plant<&octavo_kernels::gemm, changed<&octavo_kernels::gemm, octavo_gemm, kChange>>;
template <void (*kSpoil)(const octavo_gemm &)>
constexpr auto kGemmThen =
    plant<&octavo_kernels::gemm, spoiled<&octavo_kernels::gemm, octavo_gemm, kSpoil>>;
template <void (*kChange)(octavo_delayed_scale_update &)>
constexpr auto kHistory =
    plant<&octavo_kernels::delayed_scale_update,
          changed<&octavo_kernels::delayed_scale_update, octavo_delayed_scale_update, kChange>>;
template <void (*kChange)(octavo_scale_from_amax &)>
constexpr auto kScale =
    plant<&octavo_kernels::scale_from_amax,
          changed<&octavo_kernels::scale_from_amax, octavo_scale_from_amax, kChange>>;

}  // namespace

std::span<const Fault> faults_of_values() {
  using K = octavo_kernels;
  static constexpr Fault kFaults[] = {
      {"dequantize_ignores_accumulate",
       plant<&K::dequantize, changed<&K::dequantize, octavo_dequantize, dequantize_overwrites>>},
      {"dequantize_not_in_place", plant<&K::dequantize, dequantize_not_in_place>},
      {"dequantize_one_scale_for_rows", plant<&K::dequantize, dequantize_first_row>},
      {"amax_without_scale", plant<&K::compute_amax, amax_without_scale>},
      {"scale_forgets_the_old_one", kScale<scale_forgets>},
      {"scale_not_divided", kScale<scale_not_divided>},
      {"history_ignores_max", kHistory<history_of_last>},
      {"history_ignores_margin", kHistory<history_without_margin>},
      {"history_ignores_flags", kHistory<history_without_flags>},
      {"history_off_by_one",
       plant<&K::delayed_scale_update,
             spoiled<&K::delayed_scale_update, octavo_delayed_scale_update, history_rolls_twice>>},
      {"history_keeps_amax", plant<&K::delayed_scale_update, history_keeps_amax>},
      {"gemm_ignores_a_scale", plant<&K::gemm, gemm_ignores_scale>},
      {"gemm_one_scale_for_rows", plant<&K::gemm, gemm_first_row_scale>},
      {"gemm_rounds_sums_to_bfloat16", kGemmThen<gemm_rounds_sums>},
      {"gemm_of_float32_in_tf32", kGemmThen<gemm_in_tf32>},
      {"gemm_drops_the_tail_of_k", plant<&K::gemm, gemm_drops_tail>},
      {"gemm_drops_bias", kGemm<gemm_without_bias>},
      {"gemm_ignores_bias_after", kGemm<gemm_rounds_once>},
      {"gemm_ignores_accumulate", kGemm<gemm_overwrites>},
      {"gemm_hides_nan", kGemmThen<gemm_hides_nan>},
      {"gemm_fast_hides_nan", kGemmThen<gemm_fast_hides_nan>},
      {"gemm_overruns_workspace", plant<&K::gemm, gemm_overruns_workspace>},
      {"gemm_unsteady", kGemmThen<gemm_unsteady>},
      {"sums_in_float32", plant<&K::sum_rows, sums_in_float32>},
      {"sums_in_another_order", plant<&K::sum_rows, sums_in_another_order>},
      {"sums_ignore_accumulate",
       plant<&K::sum_rows, changed<&K::sum_rows, octavo_sum, sum_overwrites>>},
      {"copies_whole_words", plant<&K::copy, changed<&K::copy, octavo_copy, copy_whole_words>>},
      {"copy_clears_nothing", plant<&K::copy, copy_clears_nothing>},
      {"stats_count_one_more",
       plant<&K::quantize_stats,
             spoiled<&K::quantize_stats, octavo_quantize_stats, stats_count_ends>>},
      {"sum_of_squares_overwrites",
       plant_draft<octavo_adam_kernels, &octavo_adam_kernels::sum_of_squares, octavo_sum,
                   squares_overwrite>},
      {"adam_never_skips", plant_draft<octavo_adam_kernels, &octavo_adam_kernels::adam_step,
                                       octavo_adam_step, adam_never_skips>},
      {"adam_decays_by_the_gradient",
       plant_draft<octavo_adam_kernels, &octavo_adam_kernels::adam_step, octavo_adam_step,
                   adam_decays_by_gradient>},
      {"adam_rounds_to_nearest",
       plant_draft<octavo_rounding_kernels, &octavo_rounding_kernels::adam_rounded,
                   octavo_adam_rounded, rounds_to_nearest>},
      {"adam_ignores_keys",
       plant_draft<octavo_rounding_kernels, &octavo_rounding_kernels::adam_rounded,
                   octavo_adam_rounded, one_key_for_all>},
      {"round_codes_ignores_count",
       plant_draft<octavo_rounding_kernels, &octavo_rounding_kernels::round_codes,
                   octavo_round_codes, codes_without_count>},
      {"one_pass_rounds_to_nearest",
       plant_draft<octavo_one_pass_kernels, &octavo_one_pass_kernels::adam_one_pass,
                   octavo_adam_one_pass, one_pass_to_nearest>},
      {"prologue_drops_beta", plant<&K::prologue, prologue_without_beta>},
      {"prologue_quantize_ignores_eps", plant<&K::prologue_quantize, fused_without_eps>},
  };
  return kFaults;
}

}  // namespace octavo::test
