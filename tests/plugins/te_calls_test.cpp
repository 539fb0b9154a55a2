// How the te backend answers the calls of a host: no rows, recompute, evaluation, ties, freezing.
#include <algorithm>

#include "tests/plugins/layer.h"

namespace octavo::test {
namespace {

class TeCalls : public testing::TestWithParam<const char *> {
 protected:
  static constexpr int64_t kN = 6, kK = 7;
  TeCalls() { request.set("fp8.backend", "te").set("fp8.te.recipe", GetParam()); }
  bool delayed() const { return std::string(GetParam()) == "delayed"; }
  Environment environment;
  Request request;
};

TEST_P(TeCalls, no_rows) {
  Session s(request);
  const uint32_t weight = s.add_weight(some_matrix(kN, kK, 1, 0.75f));
  const uint32_t linear = s.add_linear(weight);
  s.seal();
  ASSERT_EQ(s.quantize_weight(weight), OCTAVO_OK);
  Matrix x(0, kK), dy(0, kN), y;
  ASSERT_EQ(s.forward(linear, x, y), OCTAVO_OK) << request.host.error();
  Gradients g;
  g.dw = some_matrix(kN, kK, 5, 1.0f);
  g.db = some_matrix(1, kN, 6, 1.0f);
  const Gradients before = g;
  ASSERT_EQ(s.backward(linear, dy, x, g), OCTAVO_OK) << request.host.error();
  expect_same(g.dw, before.dw, "dw");  // nothing is added
  expect_same(g.db, before.db, "db");
  EXPECT_EQ(*s.slot("x/amax"), 0.0f);
  EXPECT_EQ(*s.slot("dy/amax"), 0.0f);
  ASSERT_EQ(s.backward(linear, dy, x, g, OCTAVO_BACKWARD_OVERWRITE), OCTAVO_OK);
  expect_same(g.dw, Matrix(kN, kK), "dw");
  expect_same(g.db, Matrix(1, kN), "db");
}

// Its codes would be those of a weight of zeros.
TEST_P(TeCalls, a_forward_before_the_first_quantize_weight) {
  Session s(request);
  const uint32_t weight = s.add_weight(some_matrix(kN, kK, 1, 0.75f));
  const uint32_t linear = s.add_linear(weight);
  s.seal();
  Matrix x = some_matrix(5, kK, 3, 4.0f), y;
  EXPECT_EQ(s.forward(linear, x, y), OCTAVO_WRONG_STATE);
  EXPECT_EQ(
      request.host.error(),
      "linear_forward \"l0\": expected quantize_weight of \"w0\" before the first forward, found "
      "none in this session; call it once the weight has its values, and after each change");
  expect_same(y, Matrix(5, kN, -1.0f), "y");
  ASSERT_EQ(s.quantize_weight(weight), OCTAVO_OK);
  EXPECT_EQ(s.forward(linear, x, y), OCTAVO_OK);
  // A later seal takes nothing back, and asks for the casts of its own weights.
  const uint32_t late = s.add_weight(some_matrix(kN, kK, 2, 0.75f));
  const uint32_t second = s.add_linear(late);
  s.seal();
  EXPECT_EQ(s.forward(linear, x, y), OCTAVO_OK);
  EXPECT_EQ(s.forward(second, x, y), OCTAVO_WRONG_STATE);
  ASSERT_EQ(s.quantize_weight(late), OCTAVO_OK);
  EXPECT_EQ(s.forward(second, x, y), OCTAVO_OK);
}

// Its linear is not converted, or comes with a later seal.
TEST_P(TeCalls, weight_without_a_linear) {
  Session s(request);
  const uint32_t weight = s.add_weight(some_matrix(kN, kK, 1, 0.75f));
  s.seal();
  ASSERT_EQ(s.quantize_weight(weight), OCTAVO_OK) << request.host.error();
  const uint32_t linear = s.add_linear(weight);
  s.seal();
  ASSERT_EQ(s.quantize_weight(weight), OCTAVO_OK) << request.host.error();
  Matrix x = some_matrix(5, kK, 3, 4.0f), y;
  ASSERT_EQ(s.forward(linear, x, y), OCTAVO_OK) << request.host.error();

  Session whole(request);
  const uint32_t same = whole.add_weight(some_matrix(kN, kK, 1, 0.75f));
  const uint32_t used = whole.add_linear(same);
  whole.seal();
  ASSERT_EQ(whole.quantize_weight(same), OCTAVO_OK);
  Matrix expected;
  ASSERT_EQ(whole.forward(used, x, expected), OCTAVO_OK);
  expect_same(y, expected, "y");
}

TEST_P(TeCalls, recompute_equals) {
  Session s(request);
  const uint32_t weight = s.add_weight(some_matrix(kN, kK, 1, 0.75f));
  const uint32_t linear = s.add_linear(weight);
  s.seal();
  ASSERT_EQ(s.quantize_weight(weight), OCTAVO_OK);
  Matrix x = some_matrix(5, kK, 3, 4.0f), y, again;
  ASSERT_EQ(s.forward(linear, x, y), OCTAVO_OK);
  std::vector<char> saved(static_cast<char *>(s.saved().get()),
                          static_cast<char *>(s.saved().get()) + s.saved().size());
  Matrix other = some_matrix(3, kK, 4, 2.0f), unused;
  ASSERT_EQ(s.forward(linear, other, unused), OCTAVO_OK);  // another micro-batch in between
  ASSERT_EQ(s.forward(linear, x, again), OCTAVO_OK);
  expect_same(again, y, "y");
  EXPECT_TRUE(std::equal(saved.begin(), saved.end(), static_cast<char *>(s.saved().get())));
  EXPECT_EQ(*s.slot("x/amax"), std::max(amax_of(x), amax_of(other)));
}

TEST_P(TeCalls, evaluation_records_nothing) {
  Session s(request);
  const uint32_t weight = s.add_weight(some_matrix(kN, kK, 1, 0.75f));
  const uint32_t linear = s.add_linear(weight);
  s.seal();
  ASSERT_EQ(s.quantize_weight(weight), OCTAVO_OK);
  Matrix x = some_matrix(5, kK, 3, 4.0f), dy = some_matrix(5, kN, 4, 4.0f), y, silent;
  dy.at(0, 0) = NAN;
  const auto forward = s.without_accumulators(OCTAVO_VERB_FORWARD, linear);
  const auto backward = s.without_accumulators(OCTAVO_VERB_BACKWARD, linear);
  ASSERT_EQ(s.forward(linear, x, silent, nullptr, forward.data()), OCTAVO_OK);
  Gradients g;
  ASSERT_EQ(s.backward(linear, dy, x, g, 0, backward.data()), OCTAVO_OK);
  for (const char *slot : {"x/amax", "dy/amax", "nonfinite"}) EXPECT_EQ(*s.slot(slot), 0.0f);
  ASSERT_EQ(s.forward(linear, x, y), OCTAVO_OK);
  expect_same(silent, y, "y");
  EXPECT_EQ(*s.slot("x/amax"), amax_of(x));
}

TEST_P(TeCalls, tied_weight_is_cached_once) {
  Session s(request);
  const uint32_t weight = s.add_weight(some_matrix(kN, kK, 1, 0.75f));
  const uint32_t first = s.add_linear(weight);
  const uint32_t second = s.add_linear(weight);
  s.seal();
  EXPECT_EQ(s.slot("weight_cache", 1), nullptr);
  ASSERT_EQ(s.quantize_weight(weight), OCTAVO_OK);
  Matrix a = some_matrix(5, kK, 3, 4.0f), b = some_matrix(2, kK, 4, 9.0f), ya, yb, y;
  ASSERT_EQ(s.forward(first, a, ya), OCTAVO_OK);
  ASSERT_EQ(s.forward(second, b, yb), OCTAVO_OK);
  EXPECT_EQ(s.slot("x/amax")[0], amax_of(a));
  EXPECT_EQ(s.slot("x/amax")[1], amax_of(b));
  EXPECT_EQ(s.slot("w/amax")[0], amax_of(s.weight(weight)));
  ASSERT_EQ(s.forward(second, a, y), OCTAVO_OK);
  expect_same(y, ya, "y");
  // Both linears add to one dw.
  Matrix dy = some_matrix(5, kN, 6, 1.0f);
  Gradients one, both;
  ASSERT_EQ(s.backward(second, dy, a, one), OCTAVO_OK);
  ASSERT_EQ(s.backward(second, dy, a, both), OCTAVO_OK);
  ASSERT_EQ(s.backward(first, dy, a, both), OCTAVO_OK);
  for (size_t i = 0; i < one.dw.v.size(); ++i) EXPECT_EQ(both.dw.v[i], one.dw.v[i] + one.dw.v[i]);
}

TEST_P(TeCalls, frozen_weight_gets_no_gradient) {
  Session s(request);
  const uint32_t weight = s.add_weight(some_matrix(kN, kK, 1, 0.75f),
                                       OCTAVO_PARAMETER_LINEAR_WEIGHT | OCTAVO_PARAMETER_FROZEN);
  const uint32_t linear = s.add_linear(weight);
  const uint32_t trained = s.add_linear(s.add_weight(some_matrix(kN, kK, 1, 0.75f)));
  s.seal();
  EXPECT_EQ(s.plan(linear).gradient, uint32_t{OCTAVO_GRADIENT_NONE});
  EXPECT_EQ(s.plan(trained).gradient, uint32_t{OCTAVO_GRADIENT_TENSOR});
  ASSERT_EQ(s.quantize_weight(0), OCTAVO_OK);
  ASSERT_EQ(s.quantize_weight(1), OCTAVO_OK);
  Matrix x = some_matrix(5, kK, 3, 4.0f), dy = some_matrix(5, kN, 4, 4.0f), y;
  Gradients frozen, plain;
  ASSERT_EQ(s.forward(linear, x, y), OCTAVO_OK);
  ASSERT_EQ(s.backward(linear, dy, x, frozen), OCTAVO_OK);
  expect_same(frozen.dw, Matrix(kN, kK), "dw");
  ASSERT_EQ(s.forward(trained, x, y), OCTAVO_OK);
  ASSERT_EQ(s.backward(trained, dy, x, plain), OCTAVO_OK);
  expect_same(frozen.dx, plain.dx, "dx");
}

TEST_P(TeCalls, weight_gradient_can_be_skipped) {
  Session s(request);
  const uint32_t weight = s.add_weight(some_matrix(kN, kK, 1, 0.75f));
  const uint32_t linear = s.add_linear(weight);
  s.seal();
  ASSERT_EQ(s.quantize_weight(weight), OCTAVO_OK);
  Matrix x = some_matrix(5, kK, 3, 4.0f), dy = some_matrix(5, kN, 4, 4.0f), y;
  ASSERT_EQ(s.forward(linear, x, y), OCTAVO_OK);
  Gradients skipped, full;
  ASSERT_EQ(s.backward(linear, dy, x, skipped, OCTAVO_BACKWARD_SKIP_WEIGHT), OCTAVO_OK);
  ASSERT_EQ(s.backward(linear, dy, x, full), OCTAVO_OK);
  expect_same(skipped.dw, Matrix(kN, kK), "dw");
  expect_same(skipped.dx, full.dx, "dx");
  EXPECT_GT(amax_of(full.dw), 0.0f);
}

TEST_P(TeCalls, second_seal_adds_its_own_pools) {
  Session s(request);
  const uint32_t first = s.add_linear(s.add_weight(some_matrix(kN, kK, 1, 0.75f)));
  s.seal();
  float *amax = s.slot("x/amax");
  const uint32_t second = s.add_linear(s.add_weight(some_matrix(3, 4, 2, 0.75f)));
  s.seal();
  EXPECT_EQ(s.slot("x/amax"), amax);
  ASSERT_NE(s.slot("x/amax", 1), nullptr);
  ASSERT_EQ(s.quantize_weight(0), OCTAVO_OK);
  ASSERT_EQ(s.quantize_weight(1), OCTAVO_OK);
  Matrix a = some_matrix(5, kK, 3, 4.0f), b = some_matrix(2, 4, 4, 9.0f), y;
  ASSERT_EQ(s.forward(first, a, y), OCTAVO_OK);
  ASSERT_EQ(s.forward(second, b, y), OCTAVO_OK);
  EXPECT_EQ(*s.slot("x/amax", 0), amax_of(a));
  EXPECT_EQ(*s.slot("x/amax", 1), amax_of(b));
  ASSERT_EQ(s.end_step(), OCTAVO_OK);
  for (int nth : {0, 1}) {
    EXPECT_EQ(*s.slot("x/amax", nth), 0.0f);
    if (delayed()) {
      EXPECT_EQ(*s.slot("x/scale", nth), 448.0f / amax_of(nth == 0 ? a : b));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, TeCalls,
                         testing::Values("delayed", "current", "block", "mx", "rowwise"),
                         [](const testing::TestParamInfo<const char *> &each) {
                           return std::string(each.param);
                         });

}  // namespace
}  // namespace octavo::test
