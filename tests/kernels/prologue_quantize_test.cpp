/* prologue_quantize: the bits of prologue and then quantize, for every rule and granularity.
 *
 * The sequence is the oracle; what its halves compute is the matter of their own tests.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/block_matrices.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/prologue_case.h"

namespace octavo::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/* How the values become codes. */
struct Recipe {
  const char *name;
  uint32_t granularity;
  uint32_t rule;
  bool has_counter;
  float counter;
};

const Recipe kRecipes[] = {
    {"given", OCTAVO_PER_TENSOR, OCTAVO_RULE_GIVEN, false, 0},
    {"current", OCTAVO_PER_TENSOR, OCTAVO_RULE_QUOTIENT, false, 0},
    {"current pow2", OCTAVO_PER_TENSOR, OCTAVO_RULE_POW2, false, 0},
    {"reciprocal", OCTAVO_PER_TENSOR, OCTAVO_RULE_RECIPROCAL, false, 0},
    {"warm-up", OCTAVO_PER_TENSOR, OCTAVO_RULE_MSAMP, true, 3},
    {"warm", OCTAVO_PER_TENSOR, OCTAVO_RULE_MSAMP, true, 16},
    {"1x128", OCTAVO_BLOCK_1X128, OCTAVO_RULE_QUOTIENT, false, 0},
    {"1x128 pow2", OCTAVO_BLOCK_1X128, OCTAVO_RULE_POW2, false, 0},
    {"1x128 deepgemm", OCTAVO_BLOCK_1X128, OCTAVO_RULE_DEEPGEMM, false, 0},
    {"128x128 pow2", OCTAVO_BLOCK_128X128, OCTAVO_RULE_POW2, false, 0},
    {"128x128 deepgemm pow2", OCTAVO_BLOCK_128X128, OCTAVO_RULE_DEEPGEMM_POW2, false, 0},
    {"1x32 up", OCTAVO_BLOCK_1X32, OCTAVO_RULE_MX_UP, false, 0},
    {"1x32 floor", OCTAVO_BLOCK_1X32, OCTAVO_RULE_MX_FLOOR, false, 0},
    {"32x32 up", OCTAVO_BLOCK_32X32, OCTAVO_RULE_MX_UP, false, 0},
};

/* All that a quantize call writes. */
struct Outputs {
  Matrix out;
  Matrix out_t;
  float scale_inv = -1.0f;
  float scale_inv_t = -1.0f;
  Scales blocks;
  Scales blocks_t;
  float amax = 0.25f;
  float nonfinite = 0.0f;
  octavo_scale scales;
  octavo_scale scales_t;

  Outputs(const Recipe &recipe, uint32_t dtype, int64_t rows, int64_t cols, int64_t pad)
      : out(dtype, rows + pad, cols + pad, 1),
        out_t(dtype, cols + pad, rows + pad, 2),
        blocks(recipe.granularity, rows + pad, cols + pad, 1),
        blocks_t(recipe.granularity, cols + pad, rows + pad, 2),
        scales(recipe.granularity == OCTAVO_PER_TENSOR ? per_tensor(&scale_inv) : *blocks.get()),
        scales_t(recipe.granularity == OCTAVO_PER_TENSOR ? per_tensor(&scale_inv_t)
                                                         : *blocks_t.get()) {}
};

/* The two ways, with everything they point to. */
class Both {
 public:
  Both(PrologueCase &t, const Recipe &recipe, uint32_t values_dtype, uint32_t dtype, int64_t pad)
      : t_(t),
        recipe_(recipe),
        values_(values_dtype, t.rows, t.cols),
        sequence(recipe, dtype, t.rows, t.cols, pad),
        fused(recipe, dtype, t.rows, t.cols, pad),
        counter_(recipe.counter) {
    q_.rule = recipe.rule;
    q_.format_max = dtype == OCTAVO_E4M3FN ? kMaxE4m3 : kMaxE5m2;
    q_.window = 16;
    if (recipe.granularity == OCTAVO_PER_TENSOR) q_.scale = &scale_;
    if (recipe.has_counter) q_.counter = &counter_;
  }

  octavo_quantize call(const octavo_tensor &in, Outputs &to, bool rows, bool columns) const {
    octavo_quantize q = q_;
    q.in = &in;
    if (rows) q.out = to.out.tensor();
    if (rows) q.out_scale_inv = &to.scales;
    if (columns) q.out_t = to.out_t.tensor();
    if (columns && recipe_.granularity != OCTAVO_PER_TENSOR) q.out_t_scale_inv = &to.scales_t;
    if (!rows && recipe_.granularity == OCTAVO_PER_TENSOR) q.out_scale_inv = &to.scales;
    q.amax = &to.amax;
    q.nonfinite = &to.nonfinite;
    return q;
  }

  void run(Kernels &kernels, bool rows, bool columns) {
    const octavo_prologue_call plain = t_.call(values_.tensor());
    ASSERT_EQ(kernels.table->prologue(kernels.ctx(), &plain), OCTAVO_OK)
        << kernels.host().last_text();
    const octavo_quantize second = call(*values_.tensor(), sequence, rows, columns);
    ASSERT_EQ(kernels.quantize(second), OCTAVO_OK) << kernels.host().last_text();
    const std::vector<float> mean = t_.mean;
    const std::vector<float> rstd = t_.rstd;
    t_.mean.assign(mean.size(), kUnwritten);
    t_.rstd.assign(rstd.size(), kUnwritten);

    const octavo_tensor shape = {nullptr, t_.rows, t_.cols, 0, values_.dtype(), 0};
    const octavo_quantize last = call(shape, fused, rows, columns);
    auto c = make_call<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);
    c.prologue = &t_.p;
    c.quantize = &last;
    uint64_t bytes = 0;
    ASSERT_EQ(kernels.table->workspace_bytes(kernels.ctx(), &c, &bytes), OCTAVO_OK)
        << kernels.host().last_text();
    std::vector<float> workspace(bytes / sizeof(float) + 1, kUnwritten);
    c.workspace = workspace.data();
    ASSERT_EQ(kernels.table->prologue_quantize(kernels.ctx(), &c), OCTAVO_OK)
        << kernels.host().last_text();

    ASSERT_EQ(fused.out.data(), sequence.out.data());
    ASSERT_EQ(fused.out_t.data(), sequence.out_t.data());
    ASSERT_TRUE(same_value(fused.scale_inv, sequence.scale_inv));
    ASSERT_EQ(fused.blocks.data(), sequence.blocks.data());
    ASSERT_EQ(fused.blocks_t.data(), sequence.blocks_t.data());
    ASSERT_EQ(fused.amax, sequence.amax);
    ASSERT_EQ(fused.nonfinite, sequence.nonfinite);
    ASSERT_EQ(std::memcmp(t_.mean.data(), mean.data(), mean.size() * sizeof(float)), 0);
    ASSERT_EQ(std::memcmp(t_.rstd.data(), rstd.data(), rstd.size() * sizeof(float)), 0);
  }

 private:
  PrologueCase &t_;
  const Recipe &recipe_;
  Matrix values_;

 public:
  Outputs sequence;
  Outputs fused;

 private:
  float scale_ = 37.5f;
  float counter_;
  octavo_quantize q_ = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
};

TEST(PrologueQuantize, every_op_recipe_and_dtype) {
  Kernels kernels(3);
  for (const uint32_t op : kPrologueOps) {
    for (const Recipe &recipe : kRecipes) {
      for (const uint32_t values : kPlainDtypes) {
        for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
          const bool deepgemm =
              recipe.rule == OCTAVO_RULE_DEEPGEMM || recipe.rule == OCTAVO_RULE_DEEPGEMM_POW2;
          if (deepgemm && dtype == OCTAVO_E5M2) continue; /* a rule of E4M3 */
          PrologueCase t(op, 29, 45, kPlainDtypes[(values + op) % 3]);
          Both both(t, recipe, values, dtype, 7);
          ASSERT_NO_FATAL_FAILURE(both.run(kernels, true, true)) << t.name() << " " << recipe.name;
        }
      }
    }
  }
}

TEST(PrologueQuantize, odd_sizes_with_and_without_padding) {
  Kernels kernels(2);
  for (const Recipe &recipe : kRecipes) {
    for (const int64_t rows : {0, 1, 33, 257, 1030}) {
      for (const int64_t cols : {1, 32, 129}) {
        for (const int64_t pad : {0, 15}) {
          PrologueCase t(OCTAVO_PROLOGUE_LAYER_NORM, rows, cols, OCTAVO_BF16);
          Both both(t, recipe, OCTAVO_BF16, OCTAVO_E4M3FN, pad);
          ASSERT_NO_FATAL_FAILURE(both.run(kernels, true, true)) << t.name() << " " << recipe.name;
        }
      }
    }
  }
}

/* 9 bands of 128 rows and a rest of 5: every path of the kernel. */
TEST(PrologueQuantize, many_bands_for_every_level_and_number_of_threads) {
  for (const std::string &level : supported_levels()) {
    for (const int threads : {0, 1, 4}) {
      Kernels kernels(threads, level);
      for (const Recipe &recipe : kRecipes) {
        for (const int forms : {1, 2, 3}) {
          PrologueCase t(OCTAVO_PROLOGUE_RMS_NORM, 9 * 128 + 5, 35);
          Both both(t, recipe, OCTAVO_BF16, OCTAVO_E4M3FN, 11);
          ASSERT_NO_FATAL_FAILURE(both.run(kernels, (forms & 1) != 0, (forms & 2) != 0))
              << recipe.name << " " << level << " " << threads << " " << forms;
        }
      }
    }
  }
}

TEST(PrologueQuantize, values_that_are_not_finite_are_counted) {
  Kernels kernels(2);
  for (const Recipe &recipe : kRecipes) {
    if (recipe.rule == OCTAVO_RULE_DEEPGEMM) continue; /* passes NaN on, as its source does */
    for (const int64_t rows : {20, 1100}) {
      for (const float value : {kNan, -kInf}) {
        PrologueCase t(OCTAVO_PROLOGUE_GELU, rows, 40);
        t.in.set(rows / 2, 3, value);
        Both both(t, recipe, OCTAVO_F32, OCTAVO_E5M2, 0);
        if (recipe.rule == OCTAVO_RULE_DEEPGEMM_POW2) continue;
        ASSERT_NO_FATAL_FAILURE(both.run(kernels, true, true)) << recipe.name;
        EXPECT_EQ(both.fused.nonfinite, 1.0f);
      }
    }
  }
}

TEST(PrologueQuantize, values_can_be_measured_without_codes) {
  Kernels kernels(2);
  for (const int64_t rows : {20, 700}) {
    for (const Recipe &recipe : {kRecipes[0], kRecipes[1]}) {
      PrologueCase t(OCTAVO_PROLOGUE_SWIGLU, rows, 40);
      Both both(t, recipe, OCTAVO_F16, OCTAVO_E4M3FN, 0);
      ASSERT_NO_FATAL_FAILURE(both.run(kernels, false, false)) << recipe.name;
      EXPECT_GT(both.fused.amax, 0.25f);
    }
  }
}

TEST(PrologueQuantize, states_of_optimizers) {
  Kernels kernels(2);
  for (const uint32_t granularity :
       std::initializer_list<uint32_t>{OCTAVO_FLAT_256, OCTAVO_EXPANDED_128}) {
    constexpr int64_t kRows = 600;
    constexpr int64_t kCols = 7;
    constexpr int64_t kScales = (kRows * kCols / 128 + 1) * 3;
    PrologueCase t(OCTAVO_PROLOGUE_GELU_TANH, kRows, kCols);
    std::vector<float> scales[2] = {std::vector<float>(kScales, kUnwritten),
                                    std::vector<float>(kScales, kUnwritten)};
    Matrix codes[2] = {Matrix(OCTAVO_E4M3FN, kRows, kCols), Matrix(OCTAVO_E4M3FN, kRows, kCols)};
    Matrix values(OCTAVO_F32, kRows, kCols);
    octavo_quantize q[2];
    octavo_scale s[2];
    const octavo_tensor shape = {nullptr, kRows, kCols, kCols, OCTAVO_F32, 0};
    for (size_t i = 0; i < 2; ++i) {
      q[i] = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
      s[i] = OCTAVO_SCALE(scales[i].data(), granularity == OCTAVO_FLAT_256 ? 1 : 3, OCTAVO_F32,
                          granularity);
      q[i].in = i == 0 ? values.tensor() : &shape;
      q[i].out = codes[i].tensor();
      q[i].out_scale_inv = &s[i];
    }
    const octavo_prologue_call plain = t.call(values.tensor());
    ASSERT_EQ(kernels.table->prologue(kernels.ctx(), &plain), OCTAVO_OK);
    ASSERT_EQ(kernels.quantize(q[0]), OCTAVO_OK) << kernels.host().last_text();
    std::vector<float> workspace(kRows * kCols);
    auto c = make_call<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);
    c.prologue = &t.p;
    c.quantize = &q[1];
    c.workspace = workspace.data();
    ASSERT_EQ(kernels.table->prologue_quantize(kernels.ctx(), &c), OCTAVO_OK)
        << kernels.host().last_text();
    EXPECT_EQ(codes[1].data(), codes[0].data());
    EXPECT_EQ(scales[1], scales[0]);
  }
}

TEST(PrologueQuantize, the_workspace_is_stated_by_shape_and_affine) {
  Kernels kernels;
  auto bytes = [&](int64_t rows, int64_t cols, uint32_t dtype) {
    const octavo_tensor shape = {nullptr, rows, cols, cols, dtype, 0};
    auto q = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
    q.in = &shape;
    auto c = make_call<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);
    c.quantize = &q;
    uint64_t found = 0;
    EXPECT_EQ(kernels.table->workspace_bytes(kernels.ctx(), &c, &found), OCTAVO_OK);
    return found;
  };
  for (const uint32_t dtype : kPlainDtypes) {
    EXPECT_EQ(bytes(0, 64, dtype), 0u);
    EXPECT_EQ(bytes(192, 64, dtype) - bytes(128, 64, dtype), bytes(64, 64, dtype));
    EXPECT_EQ(bytes(64, 192, dtype) - bytes(64, 128, dtype), bytes(64, 64, dtype));
    EXPECT_LE(bytes(63, 65, dtype), bytes(64, 65, dtype));
  }
  auto plain = make_call<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);
  uint64_t found = 1;
  EXPECT_EQ(kernels.table->workspace_bytes(kernels.ctx(), &plain, &found), OCTAVO_OK);
  EXPECT_EQ(found, 0u) << "prologue itself needs none";
}

}  // namespace
}  // namespace octavo::test
