/* prologue and prologue_quantize in hostile memory: every op, dtype and granularity, and a
 * workspace of exactly the stated size.
 */
#include <gtest/gtest.h>

#include "tests/kernels/guard_case.h"
#include "tests/kernels/prologue_case.h"

namespace octavo::test {
namespace {

/* The prologue of `t` with all it points to in `memory`. */
class GuardedPrologue {
 public:
  GuardedPrologue(const PrologueCase &t, CallMemory *memory)
      : in_(memory->input(t.in)), gamma_(), beta_(), p(t.p) {
    p.in = &in_;
    if (p.gamma != nullptr) {
      gamma_ = memory->input(t.gamma);
      p.gamma = &gamma_;
    }
    if (p.beta != nullptr) {
      beta_ = memory->input(t.beta);
      p.beta = &beta_;
    }
    const std::vector<float> unwritten(static_cast<size_t>(t.rows), kUnwritten);
    if (p.mean != nullptr) p.mean = memory->output(unwritten);
    if (p.rstd != nullptr) p.rstd = memory->output(unwritten);
  }
  GuardedPrologue(const GuardedPrologue &) = delete;
  GuardedPrologue &operator=(const GuardedPrologue &) = delete;

 private:
  octavo_tensor in_;
  octavo_tensor gamma_;
  octavo_tensor beta_;

 public:
  octavo_prologue p;
};

void expect_prologue(const PrologueCase &t, uint32_t out_dtype, int64_t gap) {
  const Matrix out(out_dtype, t.rows, t.cols, gap);
  expect_guarded("prologue " + t.name() + " to " + dtype_text(out_dtype),
                 [&](const Kernels &kernels, CallMemory &memory) {
                   const GuardedPrologue g(t, &memory);
                   auto c = make_call<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);
                   octavo_tensor to = memory.output(out);
                   c.prologue = &g.p;
                   c.out = &to;
                   uint64_t bytes = 0;
                   const octavo_status status =
                       kernels.table->workspace_bytes(kernels.ctx(), &c, &bytes);
                   if (status != OCTAVO_OK) return status;
                   if (bytes > 0) c.workspace = memory.workspace(bytes);
                   memory.seal();
                   return kernels.table->prologue(kernels.ctx(), &c);
                 });
}

TEST(GuardPrologue, every_op_dtype_and_size) {
  unsigned turn = 0;
  for (const uint32_t op : kPrologueOps) {
    for (const int64_t rows : {1, 15, 17, 217}) {
      for (const int64_t cols : kGuardSizes) {
        for (const uint32_t in : kPlainDtypes) {
          const PrologueCase t(op, rows, cols, in, kPlainDtypes[turn % 3], turn % 4);
          ASSERT_NO_FATAL_FAILURE(expect_prologue(t, kPlainDtypes[turn / 3 % 3], turn % 2));
          ++turn;
        }
      }
    }
  }
}

TEST(GuardPrologue, every_length_of_a_row) {
  for (const uint32_t op : kPrologueOps) {
    for (int64_t cols = 1; cols <= 130; ++cols) {
      const PrologueCase t(op, 2, cols, kPlainDtypes[cols % 3], kPlainDtypes[cols / 3 % 3], 0);
      ASSERT_NO_FATAL_FAILURE(expect_prologue(t, kPlainDtypes[cols / 9 % 3], 0));
    }
    for (const int64_t cols : {511, 513, 1031}) {
      const PrologueCase t(op, 2, cols, kPlainDtypes[cols % 3], OCTAVO_F32, 1);
      ASSERT_NO_FATAL_FAILURE(expect_prologue(t, OCTAVO_BF16, 0));
    }
  }
}

/* What the values become codes with. */
struct Recipe {
  uint32_t granularity;
  uint32_t rule;
};

constexpr Recipe kRecipes[] = {
    {OCTAVO_PER_TENSOR, OCTAVO_RULE_GIVEN},     {OCTAVO_PER_TENSOR, OCTAVO_RULE_QUOTIENT},
    {OCTAVO_BLOCK_1X128, OCTAVO_RULE_QUOTIENT}, {OCTAVO_BLOCK_128X128, OCTAVO_RULE_POW2},
    {OCTAVO_BLOCK_1X32, OCTAVO_RULE_MX_UP},     {OCTAVO_BLOCK_32X32, OCTAVO_RULE_MX_FLOOR}};

void expect_fused(const PrologueCase &t, const Recipe &recipe, uint32_t dtype,
                  uint32_t values_dtype, int outputs, int64_t gap) {
  const bool has_blocks = recipe.granularity != OCTAVO_PER_TENSOR;
  const Matrix out(dtype, t.rows, t.cols, gap);
  const Matrix out_t(dtype, t.cols, t.rows, gap);
  const Scales scales(recipe.granularity, t.rows, t.cols, gap);
  const Scales scales_t(recipe.granularity, t.cols, t.rows, gap);
  const std::string name = "prologue_quantize " + t.name() + " to " + dtype_text(dtype) +
                           ", granularity " + std::to_string(recipe.granularity) + ", outputs " +
                           std::to_string(outputs);
  expect_guarded(name, [&](const Kernels &kernels, CallMemory &memory) {
    const GuardedPrologue g(t, &memory);
    const octavo_tensor shape = {nullptr, t.rows, t.cols, t.cols, values_dtype, 0};
    auto q = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
    octavo_tensor to = {};
    octavo_tensor to_t = {};
    octavo_scale inv = {};
    octavo_scale inv_t = {};
    q.in = &shape;
    if ((outputs & 1) != 0 || !has_blocks) {
      inv =
          has_blocks ? memory.output(scales) : per_tensor(memory.output(std::vector<float>{-1.0f}));
      q.out_scale_inv = &inv;
    }
    if ((outputs & 1) != 0) {
      to = memory.output(out);
      q.out = &to;
    }
    if ((outputs & 2) != 0) {
      to_t = memory.output(out_t);
      q.out_t = &to_t;
      if (has_blocks) {
        inv_t = memory.output(scales_t);
        q.out_t_scale_inv = &inv_t;
      }
    }
    if (!has_blocks) q.scale = memory.input(std::vector<float>{37.0f});
    q.amax = memory.output(std::vector<float>{0.25f});
    q.nonfinite = memory.output(std::vector<float>{0.0f});
    q.rule = recipe.rule;
    q.format_max = dtype == OCTAVO_E4M3FN ? kMaxE4m3 : kMaxE5m2;
    auto c = make_call<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);
    c.prologue = &g.p;
    c.quantize = &q;
    uint64_t bytes = 0;
    const octavo_status status = kernels.table->workspace_bytes(kernels.ctx(), &c, &bytes);
    if (status != OCTAVO_OK) return status;
    c.workspace = memory.workspace(bytes);
    memory.seal();
    return kernels.table->prologue_quantize(kernels.ctx(), &c);
  });
}

TEST(GuardPrologueQuantize, every_op_recipe_and_size) {
  unsigned turn = 0;
  for (const uint32_t op : kPrologueOps) {
    for (const Recipe &recipe : kRecipes) {
      for (const int64_t rows : {1, 17, 65, 217}) {
        for (const int64_t cols : {1, 15, 63, 65, 217}) {
          const PrologueCase t(op, rows, cols, kPlainDtypes[turn % 3], kPlainDtypes[turn / 3 % 3],
                               turn % 4);
          const uint32_t dtype = turn % 2 == 0 ? OCTAVO_E4M3FN : OCTAVO_E5M2;
          ASSERT_NO_FATAL_FAILURE(expect_fused(t, recipe, dtype, kPlainDtypes[turn / 9 % 3],
                                               1 + static_cast<int>(turn % 3), turn % 2));
          ++turn;
        }
      }
    }
  }
}

/* So many rows that they are cut into bands. */
TEST(GuardPrologueQuantize, many_rows) {
  unsigned turn = 0;
  for (const uint32_t op : kPrologueOps) {
    for (const Recipe &recipe : kRecipes) {
      const PrologueCase t(op, 1031, 33, kPlainDtypes[turn % 3], OCTAVO_F32, 1);
      ASSERT_NO_FATAL_FAILURE(expect_fused(t, recipe, OCTAVO_E4M3FN, kPlainDtypes[turn % 3],
                                           1 + static_cast<int>(turn % 3), 1));
      ++turn;
    }
  }
}

}  // namespace
}  // namespace octavo::test
