/* dequantize, quantize_stats and small verbs of device code against the CPU's kernels. */
#include "tests/kernels/cuda/twins.h"

namespace octavo::test {
namespace {

constexpr uint32_t kPlain[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16};

/* Scales of any granularity. */
Twins::Scales random_scales(Twins &twins, uint32_t granularity, int64_t rows, int64_t cols) {
  octavo_scale s = {};
  s.granularity = granularity;
  s.dtype = OCTAVO_F32;
  s.stride = 1;
  int64_t count = 1;
  if (granularity == OCTAVO_PER_ROW) count = rows;
  if (granularity == OCTAVO_FLAT_256) count = divide_up(rows * cols, 256);
  if (granularity == OCTAVO_EXPANDED_128) count = divide_up(rows * cols, 128) * 3, s.stride = 3;
  if (is_block_granularity(granularity)) {
    s.stride = divide_up(cols, block_cols(granularity));
    count = divide_up(rows, block_rows(granularity)) * s.stride;
  }
  if (is_mx_granularity(granularity)) {
    s.dtype = OCTAVO_E8M0FNU;
    return {twins.bytes(static_cast<size_t>(count), 0x79), s};
  }
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(0.1f + static_cast<float>(i % 7));
  return {twins.floats(values), s};
}

constexpr uint32_t kGranularities[] = {OCTAVO_PER_TENSOR,    OCTAVO_PER_ROW,     OCTAVO_BLOCK_1X128,
                                       OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_1X32,  OCTAVO_BLOCK_32X32,
                                       OCTAVO_FLAT_256,      OCTAVO_EXPANDED_128};

/* Dequantizes a matrix with these gaps behind its rows and elements before the first. */
struct Layout {
  int64_t gap, skipped;
};

void dequantize_both(Devices &devices, uint64_t seed, uint32_t granularity, uint32_t in,
                     uint32_t out, int64_t rows, int64_t cols, Layout from_layout,
                     Layout to_layout) {
  const bool is_state = is_state_granularity(granularity);
  if (is_state && in != OCTAVO_E4M3FN) return;
  if (is_block_granularity(granularity) && in == OCTAVO_F16) return;
  if (is_state) from_layout.gap = to_layout.gap = 0;
  Twins twins(seed);
  const auto codes =
      twins.tensor(rows, cols, in, Values::kSpecial, from_layout.gap, from_layout.skipped);
  const auto values =
      twins.tensor(rows, cols, out, Values::kSpecial, to_layout.gap, to_layout.skipped);
  const Twins::Scales scales = random_scales(twins, granularity, rows, cols);
  for (int side = 0; side < 2; ++side) {
    const octavo_tensor from = twins.at(side, codes);
    octavo_tensor to = twins.at(side, values);
    const octavo_scale s = twins.at(side, scales);
    auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
    c.in = &from;
    c.out = &to;
    c.scale_inv = &s;
    c.accumulate = seed % 2;
    ASSERT_EQ(devices.run(side, &octavo_kernels::dequantize, c), OCTAVO_OK) << devices.last_text();
  }
  twins.expect_equal("granularity " + std::to_string(granularity) + " in " + std::to_string(in) +
                     " out " + std::to_string(out) + " [" + std::to_string(rows) + ", " +
                     std::to_string(cols) + "] gaps " + std::to_string(from_layout.gap) + ", " +
                     std::to_string(to_layout.gap));
}

TEST(CudaValues, dequantize_as_the_cpu) {
  Devices devices;
  uint64_t seed = 1;
  for (const uint32_t granularity : kGranularities) {
    for (const uint32_t in : {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16}) {
      for (const uint32_t out : kPlain)
        dequantize_both(devices, seed++, granularity, in, out, 65, 139, {3, 0}, {1, 0});
    }
  }
}

/* Matrices that are read 16 bytes at a time, and those that miss that by one element. */
TEST(CudaValues, dequantize_of_wide_matrices_as_the_cpu) {
  Devices devices;
  uint64_t seed = 1;
  constexpr Layout kLayouts[][2] = {{{0, 0}, {0, 0}}, {{32, 0}, {16, 0}}, {{0, 1}, {0, 0}},
                                    {{0, 0}, {0, 1}}, {{1, 0}, {0, 0}},   {{0, 0}, {1, 0}}};
  for (const uint32_t granularity : kGranularities) {
    for (const uint32_t in : {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16}) {
      for (const uint32_t out : kPlain) {
        for (const auto &layouts : kLayouts)
          dequantize_both(devices, seed++, granularity, in, out, 37, 144, layouts[0], layouts[1]);
        dequantize_both(devices, seed++, granularity, in, out, 5, 4112, {0, 0}, {0, 0});
      }
    }
  }
}

TEST(CudaValues, change_of_dtype_as_the_cpu) {
  Devices devices;
  for (const uint32_t in : kPlain) {
    for (const uint32_t out : kPlain) {
      Twins twins(in + out);
      const int64_t cols = in == OCTAVO_F16 ? 33 : 32; /* 16 bytes at a time or not */
      const auto from_shape = twins.tensor(17, cols, in, Values::kSpecial);
      const auto to_shape = twins.tensor(17, cols, out, Values::kNormal);
      for (int side = 0; side < 2; ++side) {
        const octavo_tensor from = twins.at(side, from_shape);
        octavo_tensor to = twins.at(side, to_shape);
        auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
        c.in = &from;
        c.out = &to;
        ASSERT_EQ(devices.run(side, &octavo_kernels::dequantize, c), OCTAVO_OK);
      }
      twins.expect_equal(std::to_string(in) + " to " + std::to_string(out));
    }
  }
}

TEST(CudaValues, statistics_as_the_cpu) {
  Devices devices;
  uint64_t seed = 1;
  for (const uint32_t granularity :
       {OCTAVO_PER_TENSOR, OCTAVO_PER_ROW, OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_32X32}) {
    for (const uint32_t dtype : kPlain) {
      for (const int64_t cols : {1, 700}) {
        Twins twins(seed++);
        const auto values = twins.tensor(33, cols, dtype, Values::kSpecial, 2);
        const auto codes = twins.tensor(40, cols + 3, OCTAVO_E4M3FN, Values::kSpecial);
        const Twins::Scales scales = random_scales(twins, granularity, 40, cols + 3);
        const size_t sums = twins.floats({1.0f, 2.0f, 3.0f, 4.0f});
        for (int side = 0; side < 2; ++side) {
          const octavo_tensor in = twins.at(side, values);
          const octavo_tensor of = twins.at(side, codes);
          const octavo_scale s = twins.at(side, scales);
          auto c = make_call<octavo_quantize_stats>(OCTAVO_KIND_QUANTIZE_STATS);
          c.in = &in;
          c.codes = &of;
          c.scale_inv = &s;
          float *to = twins.floats_at(side, sums);
          c.saturated = to;
          c.underflow = to + 1;
          c.signal = to + 2;
          c.noise = to + 3;
          ASSERT_EQ(devices.run(side, &octavo_kernels::quantize_stats, c), OCTAVO_OK)
              << devices.last_text();
        }
        twins.expect_equal("granularity " + std::to_string(granularity));
      }
    }
  }
}

TEST(CudaValues, round_codes_as_the_cpu) {
  Devices devices;
  uint64_t seed = 1;
  const std::pair<int64_t, int64_t> shapes[] = {{1, 1}, {67, 300}, {160, 33}};
  for (const uint32_t granularity : {OCTAVO_PER_TENSOR, OCTAVO_PER_ROW, OCTAVO_BLOCK_1X128,
                                     OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32}) {
    for (const uint32_t dtype : kPlain) {
      for (const bool turns : {false, true}) {
        for (const auto &[rows, cols] : shapes) {
          Twins twins(seed++);
          const auto values = twins.tensor(rows, cols, dtype, Values::kSpecial, 2);
          const uint32_t to = seed % 2 == 0 ? OCTAVO_E4M3FN : OCTAVO_E5M2;
          const int64_t height = (turns ? cols : rows) + 3, width = (turns ? rows : cols) + 1;
          const auto codes = twins.tensor(height, width, to, Values::kSpecial, 5);
          const Twins::Scales scales = random_scales(twins, granularity, height, width);
          const size_t count = twins.floats({static_cast<float>(seed)});
          for (int side = 0; side < 2; ++side) {
            const octavo_tensor in = twins.at(side, values);
            const octavo_tensor of = twins.at(side, codes);
            const octavo_scale s = twins.at(side, scales);
            auto c = make_call<octavo_round_codes>(OCTAVO_KIND_ROUND_CODES);
            c.in = &in;
            c.codes = &of;
            c.scale_inv = &s;
            c.count = twins.floats_at(side, count);
            c.key = seed;
            c.is_transposed = turns ? 1 : 0;
            ASSERT_EQ(devices.run(side, &octavo_rounding_kernels::round_codes, c), OCTAVO_OK)
                << devices.last_text();
            auto next = make_call<octavo_count>(OCTAVO_KIND_COUNT);
            next.count = twins.floats_at(side, count);
            ASSERT_EQ(devices.run(side, &octavo_rounding_kernels::count, next), OCTAVO_OK);
          }
          twins.expect_equal("granularity " + std::to_string(granularity) + " in " +
                             std::to_string(dtype) + (turns ? " turned" : ""));
        }
      }
    }
  }
}

TEST(CudaValues, amax_copies_and_factors_as_the_cpu) {
  Devices devices;
  for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2}) {
    Twins twins(dtype);
    const auto in = twins.tensor(37, 61, dtype, Values::kSpecial, 1);
    const Twins::Scales scales = random_scales(twins, OCTAVO_PER_TENSOR, 1, 1);
    const size_t found = twins.floats({0.0f, 0.0f});
    const size_t target = twins.bytes(1001, 3);
    const size_t source = twins.bytes(1001, 9);
    const size_t values = twins.floats({1.0f, -2.0f, 3.5f, std::numeric_limits<float>::infinity()});
    for (int side = 0; side < 2; ++side) {
      const octavo_tensor from = twins.at(side, in);
      const octavo_scale s = twins.at(side, scales);
      auto amax = make_call<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX);
      amax.in = &from;
      amax.in_scale_inv = &s;
      amax.amax = twins.floats_at(side, found);
      amax.nonfinite = amax.amax + 1;
      auto copied = make_call<octavo_copy>(OCTAVO_KIND_COPY);
      copied.out = twins.data(side, target);
      copied.in = dtype == OCTAVO_F32 ? nullptr : twins.data(side, source);
      copied.bytes = 1000;
      auto scaled = make_call<octavo_scale_values>(OCTAVO_KIND_SCALE_VALUES);
      scaled.out = twins.floats_at(side, values);
      scaled.in = scaled.out;
      scaled.n = 4;
      scaled.factor = 0.3f;
      EXPECT_EQ(devices.run(side, &octavo_kernels::compute_amax, amax), OCTAVO_OK);
      EXPECT_EQ(devices.run(side, &octavo_kernels::copy, copied), OCTAVO_OK);
      EXPECT_EQ(devices.run(side, &octavo_msamp_kernels::scale_values, scaled), OCTAVO_OK);
    }
    twins.expect_equal("dtype " + std::to_string(dtype));
  }
}

}  // namespace
}  // namespace octavo::test
