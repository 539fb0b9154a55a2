/* adam_step: plain and scaled tensors against an fp64 oracle, decay modes, skip, threads.
 *
 * A stored code must be the one of some value within the oracle's bound, so only rounding ties may
 * fall either way.
 */
#include <gtest/gtest.h>

#include <string>

#include "kernels/format/scale_rules.h"
#include "octavo/draft/optimizer.h"
#include "tests/kernels/adam_oracle.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {
namespace {

/* The dtypes of weight, gradient, first and second moment, and which of them are scaled. */
struct Layout {
  const char *name;
  uint32_t weight;
  uint32_t gradient;
  uint32_t exp_avg;
  uint32_t exp_avg_sq;
  bool is_scaled;
};

constexpr Layout kPlainF32 = {"f32", OCTAVO_F32, OCTAVO_F32, OCTAVO_F32, OCTAVO_F32, false};
constexpr Layout kPlainMixed = {"mixed", OCTAVO_BF16, OCTAVO_F16, OCTAVO_F32, OCTAVO_BF16, false};
constexpr Layout kScaled = {"scaled", OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_F16, true};

constexpr AdamHyper kHyper = {1e-3, 0.9, 0.999, 1e-8, 0.01, 0.5, false};

/* One parameter with its states and everything an item points to. */
struct Parameter {
  Matrix weight;
  Matrix gradient;
  Matrix exp_avg;
  Matrix exp_avg_sq;
  float weight_inv = 0.001f;
  float gradient_inv = 0.02f;
  float exp_avg_inv = 0.0004f;
  float exp_avg_sq_inv = 0x1p-20f;
  int32_t step = 4;
  float hyper[OCTAVO_HYPER_COUNT] = {};
  octavo_adam_item item = {};
  octavo_adam_step c = make_call<octavo_adam_step>(OCTAVO_KIND_ADAM_STEP);

  Parameter(const Layout &l, const AdamHyper &h, int64_t rows = 9, int64_t cols = 700)
      : weight(l.weight, rows, cols, 1),
        gradient(l.gradient, rows, cols, 2),
        exp_avg(l.exp_avg, rows, cols, 3),
        exp_avg_sq(l.exp_avg_sq, rows, cols, 4) {
    weight.fill(1, l.is_scaled ? 300.0f : 1.0f);
    gradient.fill(2, l.is_scaled ? 50.0f : 1.0f);
    exp_avg.fill(3, l.is_scaled ? 50.0f : 0.1f);
    exp_avg_sq.fill(4, l.is_scaled ? 500.0f : 0.01f);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = 0; col < cols; ++col) {
        exp_avg_sq.set(row, col, std::fabs(exp_avg_sq.get(row, col)));
      }
    }
    const double values[] = {h.lr, h.beta1, h.beta2, h.eps, h.weight_decay, h.grad_scale};
    for (int i = 0; i < 6; ++i) hyper[i] = static_cast<float>(values[i]);
    item.weight = *weight.tensor();
    item.gradient = *gradient.tensor();
    item.exp_avg = *exp_avg.tensor();
    item.exp_avg_sq = *exp_avg_sq.tensor();
    item.step = &step;
    item.hyper = hyper;
    if (l.is_scaled) {
      item.weight_scale_inv = &weight_inv;
      item.gradient_scale_inv = &gradient_inv;
      item.exp_avg_scale_inv = &exp_avg_inv;
      item.exp_avg_sq_scale_inv = &exp_avg_sq_inv;
    }
    c.items = &item;
    c.count = 1;
    c.rule = OCTAVO_RULE_POW2;
    c.decay_mode = h.is_l2 ? 1 : 0;
  }
  Parameter(const Parameter &) = delete;
  Parameter &operator=(const Parameter &) = delete;
};

/* Whether `stored` is the rounding of a number in [value - error, value + error]. */
bool is_rounding_of(const Matrix &m, int64_t row, int64_t col, bool is_scaled, float scale,
                    double value, double error) {
  Matrix low(m.dtype(), 1, 1);
  Matrix high(m.dtype(), 1, 1);
  const auto store = [&](Matrix *to, double v) {
    const float scaled = static_cast<float>(v * scale);
    if (is_scaled && m.dtype() == OCTAVO_F16) {
      const uint16_t code = encode_f16_saturating(scaled);
      std::memcpy(to->at(0, 0), &code, sizeof(code));
    } else {
      to->set(0, 0, scaled);
    }
  };
  /* The conversion to fp32 above and the kernel's product with the scale: one rounding each. */
  const double wide = error + std::abs(value) * 2 * 0x1p-24;
  store(&low, value - wide);
  store(&high, value + wide);
  const float found = m.get(row, col);
  return found >= low.get(0, 0) && found <= high.get(0, 0);
}

void expect_step(const Layout &l, AdamHyper h) {
  Kernels kernels(2);
  Parameter p(l, h);
  if (l.is_scaled) { /* 1 - beta is taken of the fp32 number, see kernels/format/adam.h */
    h.beta1 = static_cast<float>(h.beta1);
    h.beta2 = static_cast<float>(h.beta2);
  }
  const Matrix weight = p.weight;
  const Matrix exp_avg = p.exp_avg;
  const Matrix exp_avg_sq = p.exp_avg_sq;
  const float inverses[] = {p.weight_inv, p.exp_avg_inv, p.exp_avg_sq_inv};
  ASSERT_EQ(kernels.adam_step(p.c), OCTAVO_OK) << kernels.host().last_text();
  EXPECT_EQ(p.step, 5);

  std::vector<AdamBound> expected;
  AdamState amax = {};
  for (int64_t row = 0; row < weight.rows(); ++row) {
    for (int64_t col = 0; col < weight.cols(); ++col) {
      AdamState old = {weight.get(row, col), exp_avg.get(row, col), exp_avg_sq.get(row, col)};
      double g = p.gradient.get(row, col);
      if (l.is_scaled) {
        /* Dequantized to fp32, as the contract says. */
        old = {weight.get(row, col) * inverses[0], exp_avg.get(row, col) * inverses[1],
               exp_avg_sq.get(row, col) * inverses[2]};
        g = p.gradient.get(row, col) * p.gradient_inv;
      }
      expected.push_back(adam_oracle(h, old, g, 5));
      amax.weight = std::fmax(amax.weight, std::abs(expected.back().value.weight));
      amax.exp_avg = std::fmax(amax.exp_avg, std::abs(expected.back().value.exp_avg));
      amax.exp_avg_sq = std::fmax(amax.exp_avg_sq, expected.back().value.exp_avg_sq);
    }
  }
  float scales[] = {1.0f, 1.0f, 1.0f};
  if (l.is_scaled) {
    scales[0] = floor_to_power_of_two(static_cast<float>(65504.0 / amax.weight));
    scales[1] = floor_to_power_of_two(static_cast<float>(448.0 / amax.exp_avg));
    scales[2] = floor_to_power_of_two(static_cast<float>(65504.0 / amax.exp_avg_sq));
    EXPECT_EQ(p.weight_inv, 1.0f / scales[0]);
    EXPECT_EQ(p.exp_avg_inv, 1.0f / scales[1]);
    EXPECT_EQ(p.exp_avg_sq_inv, 1.0f / scales[2]);
  }
  size_t i = 0;
  for (int64_t row = 0; row < weight.rows(); ++row) {
    for (int64_t col = 0; col < weight.cols(); ++col, ++i) {
      const AdamBound &b = expected[i];
      ASSERT_TRUE(is_rounding_of(p.weight, row, col, l.is_scaled, scales[0], b.value.weight,
                                 b.error.weight))
          << row << ", " << col << ": " << p.weight.get(row, col) << ", " << b.value.weight;
      ASSERT_TRUE(is_rounding_of(p.exp_avg, row, col, l.is_scaled, scales[1], b.value.exp_avg,
                                 b.error.exp_avg))
          << row << ", " << col << ": " << p.exp_avg.get(row, col) << ", " << b.value.exp_avg;
      ASSERT_TRUE(is_rounding_of(p.exp_avg_sq, row, col, l.is_scaled, scales[2], b.value.exp_avg_sq,
                                 b.error.exp_avg_sq))
          << row << ", " << col << ": " << p.exp_avg_sq.get(row, col) << ", " << b.value.exp_avg_sq;
    }
  }
}

TEST(Adam, every_layout_and_decay_is_within_the_derived_bound) {
  for (const Layout &l : {kPlainF32, kPlainMixed, kScaled}) {
    for (const bool is_l2 : {false, true}) {
      for (const double decay : {0.0, 0.1}) {
        AdamHyper h = kHyper;
        h.is_l2 = is_l2;
        h.weight_decay = decay;
        ASSERT_NO_FATAL_FAILURE(expect_step(l, h)) << l.name << " L2 " << is_l2 << " " << decay;
      }
    }
  }
}

TEST(Adam, skip_changes_nothing_at_all) {
  Kernels kernels;
  for (const Layout &l : {kPlainF32, kScaled}) {
    Parameter p(l, kHyper);
    const Matrix weight = p.weight;
    const Matrix exp_avg = p.exp_avg;
    const Matrix exp_avg_sq = p.exp_avg_sq;
    float skip = 1.0f;
    p.c.skip = &skip;
    ASSERT_EQ(kernels.adam_step(p.c), OCTAVO_OK);
    EXPECT_EQ(p.weight.data(), weight.data());
    EXPECT_EQ(p.exp_avg.data(), exp_avg.data());
    EXPECT_EQ(p.exp_avg_sq.data(), exp_avg_sq.data());
    EXPECT_EQ(p.step, 4);
    EXPECT_EQ(p.weight_inv, 0.001f);
    skip = 0.0f;
    ASSERT_EQ(kernels.adam_step(p.c), OCTAVO_OK);
    EXPECT_EQ(p.step, 5);
    EXPECT_NE(p.weight.data(), weight.data());
  }
}

TEST(Adam, all_zero_states_keep_scale_1_and_make_no_nan) {
  Kernels kernels;
  Parameter p(kScaled, kHyper, 2, 3);
  for (Matrix *m : {&p.gradient, &p.exp_avg, &p.exp_avg_sq}) {
    for (int64_t row = 0; row < 2; ++row) {
      for (int64_t col = 0; col < 3; ++col) m->set(row, col, 0.0f);
    }
  }
  ASSERT_EQ(kernels.adam_step(p.c), OCTAVO_OK);
  EXPECT_EQ(p.exp_avg_inv, 1.0f);
  EXPECT_EQ(p.exp_avg_sq_inv, 1.0f);
  EXPECT_EQ(p.exp_avg.code(0, 0), 0);
  EXPECT_TRUE(std::isfinite(p.weight.get(1, 2)));
}

TEST(Adam, threads_and_levels_give_equal_bits) {
  for (const Layout &l : {kPlainF32, kScaled}) {
    Kernels reference(0, "baseline");
    Parameter expected(l, kHyper, 65, 700);
    ASSERT_EQ(reference.adam_step(expected.c), OCTAVO_OK);
    for (const std::string &level : supported_levels()) {
      for (const int threads : {1, 2, 5}) {
        Kernels kernels(threads, level);
        Parameter p(l, kHyper, 65, 700);
        ASSERT_EQ(kernels.adam_step(p.c), OCTAVO_OK);
        EXPECT_EQ(p.weight.data(), expected.weight.data()) << level << " " << threads;
        EXPECT_EQ(p.exp_avg.data(), expected.exp_avg.data()) << level << " " << threads;
        EXPECT_EQ(p.exp_avg_sq.data(), expected.exp_avg_sq.data()) << level << " " << threads;
        EXPECT_EQ(p.weight_inv, expected.weight_inv);
      }
    }
  }
}

TEST(Adam, several_items_in_one_call_step_each_by_its_own_count) {
  Kernels kernels;
  Parameter one(kPlainF32, kHyper, 1, 5);
  Parameter two(kScaled, kHyper, 3, 40);
  Parameter alone(kScaled, kHyper, 3, 40);
  two.step = alone.step = 0;
  ASSERT_EQ(kernels.adam_step(alone.c), OCTAVO_OK);
  const octavo_adam_item items[] = {one.item, two.item};
  octavo_adam_step c = one.c;
  c.items = items;
  c.count = 2;
  ASSERT_EQ(kernels.adam_step(c), OCTAVO_OK);
  EXPECT_EQ(one.step, 5);
  EXPECT_EQ(two.step, 1);
  EXPECT_EQ(two.weight.data(), alone.weight.data());
}

}  // namespace
}  // namespace octavo::test
