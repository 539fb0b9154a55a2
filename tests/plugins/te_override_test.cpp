// Products of a linear layer in the host's precision: override_linear_precision in its eight forms,
// backward_override, and evaluation.
//
// A plain product equals fp32 sums of the host's own tensors bit for bit; an FP8 one equals that of
// a session without the option.
#include "tests/plugins/te_layer.h"
#include "tests/plugins/te_oracle.h"

namespace octavo::test {
namespace {

constexpr int64_t kM = 33, kN = 20, kK = 130;

TeSetup with(const TeRecipe &recipe, const std::map<std::string, std::string> &more,
             uint64_t alignment = 1, uint32_t flags = OCTAVO_PARAMETER_LINEAR_WEIGHT) {
  TeSetup setup{recipe.options, alignment, flags};
  for (const auto &[name, value] : more) setup.options[name] = value;
  return setup;
}

struct Step {
  Matrix y;
  Gradients g;
};

class TeProducts {
 protected:
  Step step(TeLayer &layer) {
    layer.quantize_weight();
    Step s;
    s.y = layer.forward(x, &bias);
    s.g.dw = some_matrix(kN, kK, 5, 2.0f);
    layer.backward(dy, x, s.g);
    return s;
  }
  // What plain products give, dw added to what step() starts from.
  Matrix plain_y() { return plus_rows(plain_product(x, w), bias); }
  Matrix plain_dx(const Matrix &weight) { return plain_product(dy, transposed(weight)); }
  Matrix plain_dw(const Matrix &input) {
    Matrix dw = plain_product(transposed(dy), transposed(input));
    const Matrix before = some_matrix(kN, kK, 5, 2.0f);
    for (size_t i = 0; i < dw.v.size(); ++i) dw.v[i] = before.v[i] + dw.v[i];
    return dw;
  }

  const Matrix w = uneven_matrix(kN, kK, 1, 0.75f);
  Matrix x = uneven_matrix(kM, kK, 2, 30.0f);
  Matrix dy = uneven_matrix(kM, kN, 3, 0.5f);
  Matrix bias = some_matrix(1, kN, 4, 2.0f);
};

// override_linear_precision as bits: 1 fprop, 2 dgrad, 4 wgrad.
std::string names_of(int plain) {
  std::string names;
  const char *all[] = {"fprop", "dgrad", "wgrad"};
  for (int i = 0; i < 3; ++i)
    if ((plain >> i & 1) != 0) names += (names.empty() ? "" : ",") + std::string(all[i]);
  return names.empty() ? "none" : names;
}

class TeOverride : public TeProducts,
                   public testing::TestWithParam<std::tuple<TeRecipe, int, uint64_t>> {};

TEST_P(TeOverride, plain_where_it_says_so_and_fp8_elsewhere) {
  const auto &[recipe, plain, alignment] = GetParam();
  TeLayer fp8(with(recipe, {}, alignment), w);
  TeLayer layer(
      with(recipe, {{"override_linear_precision", "\"" + names_of(plain) + "\""}}, alignment), w);
  const bool fprop = (plain & 1) != 0, dgrad = (plain & 2) != 0, wgrad = (plain & 4) != 0;
  const Step expected = step(fp8), found = step(layer);
  expect_same(found.y, fprop ? plain_y() : expected.y, "y");
  expect_same(found.g.dx, dgrad ? plain_dx(w) : expected.g.dx, "dx");
  expect_same(found.g.dw, wgrad ? plain_dw(x) : expected.g.dw, "dw");
  expect_same(found.g.db, expected.g.db, "db");
  EXPECT_EQ((layer.plan().flags & OCTAVO_LINEAR_NEEDS_X) != 0, wgrad);
  // What no product reads is neither cast nor kept.
  EXPECT_EQ(layer.plan().saved.bytes_per_row == 0, wgrad);
  EXPECT_EQ(layer.slot("weight_cache") == nullptr, fprop);
  EXPECT_EQ(layer.slot("weight_cache_t") == nullptr, dgrad);
  EXPECT_EQ(layer.slot("w/amax") == nullptr, fprop && dgrad);
  EXPECT_EQ(layer.slot("x/amax") == nullptr, fprop && wgrad);
  EXPECT_EQ(layer.slot("dy/amax") == nullptr, dgrad && wgrad);
  for (const char *pool : {"x/amax", "dy/amax", "w/amax"})
    if (layer.slot(pool) != nullptr) {
      EXPECT_EQ(*layer.slot(pool), *fp8.slot(pool)) << pool;
    }
  const octavo_slot *native = layer.described("weight");
  EXPECT_EQ(native->access[OCTAVO_VERB_BACKWARD],
            dgrad ? uint8_t{OCTAVO_ACCESS_READ} : uint8_t{OCTAVO_ACCESS_NONE});
}

TEST_P(TeOverride, infinite_gradient_is_flagged) {
  const auto &[recipe, plain, alignment] = GetParam();
  TeLayer layer(
      with(recipe, {{"override_linear_precision", "\"" + names_of(plain) + "\""}}, alignment), w);
  step(layer);
  EXPECT_EQ(*layer.slot("nonfinite"), 0.0f);
  dy.at(3, 4) = -INFINITY;
  step(layer);
  EXPECT_EQ(*layer.slot("nonfinite"), 1.0f);
  layer.end_step();
  EXPECT_EQ(*layer.slot("nonfinite"), 0.0f);
}

INSTANTIATE_TEST_SUITE_P(
    All, TeOverride,
    testing::Combine(testing::ValuesIn(plain_te_recipes()), testing::Range(0, 8),
                     testing::Values(uint64_t{1}, uint64_t{16})),
    [](const testing::TestParamInfo<std::tuple<TeRecipe, int, uint64_t>> &each) {
      std::string products = names_of(std::get<1>(each.param));
      std::replace(products.begin(), products.end(), ',', '_');
      return std::string(std::get<0>(each.param).name) + "_" + products + "_alignment" +
             std::to_string(std::get<2>(each.param));
    });

class TeBackwardOverride : public TeProducts,
                           public testing::TestWithParam<std::tuple<TeRecipe, uint64_t>> {
 protected:
  const TeRecipe &recipe() const { return std::get<0>(GetParam()); }
  TeSetup with_backward(const char *how, uint32_t flags = OCTAVO_PARAMETER_LINEAR_WEIGHT) const {
    return with(recipe(), {{"backward_override", how}}, std::get<1>(GetParam()), flags);
  }
};

TEST_P(TeBackwardOverride, high_precision) {
  TeLayer fp8(with(recipe(), {}, std::get<1>(GetParam())), w);
  TeLayer layer(with_backward("\"high_precision\""), w);
  const Step expected = step(fp8), found = step(layer);
  expect_same(found.y, expected.y, "y");
  expect_same(found.g.dx, plain_dx(w), "dx");
  expect_same(found.g.dw, plain_dw(x), "dw");
  EXPECT_NE(layer.plan().flags & OCTAVO_LINEAR_NEEDS_X, 0u);
  EXPECT_EQ(layer.plan().saved.bytes_per_row, 0u);
}

TEST_P(TeBackwardOverride, dequantized) {
  TeLayer fp8(with(recipe(), {}, std::get<1>(GetParam())), w);
  TeLayer layer(with_backward("\"dequantized\""), w);
  const Step expected = step(fp8), found = step(layer);
  expect_same(found.y, expected.y, "y");
  expect_same(found.g.dx, plain_dx(recipe().weight_rows(w).values), "dx");
  expect_same(found.g.dw, plain_dw(recipe().rows(x).values), "dw");
  EXPECT_EQ(layer.plan().flags & OCTAVO_LINEAR_NEEDS_X, 0u);
  EXPECT_EQ(layer.slot("weight_cache_t"), nullptr);
  EXPECT_EQ(layer.slot("dy/amax"), nullptr);
  // Again, from the same `saved`: it is only read.
  Gradients again;
  again.dw = some_matrix(kN, kK, 5, 2.0f);
  layer.backward(dy, x, again);
  expect_same(again.dw, found.g.dw, "dw");
}

TEST_P(TeBackwardOverride, frozen_weight_keeps_nothing_of_x) {
  constexpr uint32_t frozen = OCTAVO_PARAMETER_LINEAR_WEIGHT | OCTAVO_PARAMETER_FROZEN;
  for (const char *how : {"\"high_precision\"", "\"dequantized\"", "\"none\""}) {
    SCOPED_TRACE(how);
    TeLayer trained(with_backward(how), w), layer(with_backward(how, frozen), w);
    const Step expected = step(trained), found = step(layer);
    expect_same(found.y, expected.y, "y");
    expect_same(found.g.dx, expected.g.dx, "dx");
    expect_same(found.g.dw, some_matrix(kN, kK, 5, 2.0f), "dw");
    EXPECT_EQ(layer.saved().size(), 0u);
    EXPECT_EQ(layer.plan().flags & OCTAVO_LINEAR_NEEDS_X, 0u);
    EXPECT_EQ(layer.plan().gradient, uint32_t{OCTAVO_GRADIENT_NONE});
  }
}

std::vector<TeRecipe> without_delayed() {
  std::vector<TeRecipe> out;
  for (const TeRecipe &r : te_recipes())
    if (r.options.count("recipe") == 0 || r.options.at("recipe") != "\"delayed\"") out.push_back(r);
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, TeBackwardOverride,
                         testing::Combine(testing::ValuesIn(without_delayed()),
                                          testing::Values(uint64_t{1}, uint64_t{16})),
                         [](const testing::TestParamInfo<std::tuple<TeRecipe, uint64_t>> &each) {
                           return std::string(std::get<0>(each.param).name) + "_alignment" +
                                  std::to_string(std::get<1>(each.param));
                         });

class TeEvaluation : public TeProducts, public testing::TestWithParam<TeRecipe> {};

TEST_P(TeEvaluation, runs_on_plain_operands_and_records_nothing) {
  TeLayer layer(with(GetParam(), {}), w);
  layer.quantize_weight();
  expect_same(layer.forward(x, &bias, OCTAVO_FORWARD_EVALUATION), plain_y(), "y");
  EXPECT_EQ(*layer.slot("x/amax"), 0.0f);
  const Matrix trained = layer.forward(x, &bias);
  EXPECT_NE(trained.v, plain_y().v);
  EXPECT_EQ(*layer.slot("x/amax"), amax_of(x));
}

TEST_P(TeEvaluation, runs_in_fp8_where_the_option_says_so) {
  TeLayer layer(with(GetParam(), {{"use_autocast_during_eval", "true"}}), w);
  layer.quantize_weight();
  const Matrix y = layer.forward(x, &bias);
  expect_same(layer.forward(x, &bias, OCTAVO_FORWARD_EVALUATION), y, "y");
  // Then no forward reads the plain weight.
  EXPECT_EQ(layer.described("weight")->access[OCTAVO_VERB_FORWARD], uint8_t{OCTAVO_ACCESS_NONE});
}

INSTANTIATE_TEST_SUITE_P(All, TeEvaluation, testing::ValuesIn(plain_te_recipes()),
                         [](const testing::TestParamInfo<TeRecipe> &each) {
                           return std::string(each.param.name);
                         });

}  // namespace
}  // namespace octavo::test
