/* gemm: bit for bit the plain triple loop, for every size, dtype, level and number of threads.
 *
 * NaN is compared by class: which NaN an addition passes on is not part of the contract.
 */
#include <gtest/gtest.h>

#include <string>

#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {
namespace {

constexpr uint32_t kAll[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2};

struct Product {
  Matrix a;
  Matrix b;
  Matrix d;
  Matrix bias;
  float a_inverse = 0.37f;
  float b_inverse = 1.9f;
  octavo_scale a_scale_inv = per_tensor(&a_inverse);
  octavo_scale b_scale_inv = per_tensor(&b_inverse);
  octavo_gemm c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);

  Product(uint32_t a_dtype, uint32_t b_dtype, uint32_t d_dtype, int64_t m, int64_t n, int64_t k)
      : a(a_dtype, m, k, 1), b(b_dtype, n, k, 5), d(d_dtype, m, n, 3), bias(OCTAVO_BF16, 1, n) {
    a.fill(static_cast<unsigned>(m + 7 * k), 3.0f);
    b.fill(static_cast<unsigned>(n + 5 * k), 3.0f);
    d.fill(3);
    bias.fill(4);
    c.a = a.tensor();
    c.b = b.tensor();
    c.d = d.tensor();
    c.a_scale_inv = &a_scale_inv;
    c.b_scale_inv = &b_scale_inv;
  }
};

/* What the contract says, written down plainly. */
Matrix naive(const Product &p) {
  Matrix result = p.d;
  for (int64_t row = 0; row < p.a.rows(); ++row) {
    for (int64_t col = 0; col < p.b.rows(); ++col) {
      float sum = 0.0f;
      for (int64_t k = 0; k < p.a.cols(); ++k) {
        const float product = p.a.get(row, k) * p.b.get(col, k);
        sum = sum + product;
      }
      if (p.c.a_scale_inv != nullptr) sum *= p.a_inverse * p.b_inverse;
      if (p.c.bias != nullptr && p.c.bias_after != 0) {
        sum = rounded(p.d.dtype(), rounded(p.d.dtype(), sum) + p.bias.get(0, col));
      } else if (p.c.bias != nullptr) {
        sum += p.bias.get(0, col);
      }
      if (p.c.accumulate != 0) sum = result.get(row, col) + sum;
      result.set(row, col, sum);
    }
  }
  return result;
}

void expect_naive(Kernels *kernels, Product *p) {
  const Matrix expected = naive(*p);
  ASSERT_EQ(kernels->gemm(p->c), OCTAVO_OK) << kernels->host().last_text();
  ASSERT_NO_FATAL_FAILURE(expect_equal(p->d, expected));
}

TEST(Gemm, awkward_sizes_equal_the_triple_loop) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(2, level);
    for (const int64_t m : {0, 1, 15, 17, 63, 217}) {
      for (const int64_t n : {1, 15, 17, 65}) {
        for (const int64_t k : {0, 1, 63, 217}) {
          Product p(OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F32, m, n, k);
          ASSERT_NO_FATAL_FAILURE(expect_naive(&kernels, &p)) << level << " K " << k;
        }
      }
    }
  }
}

TEST(Gemm, every_pair_of_operand_dtypes) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(1, level);
    for (const uint32_t a : kAll) {
      for (const uint32_t b : kAll) {
        for (const uint32_t d : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
          Product p(a, b, d, 17, 33, 65);
          p.c.bias = p.bias.tensor();
          ASSERT_NO_FATAL_FAILURE(expect_naive(&kernels, &p)) << level << " " << a << " " << b;
        }
      }
    }
  }
}

TEST(Gemm, plain_operands_without_scales_bias_and_accumulate) {
  Kernels kernels;
  for (const uint32_t accumulate : {0u, 1u}) {
    for (const bool has_bias : {false, true}) {
      for (const bool is_scaled : {false, true}) {
        Product p(OCTAVO_BF16, OCTAVO_F32, OCTAVO_BF16, 15, 17, 63);
        p.c.accumulate = accumulate;
        if (has_bias) p.c.bias = p.bias.tensor();
        if (!is_scaled) p.c.a_scale_inv = p.c.b_scale_inv = nullptr;
        ASSERT_NO_FATAL_FAILURE(expect_naive(&kernels, &p));
      }
    }
  }
}

TEST(Gemm, special_values_pass_through) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(1, level);
    Product p(OCTAVO_E5M2, OCTAVO_E4M3FN, OCTAVO_F32, 20, 40, 30);
    *p.a.at(3, 4) = 0x7C;  /* infinity */
    *p.a.at(5, 6) = 0x7D;  /* NaN */
    *p.b.at(7, 8) = 0xFF;  /* NaN */
    *p.a.at(9, 29) = 0x80; /* -0 */
    ASSERT_NO_FATAL_FAILURE(expect_naive(&kernels, &p)) << level;
    EXPECT_TRUE(std::isnan(p.d.get(5, 0)));
    EXPECT_TRUE(std::isnan(p.d.get(0, 7)));
    EXPECT_FALSE(std::isfinite(p.d.get(3, 0)));
  }
}

TEST(Gemm, products_that_leave_the_range_of_fp32_are_rounded_before_the_sum) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(1, level);
    Product p(OCTAVO_BF16, OCTAVO_BF16, OCTAVO_F32, 7, 18, 33);
    for (int64_t k = 0; k < 33; ++k) {
      p.a.set(0, k, 0x1.02p-70f); /* subnormal products */
      p.b.set(0, k, 0x1.06p-70f);
      p.a.set(1, k, k == 0 ? -1e38f : 0x1.4p63f);
      p.b.set(1, k, k == 0 ? 1e10f : 0x1.4p63f); /* minus and plus infinity: NaN */
    }
    ASSERT_NO_FATAL_FAILURE(expect_naive(&kernels, &p)) << level;
  }
}

TEST(Gemm, a_bias_after_the_product_is_a_second_rounding) {
  int differing = 0;
  for (const std::string &level : supported_levels()) {
    Kernels kernels(2, level);
    for (const uint32_t d : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
      for (const uint32_t accumulate : {0u, 1u}) {
        Product once(OCTAVO_E4M3FN, OCTAVO_E5M2, d, 19, 67, 33);
        Product twice(OCTAVO_E4M3FN, OCTAVO_E5M2, d, 19, 67, 33);
        once.c.bias = once.bias.tensor();
        twice.c.bias = twice.bias.tensor();
        twice.c.bias_after = 1;
        once.c.accumulate = twice.c.accumulate = accumulate;
        ASSERT_NO_FATAL_FAILURE(expect_naive(&kernels, &once)) << level;
        ASSERT_NO_FATAL_FAILURE(expect_naive(&kernels, &twice)) << level;
        if (d == OCTAVO_F32) {
          EXPECT_EQ(once.d.data(), twice.d.data());
        }
        differing += once.d.data() != twice.d.data() ? 1 : 0;
        Product none(OCTAVO_E4M3FN, OCTAVO_E5M2, d, 19, 67, 33);
        none.c.bias_after = 1; /* without a bias it changes nothing */
        none.c.accumulate = accumulate;
        ASSERT_NO_FATAL_FAILURE(expect_naive(&kernels, &none)) << level;
      }
    }
  }
  EXPECT_GT(differing, 0);
}

TEST(Gemm, threads_and_levels_give_equal_bits) {
  for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_F32}) {
    Product expected(dtype, dtype, OCTAVO_F32, 217, 130, 65);
    Kernels reference(0, "baseline");
    ASSERT_EQ(reference.gemm(expected.c), OCTAVO_OK);
    for (const std::string &level : supported_levels()) {
      for (const int threads : {1, 2, 5}) {
        Kernels kernels(threads, level);
        Product p(dtype, dtype, OCTAVO_F32, 217, 130, 65);
        ASSERT_EQ(kernels.gemm(p.c), OCTAVO_OK);
        EXPECT_EQ(p.d.data(), expected.d.data()) << level << " " << threads;
      }
    }
  }
}

TEST(Gemm, rows_do_not_depend_on_the_batch) {
  Kernels kernels(2);
  Product whole(OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_F32, 65, 31, 63);
  ASSERT_EQ(kernels.gemm(whole.c), OCTAVO_OK);
  for (const int64_t rows : {1, 5, 6, 7, 13, 64}) {
    Product part(OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_F32, 65, 31, 63);
    octavo_tensor a = *part.a.tensor();
    octavo_tensor d = *part.d.tensor();
    a.rows = d.rows = rows;
    part.c.a = &a;
    part.c.d = &d;
    ASSERT_EQ(kernels.gemm(part.c), OCTAVO_OK);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = 0; col < 31; ++col) {
        ASSERT_EQ(part.d.get(row, col), whole.d.get(row, col)) << rows << " rows";
      }
    }
  }
}

TEST(Gemm, workspace_is_linear_in_rows_and_needs_no_data) {
  Kernels kernels;
  const auto bytes_of = [&kernels](int64_t m, int64_t n, int64_t k) {
    octavo_tensor a = {nullptr, m, k, k, OCTAVO_E4M3FN, 0};
    octavo_tensor b = {nullptr, n, k, k, OCTAVO_E4M3FN, 0};
    auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
    c.a = &a;
    c.b = &b;
    uint64_t bytes = 0;
    EXPECT_EQ(kernels.table->workspace_bytes(kernels.ctx(), &c, &bytes), OCTAVO_OK)
        << kernels.host().last_text();
    return bytes;
  };
  const uint64_t fixed = bytes_of(0, 65, 40);
  const uint64_t per_row = bytes_of(1, 65, 40) - fixed;
  for (int64_t m = 0; m < 40; ++m) {
    EXPECT_EQ(bytes_of(m, 65, 40), fixed + per_row * static_cast<uint64_t>(m));
    EXPECT_EQ(bytes_of(65, 40, m), bytes_of(65, 40, 1) * static_cast<uint64_t>(m));
  }
}

}  // namespace
}  // namespace octavo::test
