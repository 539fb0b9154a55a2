/* quantize with block granularities, against the plain loop over the blocks of block_cast.h.
 *
 * Every granularity is tried for out and for out_t, and every rule with one that has it.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/kernels/block_cast.h"
#include "tests/kernels/fake_host.h"

namespace octavo::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Recipe {
  uint32_t granularity;
  uint32_t granularity_t;
  uint32_t rule;
};

constexpr Recipe kRecipes[] = {
    {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_1X128, OCTAVO_RULE_POW2},
    {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128, OCTAVO_RULE_QUOTIENT},
    {OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_128X128, OCTAVO_RULE_QUOTIENT},
    {OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_1X128, OCTAVO_RULE_DEEPGEMM},
    {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_1X128, OCTAVO_RULE_DEEPGEMM_POW2},
    {OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_1X32, OCTAVO_RULE_MX_UP},
    {OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32, OCTAVO_RULE_MX_FLOOR},
    {OCTAVO_BLOCK_32X32, OCTAVO_BLOCK_32X32, OCTAVO_RULE_MX_UP},
    {OCTAVO_BLOCK_32X32, OCTAVO_BLOCK_1X32, OCTAVO_RULE_MX_FLOOR},
};

const Format &format_for(const Recipe &r, unsigned index) {
  const bool only_e4m3 = r.rule == OCTAVO_RULE_DEEPGEMM || r.rule == OCTAVO_RULE_DEEPGEMM_POW2;
  return only_e4m3 || index % 2 == 0 ? kE4m3 : kE5m2;
}

TEST(QuantizeBlocks, ragged_shapes_with_padding_on_every_level) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(2, level);
    unsigned index = 0;
    for (const int64_t rows : {0, 1, 31, 33, 128, 257}) {
      for (const int64_t cols : {0, 1, 32, 65, 129}) {
        for (const int64_t pad : {0, 15, 140}) {
          for (const Recipe &r : kRecipes) {
            ++index;
            BlockCast t(OCTAVO_F32, format_for(r, index), r.granularity, r.granularity_t, r.rule,
                        rows, cols, pad);
            t.in.fill(index, 5.0f);
            ASSERT_NO_FATAL_FAILURE(expect_cast(&kernels, &t))
                << level << " " << rows << " x " << cols << " + " << pad << " rule " << r.rule;
          }
        }
      }
    }
  }
}

TEST(QuantizeBlocks, every_input_dtype_with_and_without_a_scale_of_its_own) {
  Kernels kernels;
  for (const uint32_t in : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2}) {
    for (const float in_scale_inv : {1.0f, 0.37f}) {
      for (const Recipe &r : kRecipes) {
        BlockCast t(in, kE4m3, r.granularity, r.granularity_t, r.rule, 40, 300);
        t.in.fill(in, 3.0f);
        t.in_scale_inv = in_scale_inv;
        t.c.in_scale_inv = &t.in_scale_inv;
        ASSERT_NO_FATAL_FAILURE(expect_cast(&kernels, &t)) << in << " rule " << r.rule;
        EXPECT_EQ(t.amax, amax_of(t.in, in_scale_inv));
        EXPECT_EQ(t.nonfinite, 0.0f);
      }
    }
  }
}

TEST(QuantizeBlocks, special_values_stay_in_their_block) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(1, level);
    for (const Recipe &r : kRecipes) {
      for (const float odd : {kInf, -kInf, kNan, 0.0f, 1e-45f, 1e-38f, 3.4e38f}) {
        BlockCast t(OCTAVO_F32, kE4m3, r.granularity, r.granularity_t, r.rule, 150, 160);
        t.in.fill(7);
        t.in.set(140, 130, odd);
        for (int64_t row = 0; row < 32; ++row) { /* a square block of nothing but tiny values */
          for (int64_t col = 0; col < 32; ++col) t.in.set(row, col, row == col ? odd : 0.0f);
        }
        t.amax = 0.5f;
        ASSERT_NO_FATAL_FAILURE(expect_cast(&kernels, &t)) << level << " " << odd << " " << r.rule;
        EXPECT_EQ(t.nonfinite, std::isfinite(odd) ? 0.0f : 1.0f);
        EXPECT_EQ(std::isinf(t.amax), std::isinf(odd));
      }
    }
  }
}

TEST(QuantizeBlocks, an_infinite_scale_becomes_the_largest_value_of_the_input_dtype) {
  Kernels kernels;
  for (const uint32_t in : {OCTAVO_F32, OCTAVO_BF16}) {
    BlockCast t(in, kE4m3, OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_1X128, OCTAVO_RULE_QUOTIENT, 1, 1);
    t.in.set(0, 0, 1e-38f);
    ASSERT_EQ(kernels.quantize(t.c), OCTAVO_OK);
    EXPECT_EQ(t.scales.block(0, 0), 1.0f / (in == OCTAVO_F32 ? kFloatMax : kMaxBf16));
  }
  BlockCast t(OCTAVO_F16, kE4m3, OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_1X128, OCTAVO_RULE_POW2, 1, 1);
  const float tiny = 1e-35f;
  t.in.set(0, 0, 1.0f);
  t.c.in_scale_inv = &tiny;
  ASSERT_EQ(kernels.quantize(t.c), OCTAVO_OK);
  EXPECT_EQ(t.scales.block(0, 0), 0x1p-125f) << "448 / 1e-35 is finite";
  const float tinier = 1e-37f;
  t.c.in_scale_inv = &tinier;
  ASSERT_EQ(kernels.quantize(t.c), OCTAVO_OK);
  EXPECT_EQ(t.scales.block(0, 0), 0x1p-15f) << "65504 with its mantissa cleared";
  for (const uint32_t in : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
    BlockCast codes(in, kE4m3, OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_1X128, OCTAVO_RULE_QUOTIENT, 1, 1);
    const float tiniest = 0x1p-149f;
    codes.in.set(0, 0, 1.0f);
    codes.c.in_scale_inv = &tiniest;
    ASSERT_EQ(kernels.quantize(codes.c), OCTAVO_OK);
    EXPECT_EQ(codes.scales.block(0, 0), 1.0f / kFloatMax) << "values of codes are fp32";
  }
}

TEST(QuantizeBlocks, eps_is_the_smallest_amax) {
  Kernels kernels;
  for (const Recipe &r : kRecipes) {
    BlockCast t(OCTAVO_F32, kE4m3, r.granularity, r.granularity_t, r.rule, 33, 130);
    t.in.fill(3, 0.01f);
    t.c.eps = 0.02f;
    ASSERT_NO_FATAL_FAILURE(expect_cast(&kernels, &t)) << r.rule;
    EXPECT_GT(t.amax, 0.02f) << "eps must not show in amax, nor hide it";
  }
  for (const float eps : {0.0f, 0.25f}) {
    Matrix in(OCTAVO_F32, 1, 2);
    Matrix out(OCTAVO_E4M3FN, 1, 2);
    in.set(0, 0, 0.125f);
    in.set(0, 1, 0.0f);
    float scale_inv = 0.0f;
    float amax = 0.0f;
    const octavo_scale scale = per_tensor(&scale_inv);
    auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
    c.in = in.tensor();
    c.out = out.tensor();
    c.out_scale_inv = &scale;
    c.rule = OCTAVO_RULE_QUOTIENT;
    c.format_max = kMaxE4m3;
    c.amax = &amax;
    c.eps = eps;
    ASSERT_EQ(kernels.quantize(c), OCTAVO_OK);
    EXPECT_EQ(scale_inv, 1.0f / (kMaxE4m3 / (eps == 0.0f ? 0.125f : eps)));
    EXPECT_EQ(amax, 0.125f);
    in.set(0, 0, 0.0f);
    ASSERT_EQ(kernels.quantize(c), OCTAVO_OK);
    EXPECT_EQ(scale_inv, eps == 0.0f ? 1.0f : 1.0f / (kMaxE4m3 / eps));
  }
}

TEST(QuantizeBlocks, one_output_alone_is_what_both_give) {
  Kernels kernels(2);
  for (const Recipe &r : kRecipes) {
    BlockCast both(OCTAVO_BF16, kE4m3, r.granularity, r.granularity_t, r.rule, 70, 200);
    BlockCast out(OCTAVO_BF16, kE4m3, r.granularity, r.granularity_t, r.rule, 70, 200);
    BlockCast out_t(OCTAVO_BF16, kE4m3, r.granularity, r.granularity_t, r.rule, 70, 200);
    for (BlockCast *t : {&both, &out, &out_t}) t->in.fill(5);
    out.c.out_t = nullptr;
    out.c.out_t_scale_inv = nullptr;
    out_t.c.out = nullptr;
    out_t.c.out_scale_inv = nullptr;
    for (BlockCast *t : {&both, &out, &out_t}) {
      ASSERT_EQ(kernels.quantize(t->c), OCTAVO_OK) << kernels.host().last_text();
      EXPECT_EQ(t->amax, both.amax);
    }
    EXPECT_EQ(out.out.data(), both.out.data());
    EXPECT_EQ(out.scales.data(), both.scales.data());
    EXPECT_EQ(out_t.out_t.data(), both.out_t.data());
    EXPECT_EQ(out_t.scales_t.data(), both.scales_t.data());
  }
}

TEST(QuantizeBlocks, keep_positive_keeps_small_values_above_0) {
  Kernels kernels;
  for (const Recipe &r : kRecipes) {
    BlockCast t(OCTAVO_F32, kE4m3, r.granularity, r.granularity_t, r.rule, 2, 3);
    const float values[] = {1000.0f, 1e-9f, -1e-9f};
    for (int64_t i = 0; i < 3; ++i) {
      t.in.set(0, i, values[i]);
      t.in.set(1, i, values[i]);
    }
    /* Below the range beside 1000, in blocks along columns too. */
    for (int64_t i = 0; i < 3; ++i) t.in.set(1, i, 1000.0f);
    t.c.flags = OCTAVO_QUANTIZE_KEEP_POSITIVE;
    ASSERT_EQ(kernels.quantize(t.c), OCTAVO_OK);
    EXPECT_EQ(t.out.code(0, 1), 1);
    EXPECT_EQ(t.out.code(0, 2), 0x80);
    EXPECT_EQ(t.out_t.code(1, 0), 1);
    EXPECT_EQ(t.out_t.code(2, 0), 0x80);
  }
}

TEST(QuantizeBlocks, threads_and_levels_give_equal_bits) {
  for (const Recipe &r : kRecipes) {
    BlockCast expected(OCTAVO_BF16, kE4m3, r.granularity, r.granularity_t, r.rule, 300, 517);
    expected.in.fill(11, 0.01f);
    Kernels reference(0, "baseline");
    ASSERT_EQ(reference.quantize(expected.c), OCTAVO_OK);
    for (const std::string &level : supported_levels()) {
      for (const int threads : {1, 2, 5}) {
        Kernels kernels(threads, level);
        BlockCast t(OCTAVO_BF16, kE4m3, r.granularity, r.granularity_t, r.rule, 300, 517);
        t.in.fill(11, 0.01f);
        ASSERT_EQ(kernels.quantize(t.c), OCTAVO_OK);
        EXPECT_EQ(t.out.data(), expected.out.data()) << level << " " << threads;
        EXPECT_EQ(t.out_t.data(), expected.out_t.data()) << level << " " << threads;
        EXPECT_EQ(t.scales.data(), expected.scales.data()) << level << " " << threads;
        EXPECT_EQ(t.scales_t.data(), expected.scales_t.data()) << level << " " << threads;
        EXPECT_EQ(t.amax, expected.amax);
      }
    }
  }
}

TEST(QuantizeBlocks, per_tensor_scales_are_written_beside_both_outputs) {
  Kernels kernels;
  Matrix in(OCTAVO_F32, 3, 4);
  Matrix out(OCTAVO_E4M3FN, 3, 4);
  Matrix out_t(OCTAVO_E4M3FN, 4, 3);
  in.fill(1);
  const float scale = 8.0f;
  float inverse = 0.0f;
  float inverse_t = 0.0f;
  const octavo_scale of_out = per_tensor(&inverse);
  const octavo_scale of_out_t = per_tensor(&inverse_t);
  auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  c.in = in.tensor();
  c.out = out.tensor();
  c.out_t = out_t.tensor();
  c.scale = &scale;
  c.out_scale_inv = &of_out;
  c.out_t_scale_inv = &of_out_t;
  ASSERT_EQ(kernels.quantize(c), OCTAVO_OK) << kernels.host().last_text();
  EXPECT_EQ(inverse, 0.125f);
  EXPECT_EQ(inverse_t, 0.125f);
}

}  // namespace
}  // namespace octavo::test
