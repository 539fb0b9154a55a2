// Delayed scaling, step by step: every number of a tiny layer against the plain computation.
#include "tests/plugins/layer.h"

namespace octavo::test {
namespace {

struct Recipe {
  const char *algorithm;
  int margin;
  int64_t length;
  bool fused;
  bool hybrid;
};

std::string name_of(const Recipe &r) {
  return std::string(r.algorithm) + "_margin" + std::to_string(r.margin) + "_history" +
         std::to_string(r.length) + (r.fused ? "_fused" : "_unfused") +
         (r.hybrid ? "_hybrid" : "_e4m3");
}
void PrintTo(const Recipe &r, std::ostream *out) {
  *out << name_of(r);
}

class TeDelayed : public testing::TestWithParam<Recipe> {
 protected:
  static constexpr int64_t kM = 5, kN = 6, kK = 7;

  TeDelayed() {
    const Recipe &r = GetParam();
    request.set("fp8.backend", "te")
        .set("fp8.te.recipe", "delayed")
        .set("fp8.te.amax_compute_algo", r.algorithm)
        .set("fp8.te.margin", r.margin)
        .set("fp8.te.amax_history_len", r.length)
        .set("fp8.te.profile", r.fused ? "te2-delayed-fused" : "te2-delayed-unfused")
        .set("fp8.te.fp8_format", r.hybrid ? "HYBRID" : "E4M3");
  }
  DelayedOperand operand(const Format &f) const {
    const Recipe &r = GetParam();
    return {f.max,   std::string(r.algorithm) == "max",
            r.fused, r.margin,
            1.0f,    std::vector<float>(static_cast<size_t>(r.length), 0.0f)};
  }
  const Format &gradient_format() const { return GetParam().hybrid ? kE5m2 : kE4m3; }

  void expect_state(Session &s, const std::string &name, const DelayedOperand &expected) {
    EXPECT_EQ(*s.slot(name + "/amax"), 0.0f) << name;
    EXPECT_EQ(*s.slot(name + "/scale"), expected.scale) << name;
    const float *history = s.slot(name + "/amax_history");
    for (size_t row = 0; row < expected.history.size(); ++row)
      EXPECT_EQ(history[row], expected.history[row]) << name << " row " << row;
  }

  Environment environment;
  Request request;
};

// Magnitudes rise and fall, so that a maximum over the history differs from the last one, and one
// step has activations that saturate under the scale they meet.
TEST_P(TeDelayed, six_steps) {
  Session s(request);
  const uint32_t weight = s.add_weight(some_matrix(kN, kK, 1, 0.75f));
  const uint32_t linear = s.add_linear(weight);
  s.seal();
  DelayedOperand x_state = operand(kE4m3), w_state = operand(kE4m3),
                 dy_state = operand(gradient_format());
  Matrix bias = some_matrix(1, kN, 2, 1.0f);
  const float largest[] = {3.0f, 40.0f, 500.0f, 2.0f, 0.5f, 12.0f};
  for (uint32_t step = 0; step < 6; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    Matrix x = some_matrix(kM, kK, 10 + step, largest[step]);
    Matrix dy = some_matrix(kM, kN, 20 + step, largest[5 - step]);
    ASSERT_EQ(s.quantize_weight(weight), OCTAVO_OK) << request.host.error();
    Matrix y;
    ASSERT_EQ(s.forward(linear, x, y, &bias), OCTAVO_OK) << request.host.error();
    Gradients g;
    g.dw = some_matrix(kN, kK, 30, 1.0f);  // gradients of an earlier micro-batch
    const Matrix dw_before = g.dw;
    ASSERT_EQ(s.backward(linear, dy, x, g), OCTAVO_OK) << request.host.error();

    const Quantized qx = quantized(kE4m3, x, x_state.scale);
    const Quantized qw = quantized(kE4m3, s.weight(weight), w_state.scale);
    const Quantized qdy = quantized(gradient_format(), dy, dy_state.scale);
    expect_same(y, plus_rows(multiplied(qx, qw), bias), "y");
    expect_same(g.dx, multiplied(qdy, transposed(qw)), "dx");
    Matrix dw = multiplied(transposed(qdy), transposed(qx));
    for (size_t i = 0; i < dw.v.size(); ++i) dw.v[i] = dw_before.v[i] + dw.v[i];
    expect_same(g.dw, dw, "dw");
    expect_same(g.db, column_sums(dy), "db");

    EXPECT_EQ(*s.slot("x/amax"), amax_of(x));
    EXPECT_EQ(*s.slot("w/amax"), amax_of(s.weight(weight)));
    EXPECT_EQ(*s.slot("dy/amax"), amax_of(dy));
    ASSERT_EQ(s.end_step(), OCTAVO_OK) << request.host.error();
    x_state.end_step(amax_of(x));
    w_state.end_step(amax_of(s.weight(weight)));
    dy_state.end_step(amax_of(dy));
    expect_state(s, "x", x_state);
    expect_state(s, "w", w_state);
    expect_state(s, "dy", dy_state);
    for (float &v : s.weight(weight).v) v *= 1.25f;  // the optimizer's work
  }
}

TEST_P(TeDelayed, end_step_without_a_forward) {
  Session s(request);
  const uint32_t weight = s.add_weight(some_matrix(kN, kK, 1, 0.75f));
  const uint32_t linear = s.add_linear(weight);
  s.seal();
  DelayedOperand state = operand(kE4m3);
  for (float largest : {5.0f, 2.0f}) {
    Matrix x = some_matrix(kM, kK, 3, largest);
    Matrix y;
    ASSERT_EQ(s.quantize_weight(weight), OCTAVO_OK);
    ASSERT_EQ(s.forward(linear, x, y), OCTAVO_OK);
    ASSERT_EQ(s.end_step(), OCTAVO_OK);
    state.end_step(amax_of(x));
    expect_state(s, "x", state);
    for (int again = 0; again < 2; ++again) {
      ASSERT_EQ(s.end_step(), OCTAVO_OK);
      state.end_step(0);
      expect_state(s, "x", state);
    }
  }
}

TEST_P(TeDelayed, infinite_gradient_is_flagged_and_keeps_the_scale) {
  Session s(request);
  const uint32_t weight = s.add_weight(some_matrix(kN, kK, 1, 0.75f));
  const uint32_t linear = s.add_linear(weight);
  s.seal();
  Matrix x = some_matrix(kM, kK, 3, 2.0f), dy = some_matrix(kM, kN, 4, 2.0f), y;
  ASSERT_EQ(s.quantize_weight(weight), OCTAVO_OK);
  ASSERT_EQ(s.forward(linear, x, y), OCTAVO_OK);
  EXPECT_EQ(*s.slot("nonfinite"), 0.0f);
  dy.at(2, 3) = -INFINITY;
  Gradients g;
  ASSERT_EQ(s.backward(linear, dy, x, g), OCTAVO_OK);
  EXPECT_EQ(*s.slot("nonfinite"), 1.0f);
  ASSERT_EQ(s.end_step(), OCTAVO_OK);
  EXPECT_EQ(*s.slot("nonfinite"), 0.0f);
  EXPECT_EQ(*s.slot("dy/scale"), 1.0f);
  EXPECT_EQ(*s.slot("dy/amax"), 0.0f);
}

std::vector<Recipe> recipes() {
  std::vector<Recipe> all;
  for (const char *algorithm : {"max", "most_recent"})
    for (int margin : {0, 3})
      for (int64_t length : {1, 2, 16})
        for (bool fused : {true, false})
          for (bool hybrid : {true, false})
            all.push_back({algorithm, margin, length, fused, hybrid});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, TeDelayed, testing::ValuesIn(recipes()),
                         [](const testing::TestParamInfo<Recipe> &each) {
                           return name_of(each.param);
                         });

}  // namespace
}  // namespace octavo::test
