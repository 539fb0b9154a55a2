/* tests/kernels/adam_case.h: one parameter with an Adam step, in every layout, and what a new value
 * is stored as.
 */
#ifndef OCTAVO_TESTS_KERNELS_ADAM_CASE_H
#define OCTAVO_TESTS_KERNELS_ADAM_CASE_H

#include <cmath>
#include <cstring>

#include "kernels/format/adam.h"
#include "kernels/format/rounding.h"
#include "octavo/draft/rounding.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {

constexpr uint64_t kKey = 0x0123456789ABCDEF; /* of stochastic roundings */

struct AdamLayout {
  const char *name;
  uint32_t dtypes[4]; /* weight, exp_avg, exp_avg_sq, gradient */
  bool is_scaled[3];
};

constexpr AdamLayout kAdamLayouts[] = {
    {"E4M3 gradient", {OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_F16, OCTAVO_E4M3FN}, {true, true, true}},
    {"f32 gradient", {OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_F16, OCTAVO_F32}, {true, true, true}},
    {"f16 gradient", {OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_F16, OCTAVO_F16}, {true, true, true}},
    {"f32 moments", {OCTAVO_F16, OCTAVO_F32, OCTAVO_F32, OCTAVO_E4M3FN}, {true, false, false}},
    {"f32 moments and gradient",
     {OCTAVO_F16, OCTAVO_F32, OCTAVO_F32, OCTAVO_F32},
     {true, false, false}},
    {"plain", {OCTAVO_F32, OCTAVO_F32, OCTAVO_F32, OCTAVO_F32}, {false, false, false}},
    {"mixed", {OCTAVO_BF16, OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}, {false, false, false}},
    {"E5M2", {OCTAVO_F16, OCTAVO_E5M2, OCTAVO_E4M3FN, OCTAVO_E5M2}, {true, true, true}},
};

/* What a step is made with. */
struct AdamOptions {
  uint32_t rule = OCTAVO_RULE_MSAMP;
  uint32_t decay_mode = OCTAVO_DECAY_DECOUPLED;
  uint32_t flags = OCTAVO_ADAM_KEEP_POSITIVE;
  float decay = 0.1f;
  float eps = 1e-8f;
  float gradient_scale = 1.0f;
  float scale_invs[4] = {0x1p-10f, 0x1p-12f, 0x1p-20f, 0x1p-6f};
  uint32_t rounding[3] = {};
};

struct AdamParameter {
  Matrix tensors[4];
  float scale_invs[4];
  int32_t step = 6;
  float hyper[OCTAVO_HYPER_COUNT] = {};
  octavo_adam_item item = {};
  octavo_adam_step c = make_call<octavo_adam_step>(OCTAVO_KIND_ADAM_STEP);

  AdamParameter(const AdamLayout &l, const AdamOptions &o, int64_t rows, int64_t cols,
                int64_t padding)
      : tensors{{l.dtypes[0], rows, cols, padding},
                {l.dtypes[1], rows, cols, padding},
                {l.dtypes[2], rows, cols, padding},
                {l.dtypes[3], rows, cols, padding}},
        scale_invs{} {
    const float spreads[] = {l.is_scaled[0] ? 300.0f : 0.3f, l.is_scaled[1] ? 60.0f : 0.01f,
                             l.is_scaled[2] ? 100.0f : 1e-4f,
                             OCTAVO_DTYPE_BITS(l.dtypes[3]) == 8 ? 60.0f : 1.0f};
    for (unsigned i = 0; i < 4; ++i) tensors[i].fill(i + 1, spreads[i]);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = 0; col < cols; ++col) {
        tensors[2].set(row, col, std::fabs(tensors[2].get(row, col)));
        /* Some elements that never had a gradient. */
        for (Matrix &t : tensors) {
          if (col % 7 == 3 && &t != &tensors[0]) t.set(row, col, 0.0f);
        }
      }
    }
    for (int i = 0; i < 4; ++i) scale_invs[i] = o.scale_invs[i];
    hyper[OCTAVO_HYPER_LR] = 1e-3f;
    hyper[OCTAVO_HYPER_BETA1] = 0.9f;
    hyper[OCTAVO_HYPER_BETA2] = 0.999f;
    hyper[OCTAVO_HYPER_EPS] = o.eps;
    hyper[OCTAVO_HYPER_WEIGHT_DECAY] = o.decay;
    hyper[OCTAVO_HYPER_GRAD_SCALE] = o.gradient_scale;
    item.weight = *tensors[0].tensor();
    item.exp_avg = *tensors[1].tensor();
    item.exp_avg_sq = *tensors[2].tensor();
    item.gradient = *tensors[3].tensor();
    if (l.is_scaled[0]) item.weight_scale_inv = &scale_invs[0];
    if (l.is_scaled[1]) item.exp_avg_scale_inv = &scale_invs[1];
    if (l.is_scaled[2]) item.exp_avg_sq_scale_inv = &scale_invs[2];
    if (OCTAVO_DTYPE_BITS(l.dtypes[3]) == 8) item.gradient_scale_inv = &scale_invs[3];
    item.step = &step;
    item.hyper = hyper;
    c.items = &item;
    c.count = 1;
    c.rule = o.rule;
    c.decay_mode = o.decay_mode;
    c.flags = o.flags;
  }
  AdamParameter(const AdamParameter &) = delete;
  AdamParameter &operator=(const AdamParameter &) = delete;
};

/* What a value becomes, and how. */
struct Stored {
  bool is_scaled;
  bool keeps_positive;
  float scale;
  float value;
  float old;
  float limit; /* of a decay */
  uint32_t rounding;
  uint32_t random;
};

inline uint32_t code_of(uint32_t dtype, const Stored &s) {
  const float scaled = s.is_scaled ? s.value * s.scale : s.value;
  const bool is_random = s.rounding == OCTAVO_ROUND_STOCHASTIC;
  switch (dtype) {
    case OCTAVO_E4M3FN:
      return is_random ? encode_e4m3_random(scaled, s.random) : encode_e4m3(scaled);
    case OCTAVO_E5M2: return is_random ? encode_e5m2_random(scaled, s.random) : encode_e5m2(scaled);
    case OCTAVO_BF16: return is_random ? encode_bf16_random(scaled, s.random) : encode_bf16(scaled);
    case OCTAVO_F16:
      if (s.is_scaled)
        return is_random ? encode_f16_random<kSaturatedF16>(scaled, s.random)
                         : encode_f16_saturating(scaled);
      return is_random ? encode_f16_random<kPlainF16>(scaled, s.random) : encode_f16(scaled);
    default: return static_cast<uint32_t>(float_bits(scaled));
  }
}

/* The value that is stored, written into a matrix. */
inline void store(Matrix *m, int64_t row, int64_t col, const Stored &s) {
  uint32_t code = code_of(m->dtype(), s);
  if (s.rounding == OCTAVO_ROUND_SHRINKING && m->dtype() != OCTAVO_F32 &&
      undoes_decay(decode(m->dtype(), &code) * (1.0f / s.scale), s.value, s.old, s.limit))
    --code;
  if (s.is_scaled && s.keeps_positive && s.value > 0.0f && code == 0) code = 1;
  std::memcpy(m->at(row, col), &code, OCTAVO_DTYPE_BITS(m->dtype()) / 8);
}

}  // namespace octavo::test

#endif
