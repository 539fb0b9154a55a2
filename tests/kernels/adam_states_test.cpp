/* adam_step with states in blocks, against fp64.
 *
 * Old states are read by the oracle of state_oracle.h, so the step is compared from what is stored
 * and not from what was meant.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "octavo/draft/rounding.h"
#include "tests/kernels/adam_blocks.h"
#include "tests/kernels/fake_host.h"
#include "tests/support/draft_calls.h"

namespace octavo::test {
namespace {

/* One step compared with the fp64 oracle, from the stored states. */
void expect_block_step(Kernels *kernels, Blocks *b, const AdamHyper &h) {
  const uint32_t g = b->c.state_granularity;
  const size_t n = static_cast<size_t>(b->weight.rows() * b->weight.cols());
  std::vector<AdamBound> expected;
  for (size_t i = 0; i < n; ++i) {
    /* Moments are dequantized to fp32 before the step. */
    const AdamState old = {
        b->at(b->weight, i),
        static_cast<float>(block_value(g, b->exp_avg.data(), b->exp_avg_inv, i)),
        static_cast<float>(block_value(g, b->exp_avg_sq.data(), b->exp_avg_sq_inv, i))};
    expected.push_back(adam_oracle(h, old, b->at(b->gradient, i), b->step + 1));
  }
  ASSERT_EQ(kernels->adam_step(b->c), OCTAVO_OK) << kernels->host().last_text();
  std::vector<float> exp_avg;
  std::vector<float> exp_avg_sq;
  for (size_t i = 0; i < n; ++i) {
    const AdamBound &e = expected[i];
    /* Reading in fp64 and in long double may round to neighbouring fp32 numbers. */
    const double slack = 4 * 0x1p-24 * (std::abs(e.value.weight) + 8 * h.lr);
    ASSERT_NEAR(b->at(b->weight, i), e.value.weight, e.error.weight + slack) << i;
    exp_avg.push_back(static_cast<float>(e.value.exp_avg));
    exp_avg_sq.push_back(static_cast<float>(e.value.exp_avg_sq));
  }
  /* The stored blocks are those of the new values: off by at most half a unit of the code, which is
   * 2^-4 of a normal code and 2^-10 of a subnormal one, and by what fp32 loses on the way. */
  const auto near = [g, n](const std::vector<float> &values, const Matrix &codes,
                           const std::vector<float> &scales) {
    for (size_t i = 0; i < n; ++i) {
      const float *s = &scales[g == OCTAVO_FLAT_256 ? i / 256 : i / 128 * 3];
      const double k = g == OCTAVO_FLAT_256 ? 1.0 : static_cast<double>(s[1]);
      const double center = g == OCTAVO_FLAT_256 ? 1.0 : static_cast<double>(s[2]);
      const double magnitude = std::abs(static_cast<double>(values[i]));
      const double code = std::pow(magnitude / center, k) / s[0];
      const double half = std::fmax(code * 0x1p-4, 0x1p-10) + code * 1e-5;
      const auto decoded = [&](double c) {
        return std::pow(std::fmax(c, 0) * s[0], 1 / k) * center;
      };
      const double stored = block_value(g, codes.data(), scales, i);
      ASSERT_GE(std::abs(stored), decoded(code - half)) << i << " k " << k << ": " << values[i];
      ASSERT_LE(std::abs(stored), decoded(code + half)) << i << " k " << k << ": " << values[i];
      ASSERT_GE(stored * static_cast<double>(values[i]), 0.0) << i;
    }
  };
  ASSERT_NO_FATAL_FAILURE(near(exp_avg, b->exp_avg, b->exp_avg_inv)) << "exp_avg";
  ASSERT_NO_FATAL_FAILURE(near(exp_avg_sq, b->exp_avg_sq, b->exp_avg_sq_inv)) << "exp_avg_sq";
}

TEST(AdamStates, blocks_follow_the_oracle_for_several_steps) {
  for (const uint32_t g : kStateGroups) {
    for (const bool is_l2 : {false, true}) {
      for (const int64_t cols : {1, 130, 700}) {
        Kernels kernels(2);
        AdamHyper h = kHyper;
        h.is_l2 = is_l2;
        Blocks b(g, 3, cols, h);
        for (unsigned k = 0; k < 4; ++k) {
          b.gradient.fill(10 + k);
          ASSERT_NO_FATAL_FAILURE(expect_block_step(&kernels, &b, h))
              << "granularity " << g << ", 3 x " << cols << ", L2 " << is_l2 << ", step " << k;
        }
        EXPECT_EQ(b.step, 4);
      }
    }
  }
}

TEST(AdamStates, one_moment_may_be_plain_and_the_weight_scaled) {
  for (const uint32_t g : kStateGroups) {
    Kernels kernels;
    Blocks all(g, 3, 200, kHyper);
    Blocks b(g, 3, 200, kHyper);
    Matrix plain(OCTAVO_F32, 3, 200);
    Matrix half(OCTAVO_F16, 3, 200);
    float weight_inv = 0x1p-10f;
    for (int64_t i = 0; i < 600; ++i) {
      plain.set(i / 200, i % 200, 0.0f);
      half.set(i / 200, i % 200, b.weight.get(i / 200, i % 200) * 0x1p10f);
      all.weight.set(i / 200, i % 200, half.get(i / 200, i % 200) * weight_inv);
    }
    b.item.exp_avg = *plain.tensor();
    b.item.exp_avg_scale_inv = nullptr;
    b.item.weight = *half.tensor();
    b.item.weight_scale_inv = &weight_inv;
    b.c.rule = OCTAVO_RULE_MSAMP;
    ASSERT_EQ(kernels.adam_step(b.c), OCTAVO_OK) << kernels.host().last_text();
    ASSERT_EQ(kernels.adam_step(all.c), OCTAVO_OK) << kernels.host().last_text();
    EXPECT_EQ(b.exp_avg_sq.data(), all.exp_avg_sq.data());
    EXPECT_EQ(b.exp_avg_sq_inv, all.exp_avg_sq_inv);
    float amax = 0;
    for (size_t i = 0; i < 600; ++i) amax = std::fmax(amax, std::fabs(all.at(all.weight, i)));
    EXPECT_EQ(weight_inv, 1.0f / floor_to_power_of_two(65504.0f / amax));
    for (size_t i = 0; i < 600; ++i) {
      EXPECT_EQ(plain.get(static_cast<int64_t>(i) / 200, static_cast<int64_t>(i) % 200),
                0.1f * (b.at(b.gradient, i) * 0.5f));
      const float weight = all.at(all.weight, i) / weight_inv;
      EXPECT_EQ(half.get(static_cast<int64_t>(i) / 200, static_cast<int64_t>(i) % 200),
                decode_f16(encode_f16_saturating(weight)));
    }
  }
}

TEST(AdamStates, skip_changes_nothing_and_an_empty_item_only_counts) {
  for (const uint32_t g : kStateGroups) {
    Kernels kernels;
    Blocks b(g, 2, 100, kHyper);
    const Matrix weight = b.weight;
    const Matrix exp_avg = b.exp_avg;
    const float skip = 1.0f;
    b.c.skip = &skip;
    ASSERT_EQ(kernels.adam_step(b.c), OCTAVO_OK);
    EXPECT_EQ(b.weight.data(), weight.data());
    EXPECT_EQ(b.exp_avg.data(), exp_avg.data());
    EXPECT_EQ(b.exp_avg_inv, std::vector<float>(b.exp_avg_inv.size(), 0.0f));
    EXPECT_EQ(b.step, 0);
    b.c.skip = nullptr;
    b.item.weight.rows = b.item.gradient.rows = b.item.exp_avg.rows = b.item.exp_avg_sq.rows = 0;
    ASSERT_EQ(kernels.adam_step(b.c), OCTAVO_OK) << kernels.host().last_text();
    EXPECT_EQ(b.weight.data(), weight.data());
    EXPECT_EQ(b.step, 1);
  }
}

TEST(AdamStates, threads_and_levels_give_equal_bits) {
  for (const uint32_t g : kStateGroups) {
    const auto run = [g](Kernels *kernels, Blocks *b) {
      b->c.flags = OCTAVO_ADAM_KEEP_POSITIVE;
      for (unsigned k = 0; k < 3; ++k) {
        b->gradient.fill(k, std::ldexp(1.0f, -static_cast<int>(k) * 6));
        ASSERT_EQ(kernels->adam_step(b->c), OCTAVO_OK) << g;
      }
    };
    Kernels reference(0, "baseline");
    Blocks expected(g, 33, 511, kHyper);
    run(&reference, &expected);
    for (const std::string &level : supported_levels()) {
      for (const int threads : {1, 2, 5}) {
        Kernels kernels(threads, level);
        Blocks b(g, 33, 511, kHyper);
        run(&kernels, &b);
        EXPECT_EQ(b.weight.data(), expected.weight.data()) << level << " " << threads;
        EXPECT_EQ(b.exp_avg.data(), expected.exp_avg.data()) << level << " " << threads;
        EXPECT_EQ(b.exp_avg_sq.data(), expected.exp_avg_sq.data()) << level << " " << threads;
        EXPECT_EQ(b.exp_avg_inv, expected.exp_avg_inv);
        EXPECT_EQ(b.exp_avg_sq_inv, expected.exp_avg_sq_inv);
      }
    }
  }
}

/* A weight in codes with one scale, as msamp has it, and a gradient in codes or in fp32. */
struct ScaledBlocks {
  Blocks b;
  Matrix weight;
  Matrix gradient;
  float weight_inv = 0x1p-13f;
  float gradient_inv = 0.0123f;

  ScaledBlocks(uint32_t granularity, uint32_t gradient_dtype, uint32_t decay_mode, int64_t cols)
      : b(granularity, 3, cols, kHyper),
        weight(OCTAVO_F16, 3, cols),
        gradient(gradient_dtype, 3, cols) {
    weight.fill(5);
    b.item.weight = *weight.tensor();
    b.item.weight_scale_inv = &weight_inv;
    b.item.gradient = *gradient.tensor();
    if (gradient_dtype == OCTAVO_E4M3FN) b.item.gradient_scale_inv = &gradient_inv;
    b.c.rule = OCTAVO_RULE_MSAMP;
    b.c.decay_mode = decay_mode;
    b.c.flags = OCTAVO_ADAM_KEEP_POSITIVE;
  }

  /* Four steps. Rows without a gradient shrink; fp32 has values whose squares have code 0, or are
   * 0. The last gradient has `special` in it. */
  void run(Kernels *kernels, uint32_t rounding, float special) {
    auto c = make_call<octavo_adam_rounded>(OCTAVO_KIND_ADAM_ROUNDED);
    c.step = &b.c;
    c.exp_avg_rounding = rounding;
    for (unsigned k = 0; k < 4; ++k) {
      gradient.fill(20 + k);
      for (int64_t i = 0; i < gradient.cols(); ++i) {
        if (k > 0) gradient.set(1, i, 0.0f);
        if (gradient.tensor()->dtype == OCTAVO_F32 && i % 5 == 1)
          gradient.set(0, i, i % 2 == 0 ? 1e-12f : 1e-30f);
      }
      if (k == 3) gradient.set(2, gradient.cols() - 1, special);
      ASSERT_EQ(draft_call(kernels->table, kernels->ctx(), &c), OCTAVO_OK)
          << kernels->host().last_text();
    }
  }
};

TEST(AdamStates, a_weight_with_one_scale_has_equal_bits_on_every_level) {
  constexpr uint32_t kModes[] = {OCTAVO_DECAY_DECOUPLED, OCTAVO_DECAY_L2};
  const auto expect = [](uint32_t g, uint32_t dtype, uint32_t mode, uint32_t rounding, int64_t cols,
                         float special) {
    ScaledBlocks expected(g, dtype, mode, cols);
    Kernels reference(0, "baseline");
    ASSERT_NO_FATAL_FAILURE(expected.run(&reference, rounding, special));
    for (const std::string &level : supported_levels()) {
      ScaledBlocks found(g, dtype, mode, cols);
      Kernels kernels(3, level);
      ASSERT_NO_FATAL_FAILURE(found.run(&kernels, rounding, special)) << level;
      ASSERT_EQ(found.weight_inv, expected.weight_inv) << level;
      ASSERT_EQ(found.weight.data(), expected.weight.data()) << level;
      ASSERT_EQ(found.b.exp_avg.data(), expected.b.exp_avg.data()) << level;
      ASSERT_EQ(found.b.exp_avg_inv, expected.b.exp_avg_inv) << level;
      ASSERT_EQ(found.b.exp_avg_sq.data(), expected.b.exp_avg_sq.data()) << level;
      ASSERT_EQ(found.b.exp_avg_sq_inv, expected.b.exp_avg_sq_inv) << level;
    }
  };
  for (const uint32_t g : kStateGroups) {
    for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_F32}) {
      for (const uint32_t mode : kModes) {
        for (const uint32_t rounding :
             {uint32_t{OCTAVO_ROUND_NEAREST_EVEN}, OCTAVO_ROUND_SHRINKING}) {
          for (const int64_t cols : {1, 85, 256, 2731}) {
            for (const float special : {0.5f, std::nanf("")}) {
              ASSERT_NO_FATAL_FAILURE(expect(g, dtype, mode, rounding, cols, special))
                  << "granularity " << g << ", gradient " << dtype << ", decay " << mode
                  << ", rounding " << rounding << ", 3 x " << cols;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test
