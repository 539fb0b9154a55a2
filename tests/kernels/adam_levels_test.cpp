/* adam_step of every level against adam_element of kernels/format, bit for bit.
 *
 * The expected tensors are made here element by element: decode, adam_element, the largest new
 * value, the rule, encode. Only NaN may differ in its sign and payload: which of two NaN an
 * addition passes on is the compiler's choice.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "kernels/format/scale_rules.h"
#include "tests/kernels/adam_case.h"
#include "tests/support/draft_calls.h"

namespace octavo::test {
namespace {

using Layout = AdamLayout;
using Options = AdamOptions;
using Parameter = AdamParameter;

constexpr const AdamLayout (&kLayouts)[std::size(kAdamLayouts)] = kAdamLayouts;
constexpr int64_t kSizes[] = {1, 15, 17, 63, 65, 217, 4097};

/* adam_step, or the draft call where a tensor is rounded in another way. */
octavo_status run_step(Kernels *kernels, const Options &o, const octavo_adam_step &step) {
  auto c = make_call<octavo_adam_rounded>(OCTAVO_KIND_ADAM_ROUNDED);
  c.step = &step;
  c.keys = &kKey;
  c.weight_rounding = o.rounding[0];
  c.exp_avg_rounding = o.rounding[1];
  c.exp_avg_sq_rounding = o.rounding[2];
  const bool is_plain = o.rounding[0] + o.rounding[1] + o.rounding[2] == 0;
  return is_plain ? kernels->adam_step(step) : draft_call(kernels->table, kernels->ctx(), &c);
}

/* The step as the contract states it, one element after the other. */
void step_by_element(const Layout &l, const Options &o, Parameter *p) {
  const AdamBetas betas =
      l.is_scaled[1] || l.is_scaled[2] ? AdamBetas::kSingle : AdamBetas::kDecimal;
  const AdamFactors f =
      adam_factors(p->hyper, p->step + 1, o.decay_mode != OCTAVO_DECAY_DECOUPLED, betas);
  const bool undecayed = o.decay_mode == OCTAVO_DECAY_L2_MSAMP04;
  std::vector<AdamElement> all;
  std::vector<float> old_exp_avg;
  float amax[3] = {};
  for (int64_t row = 0; row < p->tensors[0].rows(); ++row) {
    for (int64_t col = 0; col < p->tensors[0].cols(); ++col) {
      float old[4];
      for (int i = 0; i < 4; ++i) {
        const bool is_scaled = i < 3 ? l.is_scaled[i] : p->item.gradient_scale_inv != nullptr;
        old[i] = p->tensors[i].get(row, col) * (is_scaled ? p->scale_invs[i] : 1.0f);
      }
      const float g = old[3] * o.gradient_scale;
      const AdamElement before = {old[0], old[1], old[2]};
      old_exp_avg.push_back(old[1]);
      AdamElement e = adam_element(f, before, g);
      const float values[] = {e.weight, e.exp_avg, e.exp_avg_sq};
      for (int i = 0; i < 3; ++i) amax[i] = std::fmax(amax[i], std::fabs(values[i]));
      const AdamMoments raw = adam_moments(f, before, g);
      if (undecayed && l.is_scaled[1]) e.exp_avg = raw.exp_avg;
      if (undecayed && l.is_scaled[2]) e.exp_avg_sq = raw.exp_avg_sq;
      all.push_back(e);
    }
  }
  float scales[3] = {1.0f, 1.0f, 1.0f};
  for (int i = 0; i < 3; ++i) {
    const uint32_t dtype = l.dtypes[i];
    const float largest = dtype == OCTAVO_F16      ? kMaxF16
                          : dtype == OCTAVO_E4M3FN ? kMaxE4m3
                                                   : kMaxE5m2;
    if (!l.is_scaled[i]) continue;
    scales[i] = scale_by_rule(o.rule, amax[i], 1.0f, largest, 0);
    p->scale_invs[i] = 1.0f / scales[i];
  }
  size_t k = 0;
  const bool keeps = (o.flags & OCTAVO_ADAM_KEEP_POSITIVE) != 0;
  for (int64_t row = 0; row < p->tensors[0].rows(); ++row) {
    for (int64_t col = 0; col < p->tensors[0].cols(); ++col, ++k) {
      const float values[] = {all[k].weight, all[k].exp_avg, all[k].exp_avg_sq};
      for (int i = 0; i < 3; ++i) {
        const RandomKey key = random_key(kKey, p->step + 1, static_cast<uint32_t>(i));
        store(&p->tensors[i], row, col,
              {l.is_scaled[i], keeps && i == 2, scales[i], values[i], old_exp_avg[k],
               decay_limit(f.beta1), o.rounding[i], random_bits(key, k)});
      }
    }
  }
}

template <typename Prepare>
void expect_rounded(const Layout &l, const Options &o, int64_t rows, int64_t cols, int64_t padding,
                    Prepare &&prepare) {
  Parameter expected(l, o, rows, cols, padding);
  prepare(&expected);
  step_by_element(l, o, &expected);
  for (const std::string &level : supported_levels()) {
    for (const int threads : {1, 3}) {
      Kernels kernels(threads, level);
      Parameter p(l, o, rows, cols, padding);
      prepare(&p);
      ASSERT_EQ(run_step(&kernels, o, p.c), OCTAVO_OK) << kernels.host().last_text();
      for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(p.scale_invs[i], expected.scale_invs[i])
            << l.name << " " << level << ", scale of tensor " << i << ", " << rows << " x " << cols;
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t col = 0; col < cols + padding; ++col) {
            const float found = p.tensors[i].get(row, col);
            const float wanted = expected.tensors[i].get(row, col);
            ASSERT_TRUE(same_value(found, wanted))
                << l.name << " " << level << ", tensor " << i << " at " << row << ", " << col
                << " of " << cols << ": " << found << ", expected " << wanted;
          }
        }
      }
    }
  }
}

/* With every rounding. */
template <typename Prepare>
void expect_equal(const Layout &l, Options o, int64_t rows, int64_t cols, int64_t padding,
                  Prepare &&prepare) {
  constexpr uint32_t kRandom = OCTAVO_ROUND_STOCHASTIC;
  constexpr uint32_t kRoundings[][3] = {
      {}, {0, OCTAVO_ROUND_SHRINKING, 0}, {kRandom, kRandom, kRandom}};
  for (const auto &rounding : kRoundings) {
    std::memcpy(o.rounding, rounding, sizeof(rounding));
    ASSERT_NO_FATAL_FAILURE(expect_rounded(l, o, rows, cols, padding, prepare)) << rounding[1];
  }
}

const auto kAsIs = [](Parameter *) {};

TEST(AdamLevels, every_layout_and_size_has_the_bits_of_the_format) {
  for (const Layout &l : kLayouts) {
    for (const int64_t cols : kSizes) {
      ASSERT_NO_FATAL_FAILURE(expect_equal(l, {}, 1, cols, 0, kAsIs));
    }
    ASSERT_NO_FATAL_FAILURE(expect_equal(l, {}, 5, 217, 0, kAsIs));
    ASSERT_NO_FATAL_FAILURE(expect_equal(l, {}, 5, 530, 3, kAsIs)) << "rows with padding";
  }
}

TEST(AdamLevels, every_mode_has_the_bits_of_the_format) {
  for (const Layout &l : kLayouts) {
    for (const uint32_t mode : std::initializer_list<uint32_t>{
             OCTAVO_DECAY_DECOUPLED, OCTAVO_DECAY_L2, OCTAVO_DECAY_L2_MSAMP04}) {
      for (const uint32_t rule : {OCTAVO_RULE_POW2, OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_RECIPROCAL}) {
        Options o;
        o.rule = rule;
        o.decay_mode = mode;
        o.flags = rule == OCTAVO_RULE_POW2 ? 0u : uint32_t{OCTAVO_ADAM_KEEP_POSITIVE};
        o.gradient_scale = 0.37f;
        ASSERT_NO_FATAL_FAILURE(expect_equal(l, o, 3, 700, 0, kAsIs)) << mode << " " << rule;
        const float odd[] = {0.0011f, 0.00021f, 7.3e-7f, 0.017f}; /* no powers of two */
        std::memcpy(o.scale_invs, odd, sizeof(odd));
        ASSERT_NO_FATAL_FAILURE(expect_equal(l, o, 3, 700, 0, kAsIs)) << mode << " " << rule;
      }
    }
  }
}

/* Scales at the ends of fp32, where products with a scale are not exact, and an eps of 0. */
TEST(AdamLevels, extreme_scales_and_eps_have_the_bits_of_the_format) {
  for (const Layout &l : kLayouts) {
    for (const float scale_inv : {0x1p-140f, 0x1p-100f, 0x1p-59f, 0x1p50f, 0x1p90f}) {
      for (const float eps : {0.0f, 1e-30f, 0x1p30f}) {
        Options o;
        o.eps = eps;
        for (float &inv : o.scale_invs) inv = scale_inv;
        ASSERT_NO_FATAL_FAILURE(expect_equal(l, o, 1, 300, 0, kAsIs)) << scale_inv << " " << eps;
      }
    }
  }
}

TEST(AdamLevels, nan_infinity_and_subnormals_have_the_bits_of_the_format) {
  const float specials[] = {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            -0.0f,
                            1e-41f,
                            std::numeric_limits<float>::max()};
  for (const Layout &l : kLayouts) {
    for (int which = 0; which < 4; ++which) {
      for (const float special : specials) {
        for (const int64_t at : {0, 77, 299}) {
          ASSERT_NO_FATAL_FAILURE(expect_equal(
              l, {}, 1, 300, 0, [&](Parameter *p) { p->tensors[which].set(0, at, special); }))
              << special << " in tensor " << which << " at " << at;
        }
      }
    }
  }
}

/* A second moment below 0, which no step writes: its root is NaN. */
TEST(AdamLevels, a_negative_second_moment_has_the_bits_of_the_format) {
  for (const Layout &l : kLayouts) {
    ASSERT_NO_FATAL_FAILURE(
        expect_equal(l, {}, 1, 300, 0, [](Parameter *p) { p->tensors[2].set(0, 100, -50.0f); }));
  }
}

/* 1e-45 next to 1e5, whose scale makes 0 of it. */
TEST(AdamLevels, a_second_moment_is_raised_where_its_scaled_value_is_0) {
  for (const Layout &l : kLayouts) {
    ASSERT_NO_FATAL_FAILURE(expect_equal(l, {}, 1, 300, 0, [&](Parameter *p) {
      p->tensors[2].set(0, 3, 0.0f);
      p->tensors[3].set(0, 3, 1.2e-21f);
      p->tensors[3].set(0, 200, l.dtypes[3] == OCTAVO_F32 ? 1e4f : 400.0f);
    }));
  }
}

/* The largest new weight is found by a test that leaves most elements out: weights that all come
 * close to it, rise, or are moved to it by their own change. */
TEST(AdamLevels, the_largest_weight_is_found_wherever_it_is) {
  for (const Layout &l : kLayouts) {
    if (!l.is_scaled[0]) continue;
    Options o;
    o.rule = OCTAVO_RULE_QUOTIENT; /* the scale shows every bit of the largest value */
    ASSERT_NO_FATAL_FAILURE(expect_equal(l, o, 1, 1500, 0, [](Parameter *p) {
      for (int64_t i = 0; i < 1500; ++i) p->tensors[0].set(0, i, i % 2 == 0 ? 1024.0f : -1024.0f);
    }));
    ASSERT_NO_FATAL_FAILURE(expect_equal(l, o, 1, 1500, 0, [](Parameter *p) {
      for (int64_t i = 0; i < 1500; ++i) p->tensors[0].set(0, i, static_cast<float>(i));
    }));
    for (const int64_t at : {0, 63, 64, 700, 1499}) {
      ASSERT_NO_FATAL_FAILURE(expect_equal(l, o, 1, 1500, 0, [at](Parameter *p) {
        for (int64_t i = 0; i < 1500; ++i) p->tensors[0].set(0, i, 1000.0f);
        for (int i = 1; i < 4; ++i) p->tensors[i].set(0, at, i == 2 ? 0.0f : -1.0f);
      })) << at;
    }
  }
}

}  // namespace
}  // namespace octavo::test
