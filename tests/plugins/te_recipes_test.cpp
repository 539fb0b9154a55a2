// Every recipe's linear against float64 products of what the codes stand for; te_product.h derives
// the bound.
#include "tests/plugins/te_layer.h"
#include "tests/plugins/te_product.h"

namespace octavo::test {
namespace {

struct Sizes {
  int64_t m, n, k;
};

constexpr Sizes kSizes[] = {{1, 1, 1},      {2, 15, 16},    {15, 2, 17},   {16, 16, 16},
                            {17, 31, 33},   {31, 33, 127},  {33, 17, 128}, {127, 1, 129},
                            {128, 129, 2},  {129, 128, 31}, {1, 127, 128}, {2, 128, 129},
                            {129, 16, 127}, {0, 17, 33}};

class TeRecipes : public testing::TestWithParam<std::tuple<TeRecipe, uint64_t>> {
 protected:
  const TeRecipe &recipe() const { return std::get<0>(GetParam()); }

  template <typename Added>
  void expect_near(const Matrix &found, const CastTensor &a, const CastTensor &b, Added added,
                   const char *what) {
    expect_product(recipe(), found, ExactTensor(a), ExactTensor(b), added, what);
  }
};

TEST_P(TeRecipes, linear_for_many_sizes) {
  const auto nothing = [](int64_t, int64_t) { return 0.0; };
  for (const auto &[m, n, k] : kSizes) {
    SCOPED_TRACE("M " + std::to_string(m) + " N " + std::to_string(n) + " K " + std::to_string(k));
    TeLayer layer({recipe().options, std::get<1>(GetParam())}, uneven_matrix(n, k, 1, 0.75f));
    const Matrix x = uneven_matrix(m, k, 2, 30.0f), dy = uneven_matrix(m, n, 3, 0.5f);
    Matrix bias = some_matrix(1, n, 4, 2.0f);
    layer.quantize_weight();
    const Matrix y = layer.forward(x, &bias);
    Gradients g;
    g.dw = some_matrix(n, k, 5, 2.0f);
    g.db = some_matrix(1, n, 6, 2.0f);
    const Gradients before = g;
    layer.backward(dy, x, g);

    const CastTensor dy_t = recipe().columns(dy, recipe().gradient()), x_t = recipe().columns(x);
    expect_near(
        y, recipe().rows(x), recipe().weight_rows(layer.weight()),
        [&](int64_t, int64_t c) { return bias.at(0, c); }, "y");
    expect_near(g.dx, recipe().rows(dy, recipe().gradient()),
                recipe().weight_columns(layer.weight()), nothing, "dx");
    expect_near(
        g.dw, dy_t, x_t, [&](int64_t r, int64_t c) { return before.dw.at(r, c); }, "dw");
    Matrix db = before.db;
    const Matrix sums = column_sums(dy);
    for (size_t i = 0; i < db.v.size(); ++i) db.v[i] += sums.v[i];
    expect_same(g.db, db, "db");

    layer.backward(dy, x, g, OCTAVO_BACKWARD_OVERWRITE);
    expect_near(g.dw, dy_t, x_t, nothing, "overwritten dw");
    expect_same(g.db, sums, "overwritten db");
    EXPECT_EQ(*layer.slot("x/amax"), amax_of(x));
    EXPECT_EQ(*layer.slot("dy/amax"), amax_of(dy));
    EXPECT_EQ(*layer.slot("w/amax"), amax_of(layer.weight()));
    EXPECT_EQ(*layer.slot("nonfinite"), 0.0f);
  }
}

TEST_P(TeRecipes, recompute_is_bit_identical) {
  TeLayer layer({recipe().options, std::get<1>(GetParam())}, uneven_matrix(33, 129, 1, 0.75f));
  layer.quantize_weight();
  const Matrix x = uneven_matrix(17, 129, 2, 30.0f), dy = uneven_matrix(17, 33, 3, 0.5f);
  const auto bytes_of = [&] {
    const auto *at = static_cast<const uint8_t *>(layer.saved().get());
    return std::vector<uint8_t>(at, at + layer.saved().size());
  };
  const Matrix y = layer.forward(x);
  const std::vector<uint8_t> saved = bytes_of();
  Gradients first, second;
  layer.backward(dy, x, first);
  layer.forward(uneven_matrix(40, 129, 9, 300.0f));  // another micro-batch in between
  expect_same(layer.forward(x), y, "y");
  EXPECT_EQ(bytes_of(), saved);
  layer.backward(dy, x, second);
  expect_same(second.dx, first.dx, "dx");
  expect_same(second.dw, first.dw, "dw");
}

TEST_P(TeRecipes, padding_is_told_with_its_cost) {
  const TeLayer layer({recipe().options, std::get<1>(GetParam())}, Matrix(20, 33, 1.0f));
  EXPECT_EQ(
      text_of(layer.verdict().evidence),
      std::get<1>(GetParam()) == 16 ? "N 20 -> 32, K 33 -> 48: 2.33 times the multiply-adds" : "");
}

INSTANTIATE_TEST_SUITE_P(All, TeRecipes,
                         testing::Combine(testing::ValuesIn(te_recipes()),
                                          testing::Values(uint64_t{1}, uint64_t{16})),
                         [](const testing::TestParamInfo<std::tuple<TeRecipe, uint64_t>> &each) {
                           return std::string(std::get<0>(each.param).name) + "_alignment" +
                                  std::to_string(std::get<1>(each.param));
                         });

}  // namespace
}  // namespace octavo::test
