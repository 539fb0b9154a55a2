/* quantize of device code against the CPU's kernels: every family, dtype and awkward size. */
#include "tests/kernels/cuda/quantize_case.h"

#ifndef OCTAVO_TESTS_ON_GPU
#include "kernels/cuda/quantize_launch.cuh"
#endif

namespace octavo::test {
namespace {

constexpr uint32_t kIn[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2};
constexpr uint32_t kOut[] = {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16};
constexpr Size kSizes[] = {{1, 1}, {1, 217}, {15, 17}, {63, 65}, {129, 130}, {4, 1000}};

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

/* Codes of NaN included: by the element, by either factor, and by 0 * Inf; in wide packs and
 * others. */
TEST(CudaQuantize, the_code_of_every_nan_as_the_cpu) {
  Devices devices;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kOther[] = {kInf, -kInf, kNan, -kNan, 0.0f};
  uint64_t seed = 1;
  for (const uint32_t in : kIn)
    for (const uint32_t out : kOut)
      for (const Size &size : {Size{33, 65}, Size{48, 64}})
        for (const Values values : {Values::kSpecial, Values::kNan})
          for (size_t i = 0; i < 2 * std::size(kOther); ++i) {
            Case k = {size, in, out, OCTAVO_PER_TENSOR, OCTAVO_RULE_GIVEN, true, seed % 2 == 0};
            k.values = values;
            if (size.cols == 64) k.in_layout = k.out_layout = k.out_t_layout = {0, 0};
            k.has_factor = i >= std::size(kOther);
            (k.has_factor ? k.factor : k.scale) = kOther[i % std::size(kOther)];
            run(devices, k, seed++);
            if (out == OCTAVO_F16) continue;
            k.granularity =
                seed % 2 == 0 ? uint32_t{OCTAVO_BLOCK_1X32} : uint32_t{OCTAVO_BLOCK_32X32};
            k.rule = OCTAVO_RULE_MX_FLOOR; /* a block with Inf has a NaN for a scale */
            run(devices, k, seed);
            k.granularity = OCTAVO_PER_ROW, k.rule = OCTAVO_RULE_QUOTIENT;
            run(devices, k, seed);
          }
}

TEST(CudaQuantize, the_code_of_every_nan_in_a_state_as_the_cpu) {
  Devices devices;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  uint64_t seed = 1;
  for (const uint32_t granularity : {uint32_t{OCTAVO_FLAT_256}, uint32_t{OCTAVO_EXPANDED_128}})
    for (const uint32_t in : kIn)
      for (const int64_t skipped : {0, 3})
        for (const float factor : {0.37f, kNan, -kNan, std::numeric_limits<float>::infinity()})
          for (const Values values : {Values::kSpecial, Values::kNan}) {
            Twins twins(seed++);
            const auto from = twins.tensor(11, 117, in, values, 0, skipped);
            const auto to = twins.tensor(11, 117, OCTAVO_E4M3FN, Values::kNormal, 0, skipped);
            const size_t scales = twins.floats(std::vector<float>(64, 7.0f));
            const size_t given = twins.floats({factor});
            for (int side = 0; side < 2; ++side) {
              const octavo_tensor tensor = twins.at(side, from);
              octavo_tensor codes = twins.at(side, to);
              const octavo_scale s =
                  OCTAVO_SCALE(twins.data(side, scales), 0, OCTAVO_F32, granularity);
              auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
              c.in = &tensor;
              c.out = &codes;
              c.out_scale_inv = &s;
              c.in_scale_inv = twins.floats_at(side, given);
              ASSERT_EQ(devices.run(side, &octavo_kernels::quantize, c), OCTAVO_OK)
                  << devices.last_text();
            }
            twins.expect_equal("granularity " + std::to_string(granularity) + " in " +
                               std::to_string(in) + " factor " + std::to_string(factor));
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
  using Order = cuda_on_cpu::Script::Order;
  for (const Order order : {Order::kForward, Order::kBackward, Order::kShuffled, Order::kUnfair}) {
    cuda_on_cpu::script().order = order;
    for (const uint32_t granularity : {OCTAVO_PER_TENSOR, OCTAVO_PER_ROW, OCTAVO_BLOCK_1X128}) {
      run(devices,
          {{129, 257}, OCTAVO_F32, OCTAVO_E4M3FN, granularity, OCTAVO_RULE_QUOTIENT, true, true},
          3);
    }
  }
}

/* Which blocks of a grid had which row of tiles. */
__global__ void mark_row_tiles(int *marks) {
  ++marks[cuda::row_tile()];
}

/* A grid has at most 65535 blocks along an axis but x. */
TEST(CudaQuantize, more_tiles_than_a_grid_is_high) {
  reset_executor();
  for (const int64_t tiles : {int64_t{1}, int64_t{65535}, int64_t{65536}, int64_t{200001}}) {
    cudaLaunchConfig_t config = {};
    config.gridDim = cuda::tiles_of({tiles * cuda::kTile - 5, 1});
    config.blockDim = dim3(1);
    EXPECT_LE(config.gridDim.y, 65535u);
    std::vector<int> marks(static_cast<size_t>(config.gridDim.y) * config.gridDim.z);
    ASSERT_GE(marks.size(), static_cast<size_t>(tiles));
    ASSERT_EQ(cudaLaunchKernelEx(&config, mark_row_tiles, marks.data()), cudaSuccess);
    EXPECT_EQ(marks, std::vector<int>(marks.size(), 1)) << tiles;
  }
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
