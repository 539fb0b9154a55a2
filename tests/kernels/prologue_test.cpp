/* prologue: norms against fp64 with derived bounds and against the order that the kernels define,
 * activations against kernels/format, on every level and for any number of threads.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/format/activation.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/prologue_case.h"

namespace octavo::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kUnit = 0x1p-24; /* a rounding to fp32, relative */

octavo_status run(Kernels &kernels, const PrologueCase &t, octavo_tensor *out) {
  const octavo_prologue_call c = t.call(out);
  return kernels.table->prologue(kernels.ctx(), &c);
}

/* At least half of the distance between neighbours of a dtype around `value`. */
double rounding(uint32_t dtype, double value) {
  if (dtype == OCTAVO_F32) return kUnit * std::fabs(value);
  if (dtype == OCTAVO_BF16) return 0x1p-8 * std::fabs(value) + 0x1p-134;
  return 0x1p-11 * std::fabs(value) + 0x1p-25;
}

/* One row of a norm in fp64, and the bound of an fp32 result.
 *
 * A row sum in 16 parts and 4 steps has at most n / 16 + 4 roundings above one term, so with A the
 * mean of abs(x), mean is off by dm <= (n / 16 + 5) u A, u = 2^-24. A distance from it is off by dm
 * + u abs(d). Squares around a shifted mean add dm^2 to the variance V and no first order term, and
 * the sum has a relative error of (n / 16 + 8) u. So rstd is off by a relative r = (dm^2 / V + (n /
 * 16 + 8) u) / 2 + 3 u, and y by abs(rstd g) dm + abs(d rstd g) (r + 3 u) + u abs(y). RMSNorm has
 * the same with a mean of 0 and dm = 0. Second order terms are below 1 % of that. */
void expect_norm_row(const PrologueCase &t, const Matrix &out, int64_t row) {
  const auto n = static_cast<double>(t.cols);
  const bool has_mean = t.op == OCTAVO_PROLOGUE_LAYER_NORM;
  double sum = 0.0;
  double magnitude = 0.0;
  for (int64_t col = 0; col < t.cols; ++col) {
    sum += static_cast<double>(t.in.get(row, col));
    magnitude += std::fabs(static_cast<double>(t.in.get(row, col)));
  }
  const double mean = has_mean ? sum / n : 0.0;
  const double mean_bound = has_mean ? (n / 16 + 5) * kUnit * magnitude / n : 0.0;
  double squares = 0.0;
  for (int64_t col = 0; col < t.cols; ++col) {
    const double d = static_cast<double>(t.in.get(row, col)) - mean;
    squares += d * d;
  }
  const double variance = squares / n + static_cast<double>(t.p.eps);
  const double rstd = 1.0 / std::sqrt(variance);
  const double rstd_bound =
      (mean_bound * mean_bound / variance + (n / 16 + 8) * kUnit) / 2 + 3 * kUnit;
  if (has_mean) {
    ASSERT_NEAR(t.mean[static_cast<size_t>(row)], mean, 1.01 * mean_bound + 1e-40);
  }
  ASSERT_NEAR(t.rstd[static_cast<size_t>(row)], rstd, 1.01 * rstd_bound * rstd);
  for (int64_t col = 0; col < t.cols; ++col) {
    const double d = static_cast<double>(t.in.get(row, col)) - mean;
    const double gain = rstd * static_cast<double>(t.gamma.get(0, col));
    const double y = d * gain + (has_mean ? static_cast<double>(t.beta.get(0, col)) : 0.0);
    const double bound = std::fabs(gain) * mean_bound +
                         std::fabs(d * gain) * (rstd_bound + 3 * kUnit) + kUnit * std::fabs(y);
    ASSERT_NEAR(out.get(row, col), y, 1.01 * bound + rounding(out.dtype(), y))
        << row << ", " << col;
  }
}

/* What the dtype of the result keeps of a value. */
float stored(uint32_t dtype, float value) {
  uint8_t bytes[4];
  encode(dtype, value, bytes);
  return decode(dtype, bytes);
}

void expect_activation_row(const PrologueCase &t, const Matrix &out, int64_t row) {
  for (int64_t col = 0; col < t.cols; ++col) {
    const float x = t.in.get(row, col);
    const float y = t.op == OCTAVO_PROLOGUE_GELU        ? gelu(x)
                    : t.op == OCTAVO_PROLOGUE_GELU_TANH ? gelu_tanh(x)
                                                        : swiglu(x, t.in.get(row, t.cols + col));
    ASSERT_TRUE(same_value(out.get(row, col), stored(out.dtype(), y))) << row << ", " << col;
  }
}

void expect_rows(const PrologueCase &t, const Matrix &out) {
  for (int64_t row = 0; row < t.rows; ++row) {
    if (t.is_norm()) {
      ASSERT_NO_FATAL_FAILURE(expect_norm_row(t, out, row)) << t.name();
    } else {
      ASSERT_NO_FATAL_FAILURE(expect_activation_row(t, out, row)) << t.name();
    }
  }
}

TEST(Prologue, every_op_dtype_and_awkward_shape) {
  Kernels kernels;
  for (const uint32_t op : kPrologueOps) {
    for (const uint32_t in : kPlainDtypes) {
      for (const uint32_t result : kPlainDtypes) {
        for (const int64_t cols : {1, 15, 16, 17, 511, 512, 529, 1030}) {
          PrologueCase t(op, 5, cols, in, kPlainDtypes[cols % 3]);
          Matrix out(result, 5, cols, 2);
          ASSERT_EQ(run(kernels, t, out.tensor()), OCTAVO_OK) << kernels.host().last_text();
          ASSERT_NO_FATAL_FAILURE(expect_rows(t, out));
          ASSERT_EQ(*(out.at(4, cols - 1) + OCTAVO_DTYPE_BITS(result) / 8), Matrix::kFiller);
          ASSERT_EQ(t.mean[5], kUnwritten);
          ASSERT_EQ(t.rstd[5], kUnwritten);
        }
      }
    }
  }
}

TEST(Prologue, a_large_mean_does_not_cost_the_variance) {
  Kernels kernels;
  PrologueCase t(OCTAVO_PROLOGUE_LAYER_NORM, 4, 1000);
  for (int64_t row = 0; row < t.rows; ++row) {
    for (int64_t col = 0; col < t.cols; ++col) t.in.set(row, col, 1000.0f + t.in.get(row, col));
  }
  Matrix out(OCTAVO_F32, 4, 1000);
  ASSERT_EQ(run(kernels, t, out.tensor()), OCTAVO_OK);
  expect_rows(t, out);
}

TEST(Prologue, beta_mean_and_rstd_may_be_null) {
  Kernels kernels;
  PrologueCase t(OCTAVO_PROLOGUE_LAYER_NORM, 3, 40);
  Matrix with(OCTAVO_F32, 3, 40);
  Matrix without(OCTAVO_F32, 3, 40);
  for (int64_t col = 0; col < 40; ++col) t.beta.set(0, col, 0.0f);
  ASSERT_EQ(run(kernels, t, with.tensor()), OCTAVO_OK);
  t.p.beta = nullptr;
  t.p.mean = t.p.rstd = nullptr;
  ASSERT_EQ(run(kernels, t, without.tensor()), OCTAVO_OK) << kernels.host().last_text();
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t col = 0; col < 40; ++col) EXPECT_EQ(with.get(row, col), without.get(row, col));
  }
}

/* The definition in prologue_loops.h, as plain loops. */
float sum_by_definition(const std::vector<float> &terms) {
  float parts[16] = {};
  for (size_t i = 0; i < terms.size(); ++i) parts[i % 16] += terms[i];
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) parts[i] += parts[i + half];
  }
  return parts[0];
}

TEST(Prologue, a_norm_has_the_bits_of_its_definition) {
  Kernels kernels;
  for (const int64_t cols : {1, 15, 33, 512, 1029}) {
    PrologueCase t(OCTAVO_PROLOGUE_LAYER_NORM, 3, cols);
    Matrix out(OCTAVO_F32, 3, cols);
    ASSERT_EQ(run(kernels, t, out.tensor()), OCTAVO_OK);
    for (int64_t row = 0; row < 3; ++row) {
      std::vector<float> terms;
      for (int64_t col = 0; col < cols; ++col) terms.push_back(t.in.get(row, col));
      const auto n = static_cast<float>(cols);
      const float mean = sum_by_definition(terms) / n;
      for (float &term : terms) term = (term - mean) * (term - mean);
      const float rstd = 1.0f / std::sqrt(sum_by_definition(terms) / n + t.p.eps);
      EXPECT_EQ(t.mean[static_cast<size_t>(row)], mean);
      EXPECT_EQ(t.rstd[static_cast<size_t>(row)], rstd);
      for (int64_t col = 0; col < cols; ++col) {
        const float normal = (t.in.get(row, col) - mean) * rstd;
        ASSERT_EQ(out.get(row, col), normal * t.gamma.get(0, col) + t.beta.get(0, col));
      }
    }
  }
}

TEST(Prologue, levels_and_threads_give_equal_bits) {
  for (const uint32_t op : kPrologueOps) {
    for (const uint32_t dtype : kPlainDtypes) {
      std::vector<uint8_t> first;
      std::vector<float> mean;
      std::vector<float> rstd;
      for (const std::string &level : supported_levels()) {
        for (const int threads : {0, 1, 3}) {
          Kernels kernels(threads, level);
          PrologueCase t(op, 37, 541, dtype);
          t.in.set(3, 5, kNan);
          t.in.set(4, 6, -kNan);
          t.in.set(5, 7, -kInf);
          t.in.set(6, 8, kInf);
          t.in.set(7, 9, 3e38f);
          Matrix out(dtype, 37, 541);
          ASSERT_EQ(run(kernels, t, out.tensor()), OCTAVO_OK);
          if (first.empty()) {
            first = out.data();
            mean = t.mean;
            rstd = t.rstd;
          }
          EXPECT_EQ(out.data(), first) << t.name() << " " << level << " " << threads;
          const size_t bytes = mean.size() * sizeof(float);
          EXPECT_EQ(std::memcmp(t.mean.data(), mean.data(), bytes), 0) << level;
          EXPECT_EQ(std::memcmp(t.rstd.data(), rstd.data(), bytes), 0) << level;
        }
      }
    }
  }
}

TEST(Prologue, a_row_that_is_not_finite_becomes_nan_and_its_neighbours_do_not) {
  Kernels kernels;
  for (const uint32_t op : {OCTAVO_PROLOGUE_LAYER_NORM, OCTAVO_PROLOGUE_RMS_NORM}) {
    for (const float value : {kInf, -kInf, kNan}) {
      PrologueCase t(op, 3, 20);
      t.in.set(1, 4, value);
      Matrix out(OCTAVO_F32, 3, 20);
      ASSERT_EQ(run(kernels, t, out.tensor()), OCTAVO_OK);
      EXPECT_TRUE(std::isnan(out.get(1, 4)));
      EXPECT_FALSE(std::isfinite(t.rstd[1]) && t.rstd[1] != 0.0f);
      ASSERT_NO_FATAL_FAILURE(expect_norm_row(t, out, 0));
      ASSERT_NO_FATAL_FAILURE(expect_norm_row(t, out, 2));
    }
  }
}

TEST(Prologue, no_rows_are_legal) {
  Kernels kernels;
  for (const uint32_t op : kPrologueOps) {
    PrologueCase t(op, 0, 20);
    Matrix out(OCTAVO_F32, 0, 20);
    EXPECT_EQ(run(kernels, t, out.tensor()), OCTAVO_OK) << kernels.host().last_text();
  }
}

TEST(Prologue, a_constant_row_has_eps_alone) {
  Kernels kernels;
  PrologueCase t(OCTAVO_PROLOGUE_LAYER_NORM, 1, 64);
  for (int64_t col = 0; col < 64; ++col) t.in.set(0, col, 2.0f);
  Matrix out(OCTAVO_F32, 1, 64);
  ASSERT_EQ(run(kernels, t, out.tensor()), OCTAVO_OK);
  EXPECT_EQ(t.mean[0], 2.0f);
  EXPECT_EQ(t.rstd[0], 1.0f / std::sqrt(1e-5f));
  for (int64_t col = 0; col < 64; ++col) EXPECT_EQ(out.get(0, col), t.beta.get(0, col));
}

}  // namespace
}  // namespace octavo::test
