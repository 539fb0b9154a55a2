/* tests/kernels/adversarial.h: operands of gemm whose rows are chosen against a kernel, and the
 * plain fp32 chain that every level must equal.
 *
 * A row is one of kPatterns patterns and two rows of one pattern are equal, so kPatterns^2 sums are
 * the expectation of a product of any size.
 */
#ifndef OCTAVO_TESTS_KERNELS_ADVERSARIAL_H
#define OCTAVO_TESTS_KERNELS_ADVERSARIAL_H

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {

constexpr int kPatterns = 9;

/* The K values of pattern `pattern` in `dtype`; `seed` tells the two operands apart. */
using PatternOf =
    std::function<std::vector<float>(uint32_t dtype, int pattern, int64_t k, unsigned seed)>;

/* kPatterns rows of K values. */
inline Matrix pattern_rows(const PatternOf &pattern_of, uint32_t dtype, int64_t k, unsigned seed) {
  Matrix m(dtype, kPatterns, k);
  for (int pattern = 0; pattern < kPatterns; ++pattern) {
    const std::vector<float> values = pattern_of(dtype, pattern, k, seed);
    for (int64_t i = 0; i < k; ++i) m.set(pattern, i, values[static_cast<size_t>(i)]);
  }
  return m;
}

/* `rows` rows that repeat those of `patterns`; `turned`: [K, rows]. */
inline Matrix repeated(const Matrix &patterns, int64_t rows, bool turned) {
  const int64_t k = patterns.cols();
  const size_t bytes = OCTAVO_DTYPE_BITS(patterns.dtype()) / 8;
  Matrix m(patterns.dtype(), turned ? k : rows, turned ? rows : k, 1);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      std::memcpy(turned ? m.at(i, row) : m.at(row, i), patterns.at(row % kPatterns, i), bytes);
    }
  }
  return m;
}

/* The contract, written down plainly: each product rounded to fp32, added in ascending order. */
inline float plain_chain(const Matrix &a, int64_t row, const Matrix &b, int64_t col) {
  float sum = 0.0f;
  for (int64_t k = 0; k < a.cols(); ++k) {
    const float product = a.get(row, k) * b.get(col, k);
    sum = sum + product;
  }
  return sum;
}

/* A product of patterns: what each pair of them leads to. */
struct Adversary {
  Matrix a;
  Matrix b;
  std::vector<float> sums; /* [kPatterns, kPatterns], the plain chains */

  Adversary(const PatternOf &pattern_of, uint32_t a_dtype, uint32_t b_dtype, int64_t k)
      : Adversary(pattern_rows(pattern_of, a_dtype, k, 1),
                  pattern_rows(pattern_of, b_dtype, k, 2)) {}
  Adversary(const Matrix &a_rows, const Matrix &b_rows) : a(a_rows), b(b_rows) {
    for (int i = 0; i < kPatterns; ++i) {
      for (int j = 0; j < kPatterns; ++j) sums.push_back(plain_chain(a, i, b, j));
    }
  }
  float sum(int64_t row, int64_t col) const {
    return sums[static_cast<size_t>(row % kPatterns * kPatterns + col % kPatterns)];
  }
};

/* d = a b^T of m x n rows on every level, with one thread and with three: the bits of the chains,
 * NaN compared by class. */
inline void expect_chains(const Adversary &adversary, int64_t m, int64_t n, uint32_t layout = 0) {
  const Matrix a = repeated(adversary.a, m, (layout & OCTAVO_GEMM_A_KM) != 0);
  const Matrix b = repeated(adversary.b, n, (layout & OCTAVO_GEMM_B_KN) != 0);
  for (const std::string &level : supported_levels()) {
    for (const int threads : {1, 3}) {
      Kernels kernels(threads, level);
      Matrix d(OCTAVO_F32, m, n, 1);
      auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
      c.a = a.tensor();
      c.b = b.tensor();
      c.d = d.tensor();
      c.layout = layout;
      ASSERT_EQ(kernels.gemm(c), OCTAVO_OK) << kernels.host().last_text();
      for (int64_t row = 0; row < m; ++row) {
        for (int64_t col = 0; col < n; ++col) {
          ASSERT_TRUE(same_value(d.get(row, col), adversary.sum(row, col)))
              << level << ", threads " << threads << ", dtypes " << a.dtype() << " and "
              << b.dtype() << ", M " << m << ", N " << n << ", K " << adversary.a.cols()
              << ", layout " << layout << ", patterns " << row % kPatterns << " and "
              << col % kPatterns << " at [" << row << ", " << col << "]: " << d.get(row, col)
              << ", expected " << adversary.sum(row, col);
        }
      }
    }
  }
}

}  // namespace octavo::test

#endif
