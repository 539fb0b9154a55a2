/* gemm with block scales: bit for bit the loop that octavo/kernels.h defines, and close to fp64.
 *
 * NaN is compared by class: which NaN an addition passes on is not part of the contract.
 */
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/kernels/block_matrices.h"
#include "tests/kernels/fake_host.h"

namespace octavo::test {
namespace {

struct Pair {
  uint32_t a;
  uint32_t b;
};

constexpr Pair kPairs[] = {
    {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_1X128},   {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128},
    {OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_1X128}, {OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_128X128},
    {OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_1X32},     {OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32},
    {OCTAVO_BLOCK_32X32, OCTAVO_BLOCK_1X32},    {OCTAVO_BLOCK_32X32, OCTAVO_BLOCK_32X32}};

struct BlockProduct {
  Matrix a;
  Matrix b;
  Matrix d;
  Matrix bias;
  Scales a_scales;
  Scales b_scales;
  octavo_gemm c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);

  BlockProduct(const Pair &pair, uint32_t a_dtype, uint32_t b_dtype, uint32_t d_dtype, int64_t m,
               int64_t n, int64_t k)
      : a(a_dtype, m, k, 1),
        b(b_dtype, n, k, 5),
        d(d_dtype, m, n, 3),
        bias(OCTAVO_BF16, 1, n),
        a_scales(pair.a, m, k, 1),
        b_scales(pair.b, n, k, 2) {
    a.fill(static_cast<unsigned>(m + 7 * k), 3.0f);
    b.fill(static_cast<unsigned>(n + 5 * k), 3.0f);
    d.fill(3);
    bias.fill(4);
    a_scales.fill(static_cast<unsigned>(m));
    b_scales.fill(static_cast<unsigned>(n));
    c.a = a.tensor();
    c.b = b.tensor();
    c.d = d.tensor();
    c.a_scale_inv = a_scales.get();
    c.b_scale_inv = b_scales.get();
  }
  BlockProduct(const BlockProduct &) = delete;
  BlockProduct &operator=(const BlockProduct &) = delete;
};

std::vector<float> values_of(const Matrix &m) {
  std::vector<float> values;
  for (int64_t row = 0; row < m.rows(); ++row) {
    for (int64_t col = 0; col < m.cols(); ++col) values.push_back(m.get(row, col));
  }
  return values;
}

/* The sums of the contract, written down plainly, before bias, accumulation and rounding; and per
 * element the exact sum and the sum of absolute values, in fp64. */
struct Sums {
  std::vector<float> plain;
  std::vector<double> exact;
  std::vector<double> absolute;
};

Sums sums_of(const BlockProduct &p) {
  const auto k = static_cast<size_t>(p.a.cols());
  const auto length = static_cast<size_t>(length_of(p.c.a_scale_inv->granularity));
  const std::vector<float> a = values_of(p.a);
  const std::vector<float> b = values_of(p.b);
  Sums sums;
  for (int64_t row = 0; row < p.a.rows(); ++row) {
    for (int64_t col = 0; col < p.b.rows(); ++col) {
      const float *left = a.data() + static_cast<size_t>(row) * k;
      const float *right = b.data() + static_cast<size_t>(col) * k;
      float sum = 0.0f;
      double exact = 0.0;
      double absolute = 0.0;
      for (size_t begin = 0; begin < k; begin += length) {
        const auto block = static_cast<int64_t>(begin / length);
        const float a_scale = p.a_scales.of(row, block * static_cast<int64_t>(length));
        const float b_scale = p.b_scales.of(col, block * static_cast<int64_t>(length));
        const double scale = static_cast<double>(a_scale) * static_cast<double>(b_scale);
        float part = 0.0f;
        for (size_t i = begin; i < std::min(k, begin + length); ++i) {
          const float product = left[i] * right[i];
          part = part + product;
          exact += static_cast<double>(product) * scale;
          absolute += std::fabs(static_cast<double>(product) * scale);
        }
        const float factor = a_scale * b_scale;
        const float scaled = part * factor;
        sum = sum + scaled;
      }
      sums.plain.push_back(sum);
      sums.exact.push_back(exact);
      sums.absolute.push_back(absolute);
    }
  }
  return sums;
}

Matrix expected_of(const BlockProduct &p, const Sums &sums) {
  Matrix result = p.d;
  const uint32_t dtype = p.d.dtype();
  size_t index = 0;
  for (int64_t row = 0; row < p.d.rows(); ++row) {
    for (int64_t col = 0; col < p.d.cols(); ++col) {
      float value = sums.plain[index++];
      if (p.c.bias != nullptr && p.c.bias_after != 0) {
        value = rounded(dtype, rounded(dtype, value) + p.bias.get(0, col));
      } else if (p.c.bias != nullptr) {
        value += p.bias.get(0, col);
      }
      if (p.c.accumulate != 0) value = result.get(row, col) + value;
      result.set(row, col, value);
    }
  }
  return result;
}

void expect_plain_loop(Kernels *kernels, BlockProduct *p) {
  const Matrix expected = expected_of(*p, sums_of(*p));
  ASSERT_EQ(kernels->gemm(p->c), OCTAVO_OK) << kernels->host().last_text();
  ASSERT_NO_FATAL_FAILURE(expect_equal(p->d, expected));
}

/* How far the fp32 result may be from the exact sum R of products a b sa sb, with u = 2^-24 and B
 * blocks of L elements. Products of codes are exact. One product passes through at most L - 1
 * roundings of its block's sum (the first addition, to 0, is exact), one of fl(sa * sb), one of
 * fl(p * fl(sa * sb)), and B - 1 of the outer sum, so L + B in all. Each is a factor 1 + e with
 * abs(e) <= u, so the result is the sum of the terms times factors within (1 + u)^(L + B), and
 *   abs(result - R) <= g * sum of abs(a b sa sb),  g = (L + B) u / (1 - (L + B) u).
 * The fp64 reference adds at most (K + 2) 2^-53 of the same sum. Nothing underflows here: terms are
 * at least 2^-32 * 2^-8. */
double bound_of(int64_t k, int64_t length, double absolute) {
  const auto roundings = static_cast<double>(std::min(k, length) + (k + length - 1) / length);
  const double g = roundings * 0x1p-24 / (1.0 - roundings * 0x1p-24);
  return (g + static_cast<double>(k + 2) * 0x1p-53) * absolute;
}

TEST(GemmBlocks, awkward_sizes_equal_the_plain_loop_and_keep_the_bound) {
  const std::vector<std::string> levels = supported_levels();
  const int64_t sizes[] = {1, 2, 7, 16, 31, 33, 127, 128, 129, 257};
  size_t index = 0;
  for (const int64_t m : sizes) {
    for (const int64_t n : sizes) {
      for (const int64_t k : sizes) {
        const Pair &pair = kPairs[index++ % 8];
        BlockProduct p(pair, OCTAVO_E4M3FN, index % 3 == 0 ? OCTAVO_E5M2 : OCTAVO_E4M3FN,
                       OCTAVO_F32, m, n, k);
        const Sums sums = sums_of(p);
        const Matrix expected = expected_of(p, sums);
        for (size_t i = 0; i < sums.exact.size(); ++i) {
          const double error = std::fabs(static_cast<double>(sums.plain[i]) - sums.exact[i]);
          ASSERT_LE(error, bound_of(k, length_of(pair.a), sums.absolute[i]));
        }
        for (const std::string &level : levels) {
          Kernels kernels(1, level);
          ASSERT_EQ(kernels.gemm(p.c), OCTAVO_OK) << kernels.host().last_text();
          ASSERT_NO_FATAL_FAILURE(expect_equal(p.d, expected))
              << level << " K " << k << " granularities " << pair.a << ", " << pair.b;
        }
      }
    }
  }
}

TEST(GemmBlocks, every_pair_with_bias_accumulate_and_rounding) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(2, level);
    for (const Pair &pair : kPairs) {
      for (const uint32_t d : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
        for (const uint32_t bits : {0u, 1u, 2u, 3u, 6u, 7u}) {
          BlockProduct p(pair, OCTAVO_E4M3FN, OCTAVO_E5M2, d, 37, 67, 150);
          p.c.accumulate = bits & 1;
          if ((bits & 2) != 0) p.c.bias = p.bias.tensor();
          p.c.bias_after = bits >> 2;
          ASSERT_NO_FATAL_FAILURE(expect_plain_loop(&kernels, &p))
              << level << " granularities " << pair.a << ", " << pair.b << " bits " << bits;
        }
      }
    }
  }
}

/* More blocks along K than a tile packs at once. */
TEST(GemmBlocks, long_k) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(2, level);
    for (const Pair &pair : {kPairs[1], kPairs[4]}) {
      BlockProduct p(pair, OCTAVO_E5M2, OCTAVO_E4M3FN, OCTAVO_F32, 30, 70, 64 * 128 + 70);
      ASSERT_NO_FATAL_FAILURE(expect_plain_loop(&kernels, &p)) << level;
    }
  }
}

TEST(GemmBlocks, k_of_0_gives_zeros) {
  Kernels kernels;
  BlockProduct p(kPairs[0], OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_F32, 5, 40, 0);
  ASSERT_EQ(kernels.gemm(p.c), OCTAVO_OK) << kernels.host().last_text();
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t col = 0; col < 40; ++col) EXPECT_EQ(float_bits(p.d.get(row, col)), 0);
  }
}

TEST(GemmBlocks, special_values_pass_through) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(1, level);
    BlockProduct p(kPairs[4], OCTAVO_E5M2, OCTAVO_E4M3FN, OCTAVO_F32, 20, 40, 100);
    *p.a.at(3, 4) = 0x7C;            /* infinity */
    *p.a.at(5, 6) = 0x7D;            /* NaN */
    *p.b.at(7, 8) = 0xFF;            /* NaN */
    *p.a_scales.entry(9, 2) = 0xFF;  /* NaN */
    *p.a_scales.entry(11, 1) = 0xFE; /* 2^127 */
    *p.b_scales.entry(11, 1) = 0xFE;
    *p.a_scales.entry(13, 0) = 0x00; /* 2^-127 */
    ASSERT_NO_FATAL_FAILURE(expect_plain_loop(&kernels, &p)) << level;
    EXPECT_TRUE(std::isnan(p.d.get(5, 0)));
    EXPECT_TRUE(std::isnan(p.d.get(0, 7)));
    EXPECT_TRUE(std::isnan(p.d.get(9, 0)));
    EXPECT_FALSE(std::isfinite(p.d.get(11, 11)));
  }
}

TEST(GemmBlocks, threads_and_levels_give_equal_bits) {
  for (const Pair &pair : kPairs) {
    BlockProduct expected(pair, OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_F32, 217, 130, 333);
    Kernels reference(0, "baseline");
    ASSERT_EQ(reference.gemm(expected.c), OCTAVO_OK);
    for (const std::string &level : supported_levels()) {
      for (const int threads : {1, 2, 5}) {
        Kernels kernels(threads, level);
        BlockProduct p(pair, OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_F32, 217, 130, 333);
        ASSERT_EQ(kernels.gemm(p.c), OCTAVO_OK);
        EXPECT_EQ(p.d.data(), expected.d.data()) << level << " " << threads;
      }
    }
  }
}

/* What quantize writes is what gemm and dequantize read: the product of two quantized matrices is
 * that of their dequantized values, within the bound. */
TEST(GemmBlocks, reads_what_quantize_writes) {
  Kernels kernels(2);
  for (const Pair &pair : kPairs) {
    Matrix in(OCTAVO_F32, 60, 290);
    in.fill(9, 2.0f);
    BlockProduct p(pair, OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_F32, 60, 60, 290);
    Matrix a(OCTAVO_F32, 60, 290);
    Matrix b(OCTAVO_F32, 60, 290);
    for (const bool is_b : {false, true}) {
      auto q = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
      q.in = in.tensor();
      q.out = is_b ? p.b.tensor() : p.a.tensor();
      q.out_scale_inv = is_b ? p.b_scales.get() : p.a_scales.get();
      q.rule = is_mx(pair.a) ? OCTAVO_RULE_MX_UP : OCTAVO_RULE_POW2;
      q.format_max = kMaxE4m3;
      ASSERT_EQ(kernels.quantize(q), OCTAVO_OK) << kernels.host().last_text();
      auto back = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
      back.in = q.out;
      back.scale_inv = q.out_scale_inv;
      back.out = is_b ? b.tensor() : a.tensor();
      ASSERT_EQ(kernels.dequantize(back), OCTAVO_OK) << kernels.host().last_text();
    }
    ASSERT_EQ(kernels.gemm(p.c), OCTAVO_OK) << kernels.host().last_text();
    for (int64_t row = 0; row < 60; ++row) {
      for (int64_t col = 0; col < 60; ++col) {
        double exact = 0.0;
        double absolute = 0.0;
        for (int64_t i = 0; i < 290; ++i) { /* scales are powers of two, so values are exact */
          const double term =
              static_cast<double>(a.get(row, i)) * static_cast<double>(b.get(col, i));
          exact += term;
          absolute += std::fabs(term);
        }
        ASSERT_LE(std::fabs(static_cast<double>(p.d.get(row, col)) - exact),
                  bound_of(290, length_of(pair.a), absolute));
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test
