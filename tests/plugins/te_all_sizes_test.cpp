// The linear of every recipe for M, N, K of 1 to 33 and 127 to 129: forward, dgrad and wgrad inside
// the bound of te_product.h. All triples in tests/soak.py, otherwise all pairs of any two.
#include "tests/plugins/te_layer.h"
#include "tests/plugins/te_product.h"
#include "tests/support/seed.h"

namespace octavo::test {
namespace {

std::vector<int64_t> sizes() {
  std::vector<int64_t> all;
  for (int64_t n = 1; n <= 33; ++n) all.push_back(n);
  for (int64_t n = 127; n <= 129; ++n) all.push_back(n);
  return all;
}

// The first rows and columns of a matrix.
Matrix corner(const Matrix &m, int64_t rows, int64_t cols) {
  Matrix part(rows, cols);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) part.at(r, c) = m.at(r, c);
  return part;
}

// An operand of every size, cast once along its rows and once along its columns.
struct Casts {
  ExactTensor rows, columns;
};
using CastsBySize = std::map<std::pair<int64_t, int64_t>, Casts>;

CastsBySize casts_of(const TeRecipe &recipe, const Matrix &all, const Format &format) {
  CastsBySize casts;
  for (const int64_t r : sizes()) {
    for (const int64_t c : sizes()) {
      const Matrix m = corner(all, r, c);
      casts[{r, c}] = {ExactTensor(recipe.rows(m, format)), ExactTensor(recipe.columns(m, format))};
    }
  }
  return casts;
}

class TeAllSizes : public testing::TestWithParam<TeRecipe> {};

TEST_P(TeAllSizes, linear) {
  const TeRecipe &recipe = GetParam();
  const auto nothing = [](int64_t, int64_t) { return 0.0; };
  const Matrix all_w = uneven_matrix(129, 129, 1, 0.75f), all_x = uneven_matrix(129, 129, 2, 30.0f),
               all_dy = uneven_matrix(129, 129, 3, 0.5f);
  const CastsBySize xs = casts_of(recipe, all_x, kE4m3);
  const CastsBySize dys = casts_of(recipe, all_dy, recipe.gradient());
  for (const int64_t n : sizes()) {
    for (const int64_t k : sizes()) {
      TeLayer layer({recipe.options, 1}, corner(all_w, n, k));
      layer.quantize_weight();
      const ExactTensor w(recipe.weight_rows(layer.weight()));
      const ExactTensor w_t(recipe.weight_columns(layer.weight()));
      for (const int64_t m : sizes()) {
        if ((m + n + k) % stride_or(4) != 0) continue;
        const Matrix x = corner(all_x, m, k), dy = corner(all_dy, m, n);
        const Matrix y = layer.forward(x);
        Gradients g;
        layer.backward(dy, x, g, OCTAVO_BACKWARD_OVERWRITE);
        const Casts &x_casts = xs.at({m, k}), &dy_casts = dys.at({m, n});
        expect_product(recipe, y, x_casts.rows, w, nothing, "y");
        expect_product(recipe, g.dx, dy_casts.rows, w_t, nothing, "dx");
        expect_product(recipe, g.dw, dy_casts.columns, x_casts.columns, nothing, "dw");
        ASSERT_FALSE(HasFailure()) << "M " << m << ", N " << n << ", K " << k;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, TeAllSizes, testing::ValuesIn(plain_te_recipes()),
                         [](const testing::TestParamInfo<TeRecipe> &each) {
                           return std::string(each.param.name);
                         });

}  // namespace
}  // namespace octavo::test
