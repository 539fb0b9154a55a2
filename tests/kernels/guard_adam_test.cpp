/* adam_step in hostile memory: plain states, codes with one scale, states in blocks; rows with gaps
 * where blocks do not forbid them, and several items in one call.
 */
#include <gtest/gtest.h>

#include "octavo/draft/one_pass.h"
#include "octavo/draft/optimizer.h"
#include "tests/kernels/guard_case.h"
#include "tests/kernels/state_oracle.h"
#include "tests/support/draft_calls.h"

namespace octavo::test {
namespace {

/* The dtypes of one tensor of the step; `is_scaled`: codes beside a scale. */
struct Kept {
  uint32_t dtype;
  bool is_scaled;
};

struct Layout {
  const char *name;
  Kept weight;
  Kept gradient;
  Kept exp_avg;
  Kept exp_avg_sq;
  uint32_t granularity;
};

constexpr Kept kF32 = {OCTAVO_F32, false};
constexpr Kept kBf16 = {OCTAVO_BF16, false};
constexpr Kept kF16 = {OCTAVO_F16, false};
constexpr Kept kE4m3 = {OCTAVO_E4M3FN, true};
constexpr Kept kE5m2 = {OCTAVO_E5M2, true};
constexpr Kept kScaledF16 = {OCTAVO_F16, true};
constexpr Kept kPlainE4m3 = {OCTAVO_E4M3FN, false};
constexpr Kept kPlainE5m2 = {OCTAVO_E5M2, false};

constexpr Layout kLayouts[] = {
    {"f32", kF32, kF32, kF32, kF32, OCTAVO_PER_TENSOR},
    {"bf16 gradient", kF32, kBf16, kF32, kF32, OCTAVO_PER_TENSOR},
    {"bf16", kBf16, kBf16, kBf16, kBf16, OCTAVO_PER_TENSOR},
    {"f16", kF16, kF16, kF16, kF16, OCTAVO_PER_TENSOR},
    {"fp8 without scales", kF32, kPlainE5m2, kPlainE4m3, kPlainE5m2, OCTAVO_PER_TENSOR},
    {"msamp", kScaledF16, kE4m3, kE4m3, kScaledF16, OCTAVO_PER_TENSOR},
    {"fp8 moments", kF32, kE5m2, kE4m3, kE5m2, OCTAVO_PER_TENSOR},
    {"fp8 everywhere", kE4m3, kE5m2, kE4m3, kE4m3, OCTAVO_PER_TENSOR},
    {"flat", kF32, kF32, kE4m3, kE4m3, OCTAVO_FLAT_256},
    {"flat, bf16", kBf16, kBf16, kE4m3, kE4m3, OCTAVO_FLAT_256},
    {"flat exp_avg only", kF32, kF32, kE4m3, kF32, OCTAVO_FLAT_256},
    {"flat, msamp weight", kScaledF16, kE4m3, kE4m3, kE4m3, OCTAVO_FLAT_256},
    {"expanded", kF32, kF32, kE4m3, kE4m3, OCTAVO_EXPANDED_128},
    {"expanded, bf16", kBf16, kBf16, kE4m3, kE4m3, OCTAVO_EXPANDED_128},
    {"expanded exp_avg_sq only", kF32, kBf16, kF32, kE4m3, OCTAVO_EXPANDED_128},
};

/* Values of a second moment are not negative. */
Matrix magnitudes(const Kept &kept, int64_t rows, int64_t cols, int64_t gap, unsigned seed) {
  Matrix m = Matrix(kept.dtype, rows, cols, gap).fill(seed);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) m.set(row, col, std::fabs(m.get(row, col)));
  }
  return m;
}

std::vector<float> scales_of(const Kept &kept, uint32_t granularity, int64_t elements) {
  if (!kept.is_scaled) return {};
  if (granularity == OCTAVO_PER_TENSOR) return {0.013f};
  std::vector<float> scales(static_cast<size_t>(scale_count(granularity, elements)));
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.25f + 0.25f * static_cast<float>(i % 5);
  return scales;
}

/* The address of scales, null without any. */
float *output_or_null(CallMemory *memory, const std::vector<float> &scales) {
  return scales.empty() ? nullptr : memory->output(scales);
}

void expect_step(const Layout &layout, int64_t rows, int64_t cols, unsigned turn, int items = 1) {
  const bool has_blocks = layout.granularity != OCTAVO_PER_TENSOR;
  const int64_t gap = has_blocks ? 0 : turn % 3;
  const int64_t elements = rows * cols;
  const Matrix weight = Matrix(layout.weight.dtype, rows, cols, gap).fill(turn);
  const Matrix gradient = Matrix(layout.gradient.dtype, rows, cols, gap).fill(turn + 1);
  const Matrix exp_avg = Matrix(layout.exp_avg.dtype, rows, cols, gap).fill(turn + 2);
  const Matrix exp_avg_sq = magnitudes(layout.exp_avg_sq, rows, cols, gap, turn + 3);
  const std::string name = "adam_step " + std::string(layout.name) + ", " + shape_text(rows, cols) +
                           ", turn " + std::to_string(turn);
  expect_guarded(name, [&](const Kernels &kernels, CallMemory &memory) {
    std::vector<octavo_adam_item> all(static_cast<size_t>(items));
    std::vector<float *> amaxes;
    for (octavo_adam_item &item : all) {
      amaxes.push_back(memory.output(std::vector<float>(OCTAVO_AMAX_COUNT, 0.0f)));
      item.weight = memory.output(weight);
      item.gradient = memory.input(gradient);
      item.exp_avg = memory.output(exp_avg);
      item.exp_avg_sq = memory.output(exp_avg_sq);
      item.weight_scale_inv =
          output_or_null(&memory, scales_of(layout.weight, OCTAVO_PER_TENSOR, elements));
      if (layout.gradient.is_scaled) {
        item.gradient_scale_inv = memory.input(std::vector<float>{0.02f});
      }
      item.exp_avg_scale_inv =
          output_or_null(&memory, scales_of(layout.exp_avg, layout.granularity, elements));
      item.exp_avg_sq_scale_inv =
          output_or_null(&memory, scales_of(layout.exp_avg_sq, layout.granularity, elements));
      item.step = memory.output(static_cast<int32_t>(turn % 4));
      item.hyper =
          memory.input(std::vector<float>{1e-3f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.5f, 0.0f, 0.0f});
    }
    auto c = make_call<octavo_adam_step>(OCTAVO_KIND_ADAM_STEP);
    c.items = all.data();
    c.count = all.size();
    if (turn % 2 == 0) c.skip = memory.input(std::vector<float>{turn % 10 == 4 ? 1.0f : 0.0f});
    c.rule = turn % 2 == 0 ? OCTAVO_RULE_MSAMP : OCTAVO_RULE_QUOTIENT;
    constexpr uint32_t kModes[] = {OCTAVO_DECAY_DECOUPLED, OCTAVO_DECAY_L2,
                                   OCTAVO_DECAY_L2_MSAMP04};
    c.decay_mode = kModes[has_blocks ? turn % 2 : turn % 3];
    c.state_granularity = layout.granularity;
    c.flags = turn % 4 == 1 ? OCTAVO_ADAM_KEEP_POSITIVE : 0;
    auto rounded = make_call<octavo_adam_rounded>(OCTAVO_KIND_ADAM_ROUNDED);
    const std::vector<uint64_t> keys(all.size(), turn);
    rounded.step = &c;
    rounded.keys = keys.data();
    rounded.exp_avg_rounding = OCTAVO_ROUND_SHRINKING;
    if (turn % 5 == 2)
      rounded.weight_rounding = rounded.exp_avg_rounding = rounded.exp_avg_sq_rounding =
          OCTAVO_ROUND_STOCHASTIC;
    auto one_pass = make_call<octavo_adam_one_pass>(OCTAVO_KIND_ADAM_ONE_PASS);
    one_pass.rounded = &rounded;
    one_pass.amax = amaxes.data();
    memory.seal();
    if (turn % 5 == 3) return draft_call(kernels.table, kernels.ctx(), &one_pass);
    return turn % 5 == 0 ? draft_call(kernels.table, kernels.ctx(), &c)
                         : draft_call(kernels.table, kernels.ctx(), &rounded);
  });
}

TEST(GuardAdam, every_layout_and_size) {
  unsigned turn = 0;
  for (const Layout &layout : kLayouts) {
    for (const int64_t rows : {1, 15, 63, 217}) {
      for (const int64_t cols : {1, 17, 65, 217}) {
        ASSERT_NO_FATAL_FAILURE(expect_step(layout, rows, cols, turn++));
      }
    }
  }
}

TEST(GuardAdam, every_length_of_a_row) {
  unsigned turn = 0;
  for (const Layout &layout : kLayouts) {
    for (int64_t cols = 1; cols <= 70; ++cols) {
      ASSERT_NO_FATAL_FAILURE(expect_step(layout, 1, cols, turn++));
    }
  }
}

/* Numbers of elements around the ends of blocks and segments. */
TEST(GuardAdam, around_the_ends_of_blocks) {
  unsigned turn = 0;
  for (const Layout &layout : kLayouts) {
    for (const int64_t cols : {127, 129, 255, 256, 257, 511, 513, 1025}) {
      ASSERT_NO_FATAL_FAILURE(expect_step(layout, 1, cols, turn++));
      ASSERT_NO_FATAL_FAILURE(expect_step(layout, 3, cols, turn++));
    }
  }
}

TEST(GuardAdam, several_items) {
  unsigned turn = 0;
  for (const Layout &layout : kLayouts) {
    ASSERT_NO_FATAL_FAILURE(expect_step(layout, 17, 63, turn++, 3));
  }
}

}  // namespace
}  // namespace octavo::test
