/* quantize of device code against the CPU's kernels: every family, dtype and awkward size. */
#include "tests/kernels/cuda/twins.h"

namespace octavo::test {
namespace {

constexpr uint32_t kIn[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2};
constexpr uint32_t kOut[] = {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16};
struct Size {
  int64_t rows, cols;
};
constexpr Size kSizes[] = {{1, 1}, {1, 217}, {15, 17}, {63, 65}, {129, 130}, {4, 1000}};

float format_max(uint32_t dtype) {
  return largest_of(dtype);
}

/* What varies between calls. */
struct Case {
  Size size;
  uint32_t in, out;
  uint32_t granularity;
  uint32_t rule;
  bool has_out, has_out_t;
  int64_t padding = 0;
  bool keeps_positive = false;
  bool has_factor = false;
  float eps = 0.0f;
  const float *counter = nullptr; /* warm-up: below the window of 4 or not */
  Values values = Values::kSpecial;
};

std::string text(const Case &k) {
  return "[" + std::to_string(k.size.rows) + ", " + std::to_string(k.size.cols) + "] in " +
         std::to_string(k.in) + " out " + std::to_string(k.out) + " granularity " +
         std::to_string(k.granularity) + " rule " + std::to_string(k.rule) + " outputs " +
         std::to_string(k.has_out) + std::to_string(k.has_out_t) + " padding " +
         std::to_string(k.padding);
}

struct Scales {
  size_t buffer;
  octavo_scale shape;
};

Scales make_scales(Twins &twins, uint32_t granularity, int64_t rows, int64_t cols) {
  octavo_scale s = {};
  s.granularity = granularity;
  s.dtype = OCTAVO_F32;
  if (granularity == OCTAVO_PER_TENSOR) return {twins.floats({7.0f}), s};
  if (granularity == OCTAVO_PER_ROW) {
    s.stride = 1;
    return {twins.floats(std::vector<float>(static_cast<size_t>(rows), 7.0f)), s};
  }
  s.stride = divide_up(cols, block_cols(granularity)) + 1;
  const int64_t count = divide_up(rows, block_rows(granularity)) * s.stride;
  if (is_mx_granularity(granularity)) {
    s.dtype = OCTAVO_E8M0FNU;
    return {twins.bytes(static_cast<size_t>(count), 0x55), s};
  }
  return {twins.floats(std::vector<float>(static_cast<size_t>(count), 7.0f)), s};
}

void run(Devices &devices, const Case &k, uint64_t seed) {
  Twins twins(seed);
  const auto in = twins.tensor(k.size.rows, k.size.cols, k.in, k.values, 3);
  const int64_t rows = k.size.rows + k.padding;
  const int64_t cols = k.size.cols + k.padding;
  const auto out = twins.tensor(rows, cols, k.out, Values::kNormal, 5);
  const auto out_t = twins.tensor(cols, rows, k.out, Values::kNormal, 2);
  const Scales scales = make_scales(twins, k.granularity, rows, cols);
  const Scales scales_t = make_scales(twins, k.granularity, cols, rows);
  const size_t amax = twins.floats({0.25f});
  const size_t nonfinite = twins.floats({0.0f});
  const size_t given = twins.floats({3.0f});
  const size_t factor = twins.floats({0.37f});
  const size_t counter = twins.floats({k.counter == nullptr ? 0.0f : *k.counter});
  const bool is_tensor = k.granularity == OCTAVO_PER_TENSOR;
  for (int side = 0; side < 2; ++side) {
    const octavo_tensor tensor = twins.at(side, in);
    octavo_tensor codes = twins.at(side, out);
    octavo_tensor codes_t = twins.at(side, out_t);
    octavo_scale s = scales.shape;
    octavo_scale s_t = scales_t.shape;
    s.data = twins.data(side, scales.buffer);
    s_t.data = twins.data(side, scales_t.buffer);
    octavo_quantize c = {};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_QUANTIZE;
    c.in = &tensor;
    c.out = k.has_out ? &codes : nullptr;
    c.out_t = k.has_out_t ? &codes_t : nullptr;
    c.out_scale_inv = &s;
    c.out_t_scale_inv = &s_t;
    if (!k.has_out && !is_tensor) c.out_scale_inv = nullptr;
    if (!k.has_out_t) c.out_t_scale_inv = nullptr;
    c.in_scale_inv = k.has_factor ? twins.floats_at(side, factor) : nullptr;
    c.scale = is_tensor ? twins.floats_at(side, given) : nullptr;
    c.counter = k.counter != nullptr ? twins.floats_at(side, counter) : nullptr;
    c.window = 4.0f;
    c.amax = twins.floats_at(side, amax);
    c.nonfinite = twins.floats_at(side, nonfinite);
    c.format_max = format_max(k.out);
    c.rule = k.rule;
    c.eps = k.eps;
    c.flags = k.keeps_positive ? uint32_t{OCTAVO_QUANTIZE_KEEP_POSITIVE} : 0u;
    Workspace workspace(side, cuda::quantize_workspace());
    c.workspace = workspace.data();
    const octavo_status status = side == 0 ? devices.table().quantize(devices.cpu(), &c)
                                           : cuda::quantize(devices.cuda(), &c);
    ASSERT_EQ(status, OCTAVO_OK) << text(k) << ": " << devices.last_text();
  }
  twins.expect_equal(text(k));
}

TEST(CudaQuantize, one_scale_as_the_cpu) {
  Devices devices;
  uint64_t seed = 1;
  for (const uint32_t in : kIn) {
    for (const uint32_t out : kOut) {
      for (const Size &size : kSizes) {
        for (const uint32_t rule : {OCTAVO_RULE_GIVEN, OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_MSAMP}) {
          Case k = {size, in, out, OCTAVO_PER_TENSOR, rule, true, seed % 2 == 0};
          k.padding = seed % 3 == 0 ? 13 : 0;
          k.keeps_positive = seed % 4 == 0;
          k.has_factor = seed % 5 == 0;
          k.values = seed % 7 == 0 ? Values::kZero : Values::kSpecial;
          if (seed % 11 == 0) k.has_out = false, k.has_out_t = true;
          run(devices, k, seed++);
        }
      }
    }
  }
}

TEST(CudaQuantize, warm_up_is_decided_on_the_device) {
  Devices devices;
  for (const float counter : {0.0f, 3.0f, 4.0f, 100.0f}) {
    Case k = {{63, 65}, OCTAVO_BF16, OCTAVO_E4M3FN, OCTAVO_PER_TENSOR, OCTAVO_RULE_QUOTIENT,
              true,     true};
    k.counter = &counter;
    k.eps = 0.5f;
    run(devices, k, 5);
  }
}

TEST(CudaQuantize, a_scale_for_each_row_as_the_cpu) {
  Devices devices;
  uint64_t seed = 1;
  for (const uint32_t in : kIn) {
    for (const uint32_t out : kOut) {
      for (const Size &size : kSizes) {
        for (int outputs = 1; outputs < 4; ++outputs) {
          Case k = {size,
                    in,
                    out,
                    OCTAVO_PER_ROW,
                    OCTAVO_RULE_QUOTIENT,
                    (outputs & 1) != 0,
                    (outputs & 2) != 0};
          k.padding = seed % 3 == 0 ? 13 : 0;
          k.keeps_positive = seed % 4 == 0;
          k.has_factor = seed % 5 == 0;
          run(devices, k, seed++);
        }
      }
    }
  }
}

TEST(CudaQuantize, blocks_as_the_cpu) {
  Devices devices;
  uint64_t seed = 1;
  for (const uint32_t granularity :
       {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32}) {
    for (const uint32_t in : kIn) {
      for (const uint32_t out : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
        for (const Size &size : {Size{1, 1}, Size{63, 65}, Size{129, 257}}) {
          const bool is_mx = is_mx_granularity(granularity);
          const uint32_t rules[] = {
              is_mx ? uint32_t{OCTAVO_RULE_MX_UP} : uint32_t{OCTAVO_RULE_QUOTIENT},
              is_mx ? uint32_t{OCTAVO_RULE_MX_FLOOR} : uint32_t{OCTAVO_RULE_POW2}};
          const unsigned outputs = static_cast<unsigned>(seed % 3 + 1);
          Case k = {
              size, in, out, granularity, rules[seed % 2], (outputs & 1) != 0, (outputs & 2) != 0};
          k.padding = seed % 4 == 0 ? 40 : 0;
          k.keeps_positive = seed % 4 == 0;
          k.has_factor = seed % 5 == 0;
          run(devices, k, seed++);
        }
      }
    }
  }
}

#ifndef OCTAVO_TESTS_ON_GPU
TEST(CudaQuantize, order_of_threads_and_blocks_does_not_show) {
  Devices devices;
  for (const auto order :
       {cuda_on_cpu::Script::Order::kBackward, cuda_on_cpu::Script::Order::kShuffled}) {
    cuda_on_cpu::script().order = order;
    for (const uint32_t granularity : {OCTAVO_PER_TENSOR, OCTAVO_PER_ROW, OCTAVO_BLOCK_1X128}) {
      run(devices,
          {{129, 257}, OCTAVO_F32, OCTAVO_E4M3FN, granularity, OCTAVO_RULE_QUOTIENT, true, true},
          3);
    }
  }
}

/* A grid has at most 65535 blocks along an axis but x. */
TEST(CudaQuantize, more_tiles_than_a_grid_is_high) {
  Devices devices;
  Case k = {{65535 * 64 + 5, 1},  OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_PER_TENSOR,
            OCTAVO_RULE_QUOTIENT, true,          true};
  k.values = Values::kNormal;
  run(devices, k, 41);
}

TEST(CudaQuantize, launches_and_nothing_else) {
  Devices devices;
  const int allocations = cuda_on_cpu::counters().allocations;
  run(devices,
      {{129, 257}, OCTAVO_F32, OCTAVO_E4M3FN, OCTAVO_PER_TENSOR, OCTAVO_RULE_GIVEN, true, true}, 3);
  EXPECT_EQ(cuda_on_cpu::counters().launches, 1);
  run(devices,
      {{129, 257}, OCTAVO_F32, OCTAVO_E4M3FN, OCTAVO_PER_TENSOR, OCTAVO_RULE_QUOTIENT, true, true},
      3);
  EXPECT_EQ(cuda_on_cpu::counters().launches, 3);
  EXPECT_EQ(cuda_on_cpu::counters().allocations, allocations);
  EXPECT_EQ(cuda_on_cpu::counters().synchronisations, 0);
  EXPECT_EQ(cuda_on_cpu::counters().memsets, 0);
}
#endif

}  // namespace
}  // namespace octavo::test
