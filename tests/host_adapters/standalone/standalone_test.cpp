// octavo::standalone against plain double arithmetic, and its rules of text, names and faults. What
// its ranks, files and endings do is in the tests of train_gpt, which runs on them.
//
// Tolerances are derived beside each number.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "host_adapters/standalone/checkpoint_folder.h"
#include "host_adapters/standalone/loops.h"
#include "host_adapters/standalone/random.h"
#include "host_adapters/standalone/simd.h"
#include "host_adapters/standalone/team.h"
#include "host_adapters/standalone/text.h"

namespace octavo::standalone {
namespace {

std::vector<const Simd *> levels_of_this_machine() {
  std::vector<const Simd *> levels = {&kSimdBaseline};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) levels.push_back(&kSimdAvx2);
  if (__builtin_cpu_supports("avx512f")) levels.push_back(&kSimdAvx512);
#endif
  return levels;
}

std::vector<float> random_values(size_t count, uint64_t stream) {
  Random random(5, stream);
  std::vector<float> values(count);
  for (float &v : values) v = static_cast<float>(random.normal());
  return values;
}

TEST(Gemm, matches_double_for_every_edge_and_transposition) {
  const Threads threads(2);
  for (const auto &[m, n, k] :
       {std::array<int64_t, 3>{1, 1, 1}, {7, 9, 5}, {13, 33, 300}, {64, 48, 256}, {25, 70, 513}}) {
    const std::vector<float> a = random_values(static_cast<size_t>(m * k), 1);
    const std::vector<float> b = random_values(static_cast<size_t>(k * n), 2);
    std::vector<float> scratch(static_cast<size_t>(gemm_scratch(k, n)));
    for (int shape = 0; shape < 4; ++shape) {
      const Matrix left =
          (shape & 1) != 0 ? row_major(a.data(), k, m).transposed() : row_major(a.data(), m, k);
      const Matrix right =
          (shape & 2) != 0 ? row_major(b.data(), n, k).transposed() : row_major(b.data(), k, n);
      // Two columns of padding, which must stay as they are.
      std::vector<float> c(static_cast<size_t>(m * (n + 2)), 99.0f);
      gemm(&threads, left, right, c.data(), n + 2, scratch.data());
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0.0;
          double size = 0.0;
          for (int64_t p = 0; p < k; ++p) {
            const double term =
                static_cast<double>(left.data[i * left.row_stride + p * left.col_stride]) *
                static_cast<double>(right.data[p * right.row_stride + j * right.col_stride]);
            sum += term;
            size += std::fabs(term);
          }
          // k products and k additions, each with a relative error of at most 2^-24.
          EXPECT_NEAR(c[static_cast<size_t>(i * (n + 2) + j)], sum,
                      size * static_cast<double>(2 * k) * 0x1p-24)
              << m << "x" << n << "x" << k << " shape " << shape << " at " << i << "," << j;
        }
        EXPECT_EQ(c[static_cast<size_t>(i * (n + 2) + n)], 99.0f);
        EXPECT_EQ(c[static_cast<size_t>(i * (n + 2) + n + 1)], 99.0f);
      }
    }
  }
}

TEST(Gemm, gives_equal_bits_for_every_number_of_threads) {
  const int64_t m = 61, n = 83, k = 517;
  const std::vector<float> a = random_values(static_cast<size_t>(m * k), 3);
  const std::vector<float> b = random_values(static_cast<size_t>(k * n), 4);
  std::vector<float> scratch(static_cast<size_t>(gemm_scratch(k, n)));
  auto product = [&](const Threads *threads) {
    std::vector<float> c(static_cast<size_t>(m * n));
    gemm(threads, row_major(a.data(), m, k), row_major(b.data(), k, n), c.data(), n,
         scratch.data());
    return c;
  };
  const std::vector<float> alone = product(nullptr);
  for (const uint32_t count : {1u, 2u, 3u}) {
    const Threads threads(count);
    EXPECT_EQ(product(&threads), alone) << count << " threads";
  }
}

double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(Simd, gelu_and_its_slope_match_double) {
  std::vector<float> x = random_values(1003, 5);
  for (float &v : x) v *= 4.0f;
  x[0] = 0.0f;
  x[1] = 40.0f;
  x[2] = -40.0f;
  const std::vector<float> dy(x.size(), 1.0f);
  for (const Simd *level : levels_of_this_machine()) {
    std::vector<float> y(x.size()), dx(x.size());
    level->gelu_forward(x.data(), y.data(), static_cast<int64_t>(x.size()));
    level->gelu_backward(x.data(), dy.data(), dx.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = static_cast<double>(x[i]);
      const double h = 1e-5;
      const double slope = (gelu(v + h) - gelu(v - h)) / (2.0 * h);
      // The gate is wrong by a few 2^-24 times its argument, which matters up to |2u| of about 16.
      EXPECT_NEAR(y[i], gelu(v), std::max(1.0, std::fabs(v)) * 32.0 * 0x1p-24) << level->name;
      // The slope sums terms up to 0.5 x inner, inner up to 1.6 (1 + 0.14 x^2) while s(1-s) fades.
      EXPECT_NEAR(dx[i], slope, 64.0 * 0x1p-24 + 1e-9) << level->name << " at " << v;
    }
  }
}

TEST(Simd, softmax_matches_double_and_survives_extremes) {
  for (const Simd *level : levels_of_this_machine()) {
    for (const int64_t count : {1, 3, 8, 17, 256}) {
      std::vector<float> row = random_values(static_cast<size_t>(count), 6);
      for (float &v : row) v = v * 30.0f + 1000.0f;
      const float top = *std::max_element(row.begin(), row.end());
      double sum = 0.0;
      for (const float v : row) sum += std::exp(static_cast<double>(v - top));
      std::vector<float> result = row;
      const float log_sum = level->softmax_row(result.data(), count);
      EXPECT_NEAR(log_sum, static_cast<double>(top) + std::log(sum), 1100.0 * 0x1p-23);
      for (size_t i = 0; i < row.size(); ++i) {
        const double expected = std::exp(static_cast<double>(row[i] - top)) / sum;
        // The reduced argument is wrong by 2^-24 |x|, |x| < 88; the rest is a few roundings.
        EXPECT_NEAR(result[i], expected, expected * 100.0 * 0x1p-24 + 1e-37) << level->name;
      }
    }
  }
}

TEST(Precision, bf16_rounds_to_nearest_even) {
  EXPECT_EQ(round_bf16(1.0f), 1.0f);
  EXPECT_EQ(round_bf16(1.0f + 0x1p-8f), 1.0f);                       // a tie, down to even
  EXPECT_EQ(round_bf16(1.0f + 3.0f * 0x1p-8f), 1.0f + 0x1p-6f);      // a tie, up to even
  EXPECT_EQ(round_bf16(1.0f + 0x1p-8f + 0x1p-20f), 1.0f + 0x1p-7f);  // above a tie
  EXPECT_EQ(round_bf16(-1.0f - 0x1p-8f - 0x1p-20f), -1.0f - 0x1p-7f);
  EXPECT_EQ(round_bf16(std::numeric_limits<float>::max()), INFINITY);
  EXPECT_EQ(round_bf16(-INFINITY), -INFINITY);
  EXPECT_TRUE(std::isnan(round_bf16(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Table, aligns_text_left_and_numbers_right) {
  EXPECT_EQ(table({{"run", "loss"}, {"a", "1.5"}, {"longer", "10.25"}}, 1, false),
            "run      loss\n-------------\na         1.5\nlonger  10.25\n");
  EXPECT_EQ(grouped(1234567), "1 234 567");
  EXPECT_EQ(grouped(123), "123");
}

TEST(GradientFaults, hit_one_call_in_n_with_one_element) {
  const std::vector<float> dy(50, 1.0f);
  GradientFault fault(10, 7, 0);
  int hits = 0;
  for (int64_t step = 0; step < 200; ++step) {
    fault.start_step(step);
    for (int call = 0; call < 10; ++call) {
      const float *passed = fault.pass(dy.data(), 50);
      if (passed == dy.data()) continue;
      ++hits;
      int infinite = 0;
      for (int i = 0; i < 50; ++i)
        infinite += std::isinf(passed[i]) ? 1 : passed[i] == 1.0f ? 0 : 9;
      EXPECT_EQ(infinite, 1);
    }
  }
  // Binomial, n = 2000 and p = 0.1: 200 with a deviation of 13.4; five of them.
  EXPECT_NEAR(hits, 200, 67);
  EXPECT_EQ(fault.injected(), hits);
  EXPECT_EQ(dy, std::vector<float>(50, 1.0f)) << "the caller's gradient is not touched";
}

TEST(GradientFaults, depend_on_seed_step_and_rank_alone) {
  const std::vector<float> dy(40, 1.0f);
  auto calls = [&](uint64_t seed, uint32_t rank, int64_t first) {
    GradientFault fault(3, seed, rank);
    std::vector<bool> hit;
    for (int64_t step = first; step < 30; ++step) {
      fault.start_step(step);
      for (int call = 0; call < 5; ++call) {
        const bool is_hit = fault.pass(dy.data(), 40) != dy.data();
        if (step >= 20) hit.push_back(is_hit);
      }
    }
    return hit;
  };
  EXPECT_EQ(calls(1, 0, 0), calls(1, 0, 20)) << "a training that goes on meets the same faults";
  EXPECT_NE(calls(1, 0, 0), calls(2, 0, 0));
  EXPECT_NE(calls(1, 0, 0), calls(1, 1, 0));
}

TEST(CheckpointFolder, names_of_directories_tell_runs_apart) {
  EXPECT_EQ(run_directory("d", "te:recipe=delayed,margin=0"), "d/te:recipe=delayed,margin=0");
  EXPECT_EQ(run_directory("d", "x:path=/a b%"), "d/x:path=%2Fa%20b%25");
}

TEST(Team, shares_threads_out) {
  EXPECT_EQ(threads_per_rank(8, 3), 2u);
  EXPECT_EQ(threads_per_rank(2, 4), 1u);
  EXPECT_GE(threads_per_rank(0, 1), 1u);
}

}  // namespace
}  // namespace octavo::standalone
