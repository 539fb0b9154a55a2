// Current scaling of the te backend: the scale of each tensor is its own.
#include "tests/plugins/layer.h"

namespace octavo::test {
namespace {

class TeCurrent : public testing::TestWithParam<bool> {
 protected:
  static constexpr int64_t kN = 6, kK = 7;
  TeCurrent() {
    request.set("fp8.backend", "te")
        .set("fp8.te.recipe", "current")
        .set("fp8.te.fp8_format", GetParam() ? "HYBRID" : "E4M3");
  }
  Environment environment;
  Request request;
};

TEST_P(TeCurrent, three_steps_with_different_batches) {
  Session s(request);
  const uint32_t weight = s.add_weight(some_matrix(kN, kK, 1, 0.75f));
  const uint32_t linear = s.add_linear(weight);
  s.seal();
  const Format &gradient = GetParam() ? kE5m2 : kE4m3;
  Matrix bias = some_matrix(1, kN, 2, 1.0f);
  for (int64_t m : {1, 5, 17}) {
    SCOPED_TRACE("M = " + std::to_string(m));
    const auto seed = static_cast<uint32_t>(m);
    Matrix x = some_matrix(m, kK, seed, 300.0f), dy = some_matrix(m, kN, seed + 50, 0.5f), y;
    ASSERT_EQ(s.quantize_weight(weight), OCTAVO_OK) << request.host.error();
    ASSERT_EQ(s.forward(linear, x, y, &bias), OCTAVO_OK) << request.host.error();
    Gradients g;
    g.dw = Matrix(kN, kK, 99.0f);
    g.db = Matrix(1, kN, 99.0f);
    ASSERT_EQ(s.backward(linear, dy, x, g, OCTAVO_BACKWARD_OVERWRITE), OCTAVO_OK);
    const Quantized qx = quantized(kE4m3, x, current_scale(kE4m3, x));
    const Quantized qw = quantized(kE4m3, s.weight(weight), current_scale(kE4m3, s.weight(weight)));
    const Quantized qdy = quantized(gradient, dy, current_scale(gradient, dy));
    expect_same(y, plus_rows(multiplied(qx, qw), bias), "y");
    expect_same(g.dx, multiplied(qdy, transposed(qw)), "dx");
    expect_same(g.dw, multiplied(transposed(qdy), transposed(qx)), "dw");
    expect_same(g.db, column_sums(dy), "db");
    EXPECT_EQ(*s.slot("x/amax"), amax_of(x));
    EXPECT_EQ(*s.slot("dy/amax"), amax_of(dy));
    EXPECT_EQ(*s.slot("w/amax"), amax_of(s.weight(weight)));
    ASSERT_EQ(s.end_step(), OCTAVO_OK);
    for (const char *pool : {"x/amax", "dy/amax", "w/amax", "nonfinite"})
      EXPECT_EQ(*s.slot(pool), 0.0f) << pool;
    for (float &v : s.weight(weight).v) v *= 0.5f;
  }
}

TEST_P(TeCurrent, no_scale_or_history_is_kept) {
  Session s(request);
  s.add_linear(s.add_weight(some_matrix(kN, kK, 1, 0.75f)));
  s.seal();
  for (const char *name : {"x/scale", "x/amax_history", "w/scale", "dy/amax_history"})
    EXPECT_EQ(s.slot(name), nullptr) << name;
}

TEST_P(TeCurrent, zeros_have_scale_one) {
  Session s(request);
  const uint32_t weight = s.add_weight(Matrix(kN, kK));
  const uint32_t linear = s.add_linear(weight);
  s.seal();
  ASSERT_EQ(s.quantize_weight(weight), OCTAVO_OK);
  EXPECT_EQ(*s.slot("weight_cache/scale_inv"), 1.0f);
  Matrix x(4, kK), y;
  ASSERT_EQ(s.forward(linear, x, y), OCTAVO_OK);
  expect_same(y, Matrix(4, kN), "y");
}

INSTANTIATE_TEST_SUITE_P(Formats, TeCurrent, testing::Bool(),
                         [](const testing::TestParamInfo<bool> &each) {
                           return std::string(each.param ? "hybrid" : "e4m3");
                         });

}  // namespace
}  // namespace octavo::test
