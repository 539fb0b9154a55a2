/* compute_amax, sum_quantized, sum_rows, sum_of_squares, copy and scale_values.
 *
 * Sums of plain values are compared with fp64; the bound beside each number is derived.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/support/draft_calls.h"

namespace octavo::test {
namespace {

octavo_status sum_rows(const Kernels &kernels, const Matrix &in, float *out, uint32_t accumulate,
                       const octavo_scale *scale = nullptr) {
  auto c = make_call<octavo_sum>(OCTAVO_KIND_SUM);
  c.in = in.tensor();
  c.in_scale_inv = scale;
  c.out = out;
  c.accumulate = accumulate;
  return kernels.table->sum_rows(kernels.ctx(), &c);
}

octavo_status sum_of_squares(const Kernels &kernels, const Matrix &in, float *out,
                             const octavo_scale *scale = nullptr) {
  auto c = make_call<octavo_sum>(OCTAVO_KIND_SUM);
  c.in = in.tensor();
  c.in_scale_inv = scale;
  c.out = out;
  return kernels.sum_of_squares(c);
}

TEST(SumRows, equals_fp64_rounded_once) {
  Kernels kernels(2);
  for (const int64_t rows : {0, 1, 217}) {
    for (const int64_t cols : {1, 17, 300}) {
      Matrix in(OCTAVO_BF16, rows, cols, 1);
      in.fill(static_cast<unsigned>(rows + cols));
      std::vector<float> out(static_cast<size_t>(cols), 0.5f);
      ASSERT_EQ(sum_rows(kernels, in, out.data(), 0), OCTAVO_OK) << kernels.host().last_text();
      for (int64_t col = 0; col < cols; ++col) {
        double sum = 0;
        for (int64_t row = 0; row < rows; ++row) sum += in.get(row, col);
        /* Sums of so few bf16 values near 1 are exact in fp64. */
        ASSERT_EQ(out[static_cast<size_t>(col)], static_cast<float>(sum));
      }
      const std::vector<float> once = out;
      ASSERT_EQ(sum_rows(kernels, in, out.data(), 1), OCTAVO_OK);
      for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], once[i] + once[i]);
    }
  }
}

TEST(SumOfSquares, adds_to_what_is_there) {
  Kernels kernels(2);
  Matrix in(OCTAVO_E4M3FN, 65, 1030);
  in.fill(3);
  const float scale_inv = 0.25f;
  const octavo_scale scale = per_tensor(&scale_inv);
  double expected = 10.0;
  for (int64_t row = 0; row < in.rows(); ++row) {
    for (int64_t col = 0; col < in.cols(); ++col) {
      expected += std::pow(static_cast<double>(in.get(row, col)) * 0.25, 2);
    }
  }
  float out = 10.0f;
  ASSERT_EQ(sum_of_squares(kernels, in, &out, &scale), OCTAVO_OK);
  /* Two roundings to fp32: of the sum and of the addition. */
  EXPECT_NEAR(out, expected, expected * 2 * 0x1p-24);
  Matrix none(OCTAVO_F32, 0, 8);
  ASSERT_EQ(sum_of_squares(kernels, none, &out), OCTAVO_OK);
  EXPECT_NEAR(out, expected, expected * 2 * 0x1p-24);
}

TEST(Sums, threads_and_levels_give_equal_bits) {
  Matrix in(OCTAVO_F32, 217, 700);
  in.fill(9);
  Kernels reference(0, "baseline");
  float expected_squares = 0;
  std::vector<float> expected_rows(700);
  ASSERT_EQ(sum_of_squares(reference, in, &expected_squares), OCTAVO_OK);
  ASSERT_EQ(sum_rows(reference, in, expected_rows.data(), 0), OCTAVO_OK);
  for (const std::string &level : supported_levels()) {
    for (const int threads : {1, 2, 5}) {
      Kernels kernels(threads, level);
      float squares = 0;
      std::vector<float> rows(700);
      ASSERT_EQ(sum_of_squares(kernels, in, &squares), OCTAVO_OK);
      ASSERT_EQ(sum_rows(kernels, in, rows.data(), 0), OCTAVO_OK);
      EXPECT_EQ(squares, expected_squares) << level << " " << threads;
      EXPECT_EQ(rows, expected_rows) << level << " " << threads;
    }
  }
}

TEST(ComputeAmax, ignores_nan_and_reports_it) {
  Kernels kernels(2);
  Matrix in(OCTAVO_F32, 33, 600, 2);
  in.fill(4);
  in.set(20, 500, -9.0f);
  const float scale_inv = 0.5f;
  const octavo_scale scale = per_tensor(&scale_inv);
  float amax = 1.0f;
  float nonfinite = 0.0f;
  auto c = make_call<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX);
  c.in = in.tensor();
  c.in_scale_inv = &scale;
  c.amax = &amax;
  c.nonfinite = &nonfinite;
  ASSERT_EQ(kernels.table->compute_amax(kernels.ctx(), &c), OCTAVO_OK);
  EXPECT_EQ(amax, 4.5f);
  EXPECT_EQ(nonfinite, 0.0f);
  in.set(0, 0, std::numeric_limits<float>::quiet_NaN());
  amax = 1.0f;
  ASSERT_EQ(kernels.table->compute_amax(kernels.ctx(), &c), OCTAVO_OK);
  EXPECT_EQ(amax, 4.5f);
  EXPECT_EQ(nonfinite, 1.0f);
  in.set(0, 0, std::numeric_limits<float>::infinity());
  ASSERT_EQ(kernels.table->compute_amax(kernels.ctx(), &c), OCTAVO_OK);
  EXPECT_EQ(amax, std::numeric_limits<float>::infinity());
}

TEST(SumQuantized, sums_in_fp32_and_counts_what_left_the_range) {
  for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
    const float largest = dtype == OCTAVO_E4M3FN ? kMaxE4m3 : kMaxE5m2;
    Matrix codes(dtype, 3, 1300, 7); /* one shard per row */
    codes.fill(8, largest / 4);
    Matrix out(dtype, 1, 1300);
    Matrix expected(dtype, 1, 1300);
    float outside = 0;
    for (int64_t i = 0; i < 1300; ++i) {
      const float sum = (codes.get(0, i) + codes.get(1, i)) + codes.get(2, i);
      expected.set(0, i, sum);
      outside += std::fabs(sum) > largest ? 1.0f : 0.0f;
    }
    ASSERT_GT(outside, 0.0f);
    for (const int threads : {0, 2, 5}) {
      Kernels kernels(threads);
      float saturated = 2.0f;
      auto c = make_call<octavo_sum_quantized>(OCTAVO_KIND_SUM_QUANTIZED);
      c.codes = codes.tensor()->data;
      c.out = out.tensor()->data;
      c.count = 1300;
      c.shards = 3;
      c.shard_stride = 1307;
      c.saturated = &saturated;
      c.dtype = dtype;
      ASSERT_EQ(draft_call(kernels.table, kernels.ctx(), &c), OCTAVO_OK);
      EXPECT_EQ(out.data(), expected.data());
      EXPECT_EQ(saturated, 2.0f + outside);
    }
  }
}

/* A rank that sums everything where the others do the same counts as a share of one. */
TEST(SumQuantized, counts_what_it_adds_as_often_as_it_is_told) {
  Kernels kernels(2);
  Matrix codes(OCTAVO_E4M3FN, 2, 600);
  for (int64_t i = 0; i < 1200; ++i) codes.set(i / 600, i % 600, i % 600 < 10 ? 448.0f : 1.0f);
  Matrix out(OCTAVO_E4M3FN, 1, 600);
  float saturated = 3.0f;
  float added = 5.0f;
  auto c = make_call<octavo_sum_quantized>(OCTAVO_KIND_SUM_QUANTIZED);
  c.codes = codes.tensor()->data;
  c.out = out.tensor()->data;
  c.count = c.shard_stride = 600;
  c.shards = 2;
  c.dtype = OCTAVO_E4M3FN;
  c.added = &added;
  ASSERT_EQ(draft_call(kernels.table, kernels.ctx(), &c), OCTAVO_OK);
  EXPECT_EQ(added, 605.0f) << "also without *saturated";
  c.saturated = &saturated;
  c.count_as = 0.25f;
  ASSERT_EQ(draft_call(kernels.table, kernels.ctx(), &c), OCTAVO_OK);
  EXPECT_EQ(added, 755.0f);
  EXPECT_EQ(saturated, 5.5f);
  c.count = 0;
  ASSERT_EQ(draft_call(kernels.table, kernels.ctx(), &c), OCTAVO_OK);
  EXPECT_EQ(added, 755.0f);
  EXPECT_EQ(saturated, 5.5f);
}

TEST(Copy, copies_and_clears) {
  Kernels kernels(2);
  std::vector<uint8_t> from(1000003);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 7);
  std::vector<uint8_t> to(from.size() + 1, 0xEE);
  auto c = make_call<octavo_copy>(OCTAVO_KIND_COPY);
  c.out = to.data();
  c.in = from.data();
  c.bytes = from.size();
  ASSERT_EQ(kernels.table->copy(kernels.ctx(), &c), OCTAVO_OK);
  EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin()));
  EXPECT_EQ(to.back(), 0xEE);
  c.in = nullptr;
  ASSERT_EQ(kernels.table->copy(kernels.ctx(), &c), OCTAVO_OK);
  EXPECT_EQ(std::count(to.begin(), to.end(), 0), static_cast<int64_t>(from.size()));
}

TEST(ScaleValues, multiplies_in_place_too) {
  Kernels kernels(2);
  std::vector<float> values(40000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  auto c = make_call<octavo_scale_values>(OCTAVO_KIND_SCALE_VALUES);
  c.out = values.data();
  c.in = values.data();
  c.n = values.size();
  c.factor = 0.3f;
  ASSERT_EQ(draft_call(kernels.table, kernels.ctx(), &c), OCTAVO_OK);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<float>(i) * 0.3f);
}

}  // namespace
}  // namespace octavo::test
