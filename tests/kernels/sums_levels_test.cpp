/* Sums of codes, rows and squares, and blocks of optimizer states, on every level against loops
 * over kernels/format, bit for bit.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "kernels/cpu/context.h"
#include "kernels/cpu/update_loops.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/support/draft_calls.h"

namespace octavo::test {
namespace {

constexpr int64_t kSizes[] = {1, 15, 17, 63, 65, 217, 4097};

TEST(SumLevels, every_pair_of_codes_has_the_bits_of_the_format) {
  for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
    const float largest = dtype == OCTAVO_E4M3FN ? kMaxE4m3 : kMaxE5m2;
    Matrix codes(dtype, 2, 65536);
    Matrix expected(dtype, 1, 65536);
    float outside = 0;
    for (int64_t i = 0; i < 65536; ++i) {
      *codes.at(0, i) = static_cast<uint8_t>(i);
      *codes.at(1, i) = static_cast<uint8_t>(i >> 8);
      const float sum = (0.0f + codes.get(0, i)) + codes.get(1, i); /* two -0 give +0 */
      expected.set(0, i, sum);
      outside += std::fabs(sum) > largest ? 1.0f : 0.0f;
    }
    for (const std::string &level : supported_levels()) {
      Kernels kernels(2, level);
      Matrix out(dtype, 1, 65536);
      float saturated = 0;
      auto c = make_call<octavo_sum_quantized>(OCTAVO_KIND_SUM_QUANTIZED);
      c.codes = codes.tensor()->data;
      c.out = out.tensor()->data;
      c.count = c.shard_stride = 65536;
      c.shards = 2;
      c.dtype = dtype;
      c.saturated = &saturated;
      ASSERT_EQ(draft_call(kernels.table, kernels.ctx(), &c), OCTAVO_OK);
      EXPECT_EQ(saturated, outside) << level;
      for (int64_t i = 0; i < 65536; ++i) {
        ASSERT_TRUE(same_value(out.get(0, i), expected.get(0, i)))
            << level << ": " << codes.get(0, i) << " + " << codes.get(1, i);
        const bool is_nan = std::isnan(out.get(0, i));
        ASSERT_TRUE(is_nan || out.code(0, i) == expected.code(0, i)) << level << " " << i;
      }
    }
  }
}

TEST(SumLevels, odd_sizes_and_shards_have_the_bits_of_the_format) {
  for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
    for (const int64_t count : kSizes) {
      for (const int64_t shards : {0, 1, 3, 8}) {
        Matrix codes(dtype, 8, count, 5);
        codes.fill(static_cast<unsigned>(count), dtype == OCTAVO_E4M3FN ? 100.0f : 20000.0f);
        Matrix expected(dtype, 1, count, 1);
        for (int64_t i = 0; i < count; ++i) {
          float sum = 0;
          for (int64_t shard = 0; shard < shards; ++shard) sum += codes.get(shard, i);
          expected.set(0, i, sum);
        }
        for (const std::string &level : supported_levels()) {
          Kernels kernels(0, level);
          Matrix out(dtype, 1, count, 1);
          auto c = make_call<octavo_sum_quantized>(OCTAVO_KIND_SUM_QUANTIZED);
          c.codes = codes.tensor()->data;
          c.out = out.tensor()->data;
          c.count = static_cast<uint64_t>(count);
          c.shards = static_cast<uint64_t>(shards);
          c.shard_stride = static_cast<uint64_t>(count + 5);
          c.dtype = dtype;
          ASSERT_EQ(draft_call(kernels.table, kernels.ctx(), &c), OCTAVO_OK);
          ASSERT_EQ(out.data(), expected.data()) << level << " " << count << " x " << shards;
        }
      }
    }
  }
}

/* The order of kernels/format/sum_order.h, written out. */
float expected_column(const Matrix &in, int64_t col, float scale_inv) {
  double total = 0;
  for (int64_t segment = 0; segment < in.rows(); segment += 256) {
    double of_segment = 0;
    for (int64_t piece = segment; piece < segment + 256 && piece < in.rows(); piece += 32) {
      double of_piece = 0;
      for (int64_t row = piece; row < piece + 32 && row < in.rows(); ++row)
        of_piece += static_cast<double>(in.get(row, col) * scale_inv);
      of_segment += of_piece;
    }
    total += of_segment;
  }
  return static_cast<float>(total);
}

double halves(std::vector<double> sums) {
  for (size_t half = sums.size() / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

float expected_squares(const Matrix &in, float scale_inv) {
  std::vector<double> total(256);
  const int64_t count = in.rows() * in.cols();
  for (int64_t first = 0; first < count; first += 4096) {
    std::vector<double> sums(256);
    for (int64_t i = first; i < first + 4096 && i < count; ++i) {
      const double value = static_cast<double>(in.get(i / in.cols(), i % in.cols()) * scale_inv);
      sums[static_cast<size_t>(i % 256)] += value * value;
    }
    total[static_cast<size_t>(first / 4096 % 256)] += halves(sums);
  }
  return static_cast<float>(halves(total));
}

TEST(SumLevels, rows_and_squares_follow_the_documented_order) {
  const auto expect_order = [](uint32_t dtype, int64_t rows, int64_t cols, int64_t gap) {
    Matrix in(dtype, rows, cols, gap);
    in.fill(static_cast<unsigned>(cols));
    /* Sizes far apart, so that another order gives other bits. */
    for (int64_t i = 0; i < rows * cols; i += 3)
      in.set(i / cols, i % cols, in.get(i / cols, i % cols) * (i % 2 == 0 ? 64.0f : 0.01f));
    const float scale_inv = 0.3f;
    const octavo_scale scale = per_tensor(&scale_inv);
    std::vector<float> expected;
    for (int64_t col = 0; col < cols; ++col)
      expected.push_back(expected_column(in, col, scale_inv));
    const float squares = expected_squares(in, scale_inv);
    for (const std::string &level : supported_levels()) {
      for (const int threads : {0, 3}) {
        Kernels kernels(threads, level);
        std::vector<float> out(static_cast<size_t>(cols));
        float found = 0;
        auto c = make_call<octavo_sum>(OCTAVO_KIND_SUM);
        c.in = in.tensor();
        c.in_scale_inv = &scale;
        c.out = out.data();
        ASSERT_EQ(kernels.table->sum_rows(kernels.ctx(), &c), OCTAVO_OK);
        EXPECT_EQ(out, expected) << level << " " << rows << " x " << cols;
        c.out = &found;
        ASSERT_EQ(kernels.sum_of_squares(c), OCTAVO_OK);
        EXPECT_EQ(found, squares) << level << " " << rows << " x " << cols;
      }
    }
  };
  for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_E4M3FN}) {
    for (const int64_t cols : kSizes) expect_order(dtype, 9, cols, cols % 2);
  }
  expect_order(OCTAVO_F32, 700, 33, 1);
  expect_order(OCTAVO_F32, 1100, 1100, 0); /* more than 256 segments of squares */
}

/* Groups as states have them, at both ends of their range, and some that no kernel writes. */
const ExpandedGroup kGroups[] = {{1.0f, 1.0f, 1.0f},           {0.013f, 2.0625f, 3e-5f},
                                 {3.7e4f, 16.0f, 0x1p-149f},   {0x1p-126f, 0.0625f, 0x1p127f},
                                 {9e-5f, 0.4375f, 1.7e-12f},   {0.0f, 0.0f, 0.0f},
                                 {-1.0f, 1.0f, 1.0f},          {1.0f, -2.0f, 1.0f},
                                 {INFINITY, 1.0f, 1.0f},       {1.0f, 1.0f, NAN},
                                 {0x1p-130f, 16.0f, 0x1p-140f}};

std::vector<float> values_of_all_kinds(int64_t n) {
  const float specials[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-45f, -1e-40f, kFloatMax};
  std::vector<float> values;
  std::mt19937 generator(static_cast<unsigned>(n));
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < n; ++i) {
    const float value = std::exp2(normal(generator) * 20.0f) * (i % 3 == 0 ? -1.0f : 1.0f);
    values.push_back(i % 11 == 10 ? specials[i / 11 % 8] : value);
  }
  return values;
}

TEST(StateLevels, blocks_have_the_bits_of_the_format) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(0, level);
    const StateLoops &loops = context_of(kernels.ctx()).level->updates.states;
    for (const int64_t n : {1, 15, 17, 63, 65, 127, 128, 217, 256}) {
      const std::vector<float> values = values_of_all_kinds(n);
      BlockRange range = {0.0f, 0.0f};
      for (const float value : values) include_value(&range, value);
      const BlockRange found = loops.range(values.data(), n);
      EXPECT_EQ(found.largest, range.largest) << level << " " << n;
      EXPECT_EQ(found.smallest, range.smallest) << level << " " << n;
      std::vector<uint8_t> codes(values.size());
      for (const float scale_inv : {flat_scale_inv(range), 0.3f, 1e-30f}) {
        loops.encode_flat(scale_inv, values.data(), n, codes.data());
        for (size_t i = 0; i < values.size(); ++i) {
          ASSERT_EQ(codes[i], encode_flat(scale_inv, values[i])) << level << " " << values[i];
        }
      }
      for (const ExpandedGroup &g : kGroups) {
        loops.encode_expanded(g, values.data(), n, codes.data());
        for (size_t i = 0; i < values.size(); ++i) {
          const uint8_t wanted = encode_expanded(g, values[i]);
          if ((wanted & 0x7F) == 0x7F) continue; /* NaN: its sign may differ */
          ASSERT_EQ(codes[i], wanted)
              << level << " " << values[i] << " beside " << g.scale_inv << ", " << g.exponent;
        }
      }
    }
  }
}

TEST(StateLevels, every_code_is_read_with_the_bits_of_the_format) {
  std::vector<uint8_t> codes(256);
  for (size_t i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(i);
  for (const std::string &level : supported_levels()) {
    Kernels kernels(0, level);
    const StateLoops &loops = context_of(kernels.ctx()).level->updates.states;
    for (const ExpandedGroup &g : kGroups) {
      for (const int64_t n : {256, 255, 3}) {
        std::vector<float> values(256, -7.0f);
        loops.decode_expanded(g, codes.data(), n, values.data());
        for (size_t i = 0; i < 256; ++i) {
          const float wanted = static_cast<int64_t>(i) < n ? decode_expanded(g, codes[i]) : -7.0f;
          ASSERT_TRUE(same_value(values[i], wanted))
              << level << " code " << i << " beside " << g.scale_inv << ", " << g.exponent << ": "
              << values[i] << ", expected " << wanted;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test
