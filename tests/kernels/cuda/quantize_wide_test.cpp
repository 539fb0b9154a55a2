/* quantize of matrices that device code takes sixteen elements at a time, and of those that miss
 * that by one element, against the CPU's kernels.
 */
#include "tests/kernels/cuda/quantize_case.h"

namespace octavo::test {
namespace {

constexpr uint32_t kIn[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2};
constexpr uint32_t kOut[] = {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16};
constexpr Values kValues[] = {Values::kNormal, Values::kSpecial, Values::kNan};

/* Rows and columns that are whole packs; with and without whole tiles, tall, flat and tiny. */
constexpr Size kSizes[] = {{1, 16},   {16, 16},  {128, 128}, {144, 272},
                           {320, 16}, {16, 640}, {1, 4096},  {48, 256}};

Case wide(const Size &size, uint32_t in, uint32_t out, uint32_t granularity, uint32_t rule,
          uint64_t seed) {
  const unsigned outputs = static_cast<unsigned>(seed % 3 + 1);
  Case k = {size, in, out, granularity, rule, (outputs & 1) != 0, (outputs & 2) != 0};
  k.in_layout = {seed % 2 == 0 ? 32 : 0, 0};
  k.out_layout = {seed % 5 == 0 ? 16 : 0, 0};
  k.out_t_layout = {seed % 3 == 0 ? 48 : 0, 0};
  k.padding = seed % 4 == 0 ? 16 : 0;
  k.keeps_positive = seed % 11 == 0;
  k.values = kValues[seed % std::size(kValues)];
  const bool is_plain = in == OCTAVO_F32 || in == OCTAVO_BF16;
  k.has_factor = seed % 5 == 0 && k.values != Values::kNan && (!is_plain || seed % 10 == 0);
  return k;
}

TEST(CudaQuantizeWide, one_scale_as_the_cpu) {
  Devices devices;
  uint64_t seed = 1;
  for (const uint32_t in : kIn) {
    for (const uint32_t out : kOut) {
      for (const Size &size : kSizes) {
        for (const uint32_t rule : {OCTAVO_RULE_GIVEN, OCTAVO_RULE_QUOTIENT}) {
          run(devices, wide(size, in, out, OCTAVO_PER_TENSOR, rule, seed), seed);
          ++seed;
        }
      }
    }
  }
}

/* Rows that are no multiple of four, and out without out_t, need no whole packs down. */
TEST(CudaQuantizeWide, any_number_of_rows_as_the_cpu) {
  Devices devices;
  uint64_t seed = 1;
  for (const uint32_t granularity : {OCTAVO_PER_TENSOR, OCTAVO_PER_ROW, OCTAVO_BLOCK_1X128}) {
    for (const int64_t rows : {1, 2, 7, 130}) {
      for (const int64_t cols : {16, 144, 528, 8208}) {
        if (rows * cols > 100000) continue;
        Case k =
            wide({rows, cols}, OCTAVO_BF16, OCTAVO_E4M3FN, granularity, OCTAVO_RULE_QUOTIENT, seed);
        k.has_out = true;
        k.has_out_t = false;
        run(devices, k, seed++);
        /* Padding makes the columns of out_t whole packs, the rows of the input not. */
        k.has_out_t = true;
        k.padding = 16 - rows % 16;
        k.out_layout.gap = 16 - (cols + k.padding) % 16;
        run(devices, k, seed++);
      }
    }
  }
}

TEST(CudaQuantizeWide, a_scale_for_each_row_as_the_cpu) {
  Devices devices;
  uint64_t seed = 1;
  for (const uint32_t in : kIn) {
    for (const uint32_t out : kOut) {
      for (const Size &size : kSizes) {
        run(devices, wide(size, in, out, OCTAVO_PER_ROW, OCTAVO_RULE_QUOTIENT, seed), seed);
        ++seed;
      }
    }
  }
}

TEST(CudaQuantizeWide, blocks_as_the_cpu) {
  Devices devices;
  constexpr uint32_t kRules[] = {OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2};
  constexpr uint32_t kMxRules[] = {OCTAVO_RULE_MX_UP, OCTAVO_RULE_MX_FLOOR};
  uint64_t seed = 1;
  for (const uint32_t granularity :
       {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32}) {
    for (const uint32_t in : kIn) {
      for (const uint32_t out : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
        for (const Size &size : {Size{16, 16}, Size{144, 272}, Size{256, 128}}) {
          const uint32_t rule =
              is_mx_granularity(granularity) ? kMxRules[seed / 3 % 2] : kRules[seed / 3 % 2];
          run(devices, wide(size, in, out, granularity, rule, seed), seed);
          ++seed;
        }
      }
    }
  }
}

/* Blocks of one output along lines, of the other as squares, and the other way round. */
TEST(CudaQuantizeWide, lines_and_squares_as_the_cpu) {
  Devices devices;
  constexpr uint32_t kPairs[][2] = {{OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128},
                                    {OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32}};
  for (const auto &pair : kPairs) {
    for (const bool is_square : {false, true}) {
      for (const int64_t off : {0, 1}) {
        const uint32_t rule = is_mx_granularity(pair[0]) ? uint32_t{OCTAVO_RULE_MX_UP}
                                                         : uint32_t{OCTAVO_RULE_QUOTIENT};
        Case k = {{144 + off, 272}, OCTAVO_BF16, OCTAVO_E4M3FN, pair[is_square], rule, true, true};
        k.granularity_t = pair[!is_square];
        k.in_layout = k.out_layout = k.out_t_layout = {0, 0};
        run(devices, k, 3);
      }
    }
  }
}

/* MX_FLOOR makes a NaN of an infinite amax; the padding of such a block is 0 all the same. */
TEST(CudaQuantizeWide, padding_of_blocks_without_a_scale_as_the_cpu) {
  Devices devices;
  for (const uint32_t granularity : {OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32}) {
    for (const unsigned outputs : {1u, 2u, 3u}) {
      Case k = {{144, 144},           OCTAVO_BF16,        OCTAVO_E4M3FN,     granularity,
                OCTAVO_RULE_MX_FLOOR, (outputs & 1) != 0, (outputs & 2) != 0};
      k.in_layout = k.out_layout = k.out_t_layout = {0, 0};
      k.padding = 16;
      run(devices, k, 3);
    }
  }
}

/* A matrix that begins one element too late, has rows one element too long, or a column too many:
 * none may be read 16 bytes at a time. Each of the three in turn, the others wide. */
TEST(CudaQuantizeWide, one_element_off_as_the_cpu) {
  Devices devices;
  uint64_t seed = 1;
  for (const uint32_t granularity : {OCTAVO_PER_TENSOR, OCTAVO_PER_ROW, OCTAVO_BLOCK_1X128}) {
    for (const uint32_t in : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_E4M3FN}) {
      for (const uint32_t out : {OCTAVO_E4M3FN, OCTAVO_F16}) {
        if (granularity == OCTAVO_BLOCK_1X128 && out == OCTAVO_F16) continue;
        for (int matrix = 0; matrix < 3; ++matrix) {
          for (const Layout layout : {Layout{0, 1}, Layout{1, 0}, Layout{8, 4}}) {
            Case k = wide({32, 144}, in, out, granularity, OCTAVO_RULE_QUOTIENT, 2);
            k.has_factor = false;
            k.padding = 0;
            k.in_layout = k.out_layout = k.out_t_layout = {0, 0};
            k.has_out = true;
            k.has_out_t = matrix == 2;
            (matrix == 0 ? k.in_layout : matrix == 1 ? k.out_layout : k.out_t_layout) = layout;
            run(devices, k, seed++);
          }
        }
      }
    }
  }
  for (const Size &size : {Size{32, 145}, Size{33, 144}, Size{31, 17}, Size{16, 20}}) {
    Case k = {size, OCTAVO_BF16, OCTAVO_E4M3FN, OCTAVO_PER_TENSOR, OCTAVO_RULE_QUOTIENT,
              true, true};
    k.in_layout = k.out_layout = k.out_t_layout = {0, 0};
    run(devices, k, seed++);
    k.has_out_t = false;
    run(devices, k, seed++);
  }
}

/* Which sign the product of infinity and 0 has is the processor's own matter. */
#ifndef OCTAVO_TESTS_ON_GPU
/* Scales that turn zeros, numbers or infinity into NaN, and a negative one. */
TEST(CudaQuantizeWide, scales_that_are_not_plain_as_the_cpu) {
  Devices devices;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float scale : {0.0f, -0.0f, -2.5f, kInf, 0x1p-149f, 0x1p127f}) {
    for (const bool has_out_t : {false, true}) {
      Case k = {{144, 144},        OCTAVO_BF16, OCTAVO_E4M3FN, OCTAVO_PER_TENSOR,
                OCTAVO_RULE_GIVEN, true,        has_out_t};
      k.in_layout = k.out_layout = k.out_t_layout = {16, 0};
      k.padding = 16;
      k.scale = scale;
      run(devices, k, 3);
    }
  }
}

/* Tiny amaxes: scales of infinity, whose products with 0 are NaN; of all rows and columns, or of
 * one row whose columns have others. */
TEST(CudaQuantizeWide, infinite_scales_of_rows_as_the_cpu) {
  Devices devices;
  for (uint64_t seed = 1; seed < 20; ++seed) {
    const bool has_out = seed % 4 == 0;
    Case k = {{144, 144},          OCTAVO_BF16, OCTAVO_E4M3FN, OCTAVO_PER_ROW,
              OCTAVO_RULE_MSAMP04, has_out,     true};
    k.in_layout = k.out_layout = k.out_t_layout = {0, 0};
    k.values = seed % 4 == 0 ? Values::kTinyFirst : Values::kTiny;
    run(devices, k, seed);
  }
}

/* An infinite amax: the scale is 0, and its products with infinity are NaN. */
TEST(CudaQuantizeWide, deepgemm_of_infinity_as_the_cpu) {
  Devices devices;
  for (const uint32_t granularity : {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128}) {
    for (const uint32_t rule : {OCTAVO_RULE_DEEPGEMM, OCTAVO_RULE_DEEPGEMM_POW2}) {
      Case k = {{144, 144}, OCTAVO_BF16, OCTAVO_E4M3FN, granularity, rule, true, true};
      k.in_layout = k.out_layout = k.out_t_layout = {0, 0};
      run(devices, k, 3);
    }
  }
}
#endif

}  // namespace
}  // namespace octavo::test
