/* What adam_step stores of moments: KEEP_POSITIVE, and MS-AMP 0.4.0's moments without the decay.
 *
 * The trap that KEEP_POSITIVE closes is shown here, too: without it one step with gradient 0 moves
 * a weight by thousands of learning rates.
 */
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/adam_blocks.h"
#include "tests/kernels/fake_host.h"

namespace octavo::test {
namespace {

/* How far the weights of small gradients move in one step with gradient 0, after one step in which
 * they shared a block with a gradient of 1. */
float largest_change(Blocks *b) {
  Kernels kernels;
  b->c.decay_mode = OCTAVO_DECAY_DECOUPLED;
  for (int64_t i = 0; i < b->gradient.cols(); ++i) b->gradient.set(0, i, i == 0 ? 2.0f : 0.002f);
  EXPECT_EQ(kernels.adam_step(b->c), OCTAVO_OK) << kernels.host().last_text();
  const Matrix before = b->weight;
  for (int64_t i = 0; i < b->gradient.cols(); ++i) b->gradient.set(0, i, 0.0f);
  EXPECT_EQ(kernels.adam_step(b->c), OCTAVO_OK) << kernels.host().last_text();
  float largest = 0;
  for (int64_t i = 1; i < b->weight.cols(); ++i) {
    largest = std::fmax(largest, std::fabs(b->weight.get(0, i) - before.get(0, i)));
  }
  return largest;
}

/* The v of the small ones is 1e-6 of the block's largest, below half of E4M3's smallest code, while
 * m is 1e-3 of it and stays: m / (sqrt(0) + eps) is then thousands of times the learning rate. */
TEST(AdamMoments, a_second_moment_that_rounds_to_0_blows_up_unless_it_is_kept_positive) {
  AdamHyper h = kHyper;
  h.weight_decay = 0;
  Blocks flat(OCTAVO_FLAT_256, 1, 200, h);
  EXPECT_GT(largest_change(&flat), 1000 * h.lr);
  Blocks kept(OCTAVO_FLAT_256, 1, 200, h);
  kept.c.flags = OCTAVO_ADAM_KEEP_POSITIVE;
  EXPECT_LT(largest_change(&kept), 2 * h.lr);
  Blocks expanded(OCTAVO_EXPANDED_128, 1, 120, h);
  EXPECT_LT(largest_change(&expanded), 2 * h.lr);
}

TEST(AdamMoments, keep_positive_raises_only_what_is_above_0) {
  for (const uint32_t g : kStateGroups) {
    Kernels kernels;
    AdamHyper h = kHyper;
    h.weight_decay = 0;
    h.grad_scale = 1;
    Blocks plain(g, 1, 300, h);
    Blocks kept(g, 1, 300, h);
    kept.c.flags = OCTAVO_ADAM_KEEP_POSITIVE;
    for (Blocks *b : {&plain, &kept}) {
      for (int64_t i = 0; i < 300; ++i) {
        b->gradient.set(0, i, i % 3 == 0 ? 0.0f : std::ldexp(1.0f, -static_cast<int>(i % 20)));
      }
      ASSERT_EQ(kernels.adam_step(b->c), OCTAVO_OK);
    }
    EXPECT_EQ(kept.exp_avg.data(), plain.exp_avg.data()) << "the first moment may be 0";
    EXPECT_EQ(kept.exp_avg_sq_inv, plain.exp_avg_sq_inv);
    EXPECT_EQ(kept.weight.data(), plain.weight.data());
    int raised = 0;
    for (int64_t i = 0; i < 300; ++i) {
      const uint8_t before = plain.exp_avg_sq.code(0, i);
      const uint8_t after = kept.exp_avg_sq.code(0, i);
      if (i % 3 == 0) {
        EXPECT_EQ(after, 0);
      } else {
        EXPECT_EQ(after, before == 0 ? 1 : before);
        raised += before == 0 ? 1 : 0;
      }
    }
    if (g == OCTAVO_FLAT_256) {
      EXPECT_GT(raised, 50);
    } else {
      EXPECT_EQ(raised, 0);
    }
  }
}

/* One scale per tensor, in both formats that a second moment may have; the last case is a value
 * that underflows even before the cast. */
TEST(AdamMoments, keep_positive_holds_for_one_scale_per_tensor) {
  for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16}) {
    for (const bool keeps : {false, true}) {
      Kernels kernels;
      AdamHyper h = kHyper;
      h.grad_scale = 1;
      Blocks b(OCTAVO_FLAT_256, 1, 4, h);
      Matrix v(dtype, 1, 4);
      std::memset(v.at(0, 0), 0, v.data().size());
      float v_inv = 1.0f;
      const float gradients[] = {1.0f, 0x1p-9f, 0x1p-13f, 0.0f};
      for (int64_t i = 0; i < 4; ++i) b.gradient.set(0, i, gradients[i]);
      b.gradient.set(0, 0, 0x1p12f);
      b.item.exp_avg_sq = *v.tensor();
      b.item.exp_avg_sq_scale_inv = &v_inv;
      b.c.state_granularity = OCTAVO_PER_TENSOR;
      b.c.rule = OCTAVO_RULE_MSAMP;
      b.c.flags = keeps ? uint32_t{OCTAVO_ADAM_KEEP_POSITIVE} : 0u;
      ASSERT_EQ(kernels.adam_step(b.c), OCTAVO_OK) << kernels.host().last_text();
      const float smallest = dtype == OCTAVO_E4M3FN ? 0x1p-9f
                             : dtype == OCTAVO_E5M2 ? 0x1p-16f
                                                    : 0x1p-24f;
      EXPECT_GT(v.get(0, 0), 0.0f);
      EXPECT_EQ(v.get(0, 1), keeps ? smallest : 0.0f) << dtype;
      EXPECT_EQ(v.get(0, 2), keeps ? smallest : 0.0f) << dtype;
      EXPECT_EQ(v.get(0, 3), 0.0f) << dtype;
    }
  }
}

TEST(AdamMoments, msamp04_leaves_the_decay_out_of_moments_with_a_scale_only) {
  AdamHyper h = kHyper;
  h.is_l2 = true;
  h.weight_decay = 0.5;
  h.grad_scale = 1;
  Kernels kernels;
  for (const bool is_scaled : {false, true}) {
    Blocks b(OCTAVO_FLAT_256, 1, 64, h);
    Matrix m(is_scaled ? OCTAVO_F16 : OCTAVO_F32, 1, 64);
    Matrix v(OCTAVO_F32, 1, 64);
    for (int64_t i = 0; i < 64; ++i) {
      b.weight.set(0, i, 0.5f * static_cast<float>(1 + i % 3));
      b.gradient.set(0, i, i % 2 == 0 ? 1.0f : -0.125f);
      m.set(0, i, 0.0f);
      v.set(0, i, 0.0f);
    }
    const Matrix before = b.weight;
    float m_inv = 1.0f;
    b.item.exp_avg = *m.tensor();
    b.item.exp_avg_scale_inv = is_scaled ? &m_inv : nullptr;
    b.item.exp_avg_sq = *v.tensor();
    b.item.exp_avg_sq_scale_inv = nullptr;
    b.c.state_granularity = OCTAVO_PER_TENSOR;
    b.c.rule = OCTAVO_RULE_MSAMP;
    b.c.decay_mode = OCTAVO_DECAY_L2_MSAMP04;
    ASSERT_EQ(kernels.adam_step(b.c), OCTAVO_OK) << kernels.host().last_text();
    float amax = 0;
    for (int64_t i = 0; i < 64; ++i) {
      const float raw = b.gradient.get(0, i);
      const float decayed = raw + 0.5f * before.get(0, i);
      const float stored = m.get(0, i) * m_inv;
      EXPECT_NEAR(stored, 0.1 * (is_scaled ? raw : decayed), 1e-4) << i;
      EXPECT_NEAR(v.get(0, i), 0.001 * decayed * decayed, 1e-6) << "plain: with the decay";
      /* In the first step the update is lr * sign of the decayed gradient. */
      const double sign = decayed > 0 ? 1 : -1;
      EXPECT_NEAR(b.weight.get(0, i), before.get(0, i) - h.lr * sign, 2e-6) << i;
      amax = std::fmax(amax, std::fabs(0.1f * decayed));
    }
    if (is_scaled) {
      EXPECT_EQ(m_inv, 1.0f / floor_to_power_of_two(65504.0f / amax)) << "amax with the decay";
    }
  }
}

}  // namespace
}  // namespace octavo::test
