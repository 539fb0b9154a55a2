/* adam_one_pass of every level against one_pass.h and adam_element of kernels/format, bit for bit,
 * over several steps; and that no value leaves the range of its codes.
 *
 * The expected step measures the old tensors anew each time, so equal bits show that the amaxes
 * that the call keeps are those of what is stored.
 */
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "kernels/format/one_pass.h"
#include "kernels/format/scale_rules.h"
#include "octavo/draft/one_pass.h"
#include "tests/kernels/adam_case.h"
#include "tests/support/draft_calls.h"

namespace octavo::test {
namespace {

constexpr int kSteps = 3;

float largest_of_codes(uint32_t dtype) {
  return dtype == OCTAVO_F16 ? kMaxF16 : dtype == OCTAVO_E4M3FN ? kMaxE4m3 : kMaxE5m2;
}

/* One element after the other; *range: the largest share of the codes' range that a new value
 * takes. */
void step_by_element(const AdamLayout &l, const AdamOptions &o, AdamParameter *p, float *range) {
  const bool has_scaled_moment = l.is_scaled[1] || l.is_scaled[2];
  AdamFactors f = adam_factors(p->hyper, p->step + 1, o.decay_mode != OCTAVO_DECAY_DECOUPLED,
                               has_scaled_moment ? AdamBetas::kSingle : AdamBetas::kDecimal);
  if (l.is_scaled[0]) f.ratio_limit = adam_ratio_limit(f);
  float factors[4];
  for (int i = 0; i < 4; ++i) {
    const bool is_scaled = i < 3 ? l.is_scaled[i] : p->item.gradient_scale_inv != nullptr;
    factors[i] = is_scaled ? p->scale_invs[i] : 1.0f;
  }
  const AdamElement bounds =
      adam_bounds(f, {amax_of(p->tensors[0], factors[0]), amax_of(p->tensors[1], factors[1]),
                      amax_of(p->tensors[2], factors[2]),
                      std::fabs(amax_of(p->tensors[3], 1.0f) * factors[3] * o.gradient_scale)});
  const float bound[] = {bounds.weight, bounds.exp_avg, bounds.exp_avg_sq};
  float scales[3] = {1.0f, 1.0f, 1.0f};
  for (int i = 0; i < 3; ++i) {
    if (!l.is_scaled[i]) continue;
    scales[i] = scale_by_rule(o.rule, bound[i], 1.0f, largest_of_codes(l.dtypes[i]), 0);
    p->scale_invs[i] = 1.0f / scales[i];
  }
  uint64_t k = 0;
  for (int64_t row = 0; row < p->tensors[0].rows(); ++row) {
    for (int64_t col = 0; col < p->tensors[0].cols(); ++col, ++k) {
      float old[4];
      for (int i = 0; i < 4; ++i) old[i] = p->tensors[i].get(row, col) * factors[i];
      const AdamElement before = {old[0], old[1], old[2]};
      const float g = old[3] * o.gradient_scale;
      const AdamElement e = adam_element(f, before, g);
      const AdamMoments raw = adam_moments(f, before, g);
      const bool undecayed = o.decay_mode == OCTAVO_DECAY_L2_MSAMP04;
      const float values[] = {e.weight, undecayed && l.is_scaled[1] ? raw.exp_avg : e.exp_avg,
                              undecayed && l.is_scaled[2] ? raw.exp_avg_sq : e.exp_avg_sq};
      for (int i = 0; i < 3; ++i) {
        const RandomKey key = random_key(kKey, p->step + 1, static_cast<uint32_t>(i));
        if (l.is_scaled[i])
          *range =
              std::fmax(*range, std::fabs(values[i] * scales[i]) / largest_of_codes(l.dtypes[i]));
        store(&p->tensors[i], row, col,
              {l.is_scaled[i], (o.flags & OCTAVO_ADAM_KEEP_POSITIVE) != 0 && i == 2, scales[i],
               values[i], old[1], decay_limit(f.beta1), o.rounding[i], random_bits(key, k)});
      }
    }
  }
  ++p->step;
}

octavo_status run_step(Kernels *kernels, const AdamOptions &o, const octavo_adam_step &step,
                       float *amax) {
  auto rounded = make_call<octavo_adam_rounded>(OCTAVO_KIND_ADAM_ROUNDED);
  rounded.step = &step;
  rounded.keys = &kKey;
  rounded.weight_rounding = o.rounding[0];
  rounded.exp_avg_rounding = o.rounding[1];
  rounded.exp_avg_sq_rounding = o.rounding[2];
  auto c = make_call<octavo_adam_one_pass>(OCTAVO_KIND_ADAM_ONE_PASS);
  c.rounded = &rounded;
  c.amax = &amax;
  return draft_call(kernels->table, kernels->ctx(), &c);
}

void expect_tensors(const std::string &where, const AdamParameter &found,
                    const AdamParameter &expected) {
  ASSERT_EQ(found.step, expected.step) << where;
  for (unsigned i = 0; i < 3; ++i) {
    ASSERT_EQ(found.scale_invs[i], expected.scale_invs[i]) << where << ", scale of tensor " << i;
    const Matrix &tensor = expected.tensors[i];
    for (int64_t row = 0; row < tensor.rows(); ++row) {
      for (int64_t col = 0; col < tensor.cols(); ++col) {
        const float value = found.tensors[i].get(row, col);
        ASSERT_TRUE(same_value(value, tensor.get(row, col)))
            << where << ", tensor " << i << " at " << row << ", " << col << ": " << value
            << ", expected " << tensor.get(row, col);
      }
    }
  }
}

template <typename Prepare>
void expect_equal(const AdamLayout &l, AdamOptions o, int64_t rows, int64_t cols, int64_t padding,
                  Prepare &&prepare, float *range = nullptr) {
  constexpr uint32_t kRandom = OCTAVO_ROUND_STOCHASTIC;
  constexpr uint32_t kRoundings[][3] = {
      {}, {0, OCTAVO_ROUND_SHRINKING, 0}, {kRandom, kRandom, kRandom}};
  float ignored = 0.0f;
  for (const auto &rounding : kRoundings) {
    std::memcpy(o.rounding, rounding, sizeof(rounding));
    AdamParameter expected(l, o, rows, cols, padding);
    prepare(&expected);
    std::vector<std::unique_ptr<Kernels>> kernels;
    std::vector<std::unique_ptr<AdamParameter>> all;
    std::vector<std::vector<float>> amaxes;
    std::vector<std::string> names;
    for (const std::string &level : supported_levels()) {
      for (const int threads : {1, 3}) {
        kernels.push_back(std::make_unique<Kernels>(threads, level));
        all.push_back(std::make_unique<AdamParameter>(l, o, rows, cols, padding));
        prepare(all.back().get());
        amaxes.emplace_back(OCTAVO_AMAX_COUNT, 0.0f);
        names.push_back(level + " " + std::to_string(threads));
      }
    }
    for (int step = 0; step < kSteps; ++step) {
      step_by_element(l, o, &expected, range == nullptr ? &ignored : range);
      for (size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(run_step(kernels[i].get(), o, all[i]->c, amaxes[i].data()), OCTAVO_OK)
            << kernels[i]->host().last_text();
        const std::string where = std::string(l.name) + " " + names[i] + ", step " +
                                  std::to_string(step) + ", rounding " +
                                  std::to_string(rounding[1]) + ", columns " + std::to_string(cols);
        ASSERT_NO_FATAL_FAILURE(expect_tensors(where, *all[i], expected));
        for (unsigned k = 0; k < 3; ++k) {
          ASSERT_EQ(amaxes[i][k],
                    l.is_scaled[k] ? amax_of(expected.tensors[k], expected.scale_invs[k]) : 0.0f)
              << where << ", amax " << k;
        }
        ASSERT_EQ(amaxes[i], amaxes[0]) << where;
      }
    }
  }
}

const auto kAsIs = [](AdamParameter *) {};

TEST(AdamOnePass, every_layout_and_size_has_the_bits_of_the_format) {
  for (const AdamLayout &l : kAdamLayouts) {
    for (const int64_t cols : {1, 15, 17, 63, 65, 217, 4097})
      ASSERT_NO_FATAL_FAILURE(expect_equal(l, {}, 1, cols, 0, kAsIs));
    ASSERT_NO_FATAL_FAILURE(expect_equal(l, {}, 5, 217, 0, kAsIs));
    ASSERT_NO_FATAL_FAILURE(expect_equal(l, {}, 5, 530, 3, kAsIs)) << "rows with padding";
  }
}

TEST(AdamOnePass, every_mode_and_rule_has_the_bits_of_the_format) {
  for (const AdamLayout &l : kAdamLayouts) {
    for (const uint32_t mode : std::initializer_list<uint32_t>{
             OCTAVO_DECAY_DECOUPLED, OCTAVO_DECAY_L2, OCTAVO_DECAY_L2_MSAMP04}) {
      for (const uint32_t rule : {OCTAVO_RULE_MSAMP, OCTAVO_RULE_POW2, OCTAVO_RULE_QUOTIENT}) {
        AdamOptions o;
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

TEST(AdamOnePass, extreme_scales_and_eps_have_the_bits_of_the_format) {
  for (const AdamLayout &l : kAdamLayouts) {
    for (const float scale_inv : {0x1p-140f, 0x1p-100f, 0x1p-59f, 0x1p50f, 0x1p90f}) {
      for (const float eps : {0.0f, 1e-30f, 0x1p30f}) {
        AdamOptions o;
        o.eps = eps;
        for (float &inv : o.scale_invs) inv = scale_inv;
        ASSERT_NO_FATAL_FAILURE(expect_equal(l, o, 1, 300, 0, kAsIs)) << scale_inv << " " << eps;
      }
    }
  }
}

TEST(AdamOnePass, nan_infinity_and_subnormals_have_the_bits_of_the_format) {
  const float specials[] = {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            -0.0f,
                            1e-41f,
                            -50.0f,
                            std::numeric_limits<float>::max()};
  for (const AdamLayout &l : kAdamLayouts) {
    for (int which = 0; which < 4; ++which) {
      for (const float special : specials) {
        ASSERT_NO_FATAL_FAILURE(expect_equal(
            l, {}, 1, 300, 0, [&](AdamParameter *p) { p->tensors[which].set(0, 77, special); }))
            << special << " in tensor " << which;
      }
    }
  }
}

/* The rule may put the bound up to two roundings above the largest code, which it rounds to. */
TEST(AdamOnePass, no_value_leaves_the_range) {
  float range = 0.0f;
  for (const AdamLayout &l : kAdamLayouts) {
    for (unsigned round = 0; round < 40; ++round) {
      AdamOptions o;
      o.rule = round % 2 == 0 ? OCTAVO_RULE_MSAMP : OCTAVO_RULE_QUOTIENT;
      o.decay_mode = round % 3 == 0 ? OCTAVO_DECAY_L2 : OCTAVO_DECAY_DECOUPLED;
      o.gradient_scale = std::ldexp(1.0f, static_cast<int>(round) - 20);
      o.eps = 1e-30f;
      ASSERT_NO_FATAL_FAILURE(expect_equal(
          l, o, 1, 130, 0,
          [&](AdamParameter *p) {
            /* First moments that second moments are far too small for. */
            for (int64_t i = 0; i < 130; i += 3) p->tensors[2].set(0, i, 0.0f);
            for (int64_t i = 0; i < 130; i += 5) p->tensors[3].set(0, i, 0.0f);
          },
          &range));
    }
  }
  EXPECT_LE(range, 1.0f + 0x1p-22f);
  EXPECT_GT(range, 0.5f);
}

}  // namespace
}  // namespace octavo::test
