// A linear of a te recipe against float64 products of what the codes stand for.
//
// Bound, per element: the kernels add K' exact products in fp32, by blocks of the recipe's length,
// multiply each block's sum by fl(sa * sb) and add it. Each of the K' additions, and for each block
// the three roundings of the factor, the product and the sum, is off by at most 2^-24 of the sum of
// absolute values; bias, the sum already there and first-order terms left out add a few: (K' + 3 *
// blocks + 8) * 2^-24 * (sum of absolute products + absolute values of what was added).
#pragma once

#include "tests/plugins/te_oracle.h"

namespace octavo::test {

// What the codes of a tensor stand for, exactly: a code has 4 bits and a scale_inv 24.
struct ExactTensor {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> values;

  ExactTensor() = default;
  explicit ExactTensor(const CastTensor &t)
      : rows(t.codes.rows), cols(t.codes.cols), values(t.codes.v.size()) {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(t.codes.v[i]) * static_cast<double>(t.scale_inv.v[i]);
  }
};

// found = added + a b^T, both [rows, K'].
template <typename Added>
void expect_product(const TeRecipe &recipe, const Matrix &found, const ExactTensor &a,
                    const ExactTensor &b, Added added, const char *what) {
  ASSERT_EQ(found.rows, a.rows) << what;
  ASSERT_EQ(found.cols, b.rows) << what;
  const int64_t length = a.cols;
  const int64_t block = recipe.operand.block_cols;
  const double blocks = block == 0 ? 1 : static_cast<double>((length + block - 1) / block);
  const double units = (static_cast<double>(length) + 3 * blocks + 8) * std::ldexp(1.0, -24);
  for (int64_t r = 0; r < found.rows; ++r) {
    for (int64_t c = 0; c < found.cols; ++c) {
      const double *left = a.values.data() + r * length, *right = b.values.data() + c * length;
      double sum = added(r, c), absolute = std::fabs(sum);
      for (int64_t k = 0; k < length; ++k) {
        const double product = left[k] * right[k];
        sum += product;
        absolute += std::fabs(product);
      }
      if (std::fabs(static_cast<double>(found.at(r, c)) - sum) > units * absolute ||
          std::isnan(found.at(r, c)))
        FAIL() << what << "[" << r << ", " << c << "] is " << found.at(r, c) << "; expected " << sum
               << " within " << units * absolute;
    }
  }
}

}  // namespace octavo::test
