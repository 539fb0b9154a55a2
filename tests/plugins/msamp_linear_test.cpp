// y, dx and the weight gradient of msamp against plain arithmetic, bit for bit.
//
// Every scale is a power of two from the definition; x and dy look back over a window, weights and
// weight gradients at themselves.
#include <deque>

#include "tests/plugins/msamp_host.h"

namespace octavo::test {
namespace {

constexpr int64_t kN = 6, kK = 7, kM = 5;

// The scale of x or dy over the steps: the tensor's own until `window` steps have passed, then that
// of the largest amax of the last `window` steps.
struct Operand {
  Operand(const Format &f, size_t steps_back) : format(f), window(steps_back) {}

  Format format;
  size_t window;
  float scale = 1;
  size_t steps = 0;
  std::deque<float> last;

  float now(const Matrix &m) const {
    return steps >= window ? scale : msamp_scale(amax_of(m), format.max, scale);
  }
  Quantized cast(const Matrix &m) const { return quantized(format, m, now(m)); }
  void end_step(float amax) {
    if (amax == 0) return;
    last.push_back(amax);
    if (last.size() > window) last.pop_front();
    scale = msamp_scale(*std::max_element(last.begin(), last.end()), format.max, scale);
    ++steps;
  }
};

// One linear beside its expectation.
struct Layer {
  explicit Layer(const std::string &lines, size_t window = 16)
      : m("amax_history_len = " + std::to_string(window) + "\n" + lines),
        x(kE4m3, window),
        dy(kE5m2, window) {
    linear = m.add_linear(rough_matrix(kN, kK, 1, 2.0f));
    m.seal();
    weight = by_rule(kE4m3, scaled_half(rough_matrix(kN, kK, 1, 2.0f)));
  }
  Msamp m;
  Operand x, dy;
  uint32_t linear = 0;
  Quantized weight;
};

// dw as the slot holds it: E4M3 with the scale of the sum.
Matrix stored_gradient(const Matrix &dw) {
  return dequantized(by_rule(kE4m3, dw));
}
Matrix sum_of(Matrix a, const Matrix &b) {
  for (size_t i = 0; i < a.v.size(); ++i) a.v[i] += b.v[i];
  return a;
}
Matrix product_of(const Quantized &dy, const Quantized &x) {
  return multiplied(transposed(dy), transposed(x));
}

// The rule's published values, through the weight and its cache.
TEST(MsampRule, published_values) {
  for (const auto &[amax, scale] : {std::pair{10.0f, 32.0f}, std::pair{1e4f, 0.03125f}}) {
    EXPECT_EQ(msamp_scale(amax, 448), scale);  // MS-AMP's own test of its rule
    Msamp m;
    Matrix w(1, 2, 1.0f);
    w.at(0, 1) = -amax;
    m.add_linear(w);
    m.seal();
    EXPECT_EQ(*m.floats("weight_cache/scale_inv"), 1.0f / scale);
    EXPECT_EQ(*m.floats("weight/scale_inv"), 1.0f / msamp_scale(amax, 65504.0f));
  }
}

constexpr Variant kVariants[] = {{"o2", ""},
                                 {"o1", "opt_level = \"O1\""},
                                 {"o3", "opt_level = \"O3\""},
                                 {"no_cache", "weight_cache = false"},
                                 {"o3_no_cache", "opt_level = \"O3\"\nweight_cache = false"},
                                 {"fp32_gradients", "gradient_accumulation = \"fp32\""}};

class MsampLinear : public testing::TestWithParam<Variant> {};

// Amplitudes fall, so that after the warm-up the window, and not the tensor, gives the scale; one
// step in the middle records nothing, which does not count.
TEST_P(MsampLinear, warm_up_then_window) {
  constexpr size_t kWindow = 3;
  Layer l(GetParam().lines, kWindow);
  const Matrix bias = rough_matrix(1, kN, 9, 2.0f);
  const float amplitude[] = {1, 40, 6, 3, 0, 0.75f, 0.25f, 90};
  size_t stale = 0;
  for (uint32_t step = 0; step < std::size(amplitude); ++step) {
    Matrix x = rough_matrix(kM, kK, 10 + step, amplitude[step]);
    Matrix dy = rough_matrix(kM, kN, 50 + step, amplitude[step] * 0.125f);
    Matrix y, dx, b = bias;
    stale += l.x.now(x) != msamp_scale(amax_of(x), 448, l.x.scale) ? 1 : 0;
    const Quantized xq = l.x.cast(x), dyq = l.dy.cast(dy);
    ASSERT_EQ(l.m.forward(l.linear, x, y, &b), OCTAVO_OK) << l.m.error();
    expect_same(y, plus_rows(multiplied(xq, l.weight), bias), "y of step " + std::to_string(step));
    ASSERT_EQ(l.m.backward(l.linear, dy, dx), OCTAVO_OK) << l.m.error();
    expect_same(dx, multiplied(dyq, transposed(l.weight)), "dx of step " + std::to_string(step));
    const Matrix dw = product_of(dyq, xq);
    expect_same(l.m.read(0, OCTAVO_ROLE_GRADIENT),
                l.m.slot("gradient")->dtype == OCTAVO_F32 ? dw : stored_gradient(dw), "dw");
    EXPECT_EQ(*l.m.floats("x/amax"), amax_of(x));
    EXPECT_EQ(*l.m.floats("dy/amax"), amax_of(dy));
    ASSERT_EQ(l.m.end_step(), OCTAVO_OK);
    l.x.end_step(amax_of(x));
    l.dy.end_step(amax_of(dy));
    EXPECT_EQ(*l.m.floats("x/scale"), l.x.scale);
    EXPECT_EQ(*l.m.floats("dy/scale"), l.dy.scale);
    EXPECT_EQ(*l.m.floats("x/counter"), static_cast<float>(l.x.steps));
    EXPECT_EQ(*l.m.floats("nonfinite"), 0.0f);
  }
  EXPECT_GE(stale, 3u) << "no step used a scale of earlier ones";
}

TEST_P(MsampLinear, default_window_is_sixteen_steps) {
  Layer l(GetParam().lines);
  for (uint32_t step = 0; step < 18; ++step) {
    // The largest is the first, which leaves the window with the step behind it.
    Matrix x = some_matrix(2, kK, step, step == 0 ? 64.0f : 1.0f), y;
    const Quantized xq = l.x.cast(x);
    ASSERT_EQ(l.m.forward(l.linear, x, y), OCTAVO_OK);
    expect_same(y, multiplied(xq, l.weight), "y of step " + std::to_string(step));
    ASSERT_EQ(l.m.end_step(), OCTAVO_OK);
    l.x.end_step(amax_of(x));
    EXPECT_EQ(*l.m.floats("x/scale"), l.x.scale) << step;
  }
}

// Of a cast: elements beyond the range, elements that became 0, sums of squares of values and
// errors.
struct Counts {
  Counts(const Matrix &m, const Quantized &q, const Format &f) {
    for (size_t i = 0; i < m.v.size(); ++i) {
      const double value = m.v[i], code = q.codes.v[i];
      saturated +=
          std::fabs(value) > static_cast<double>(q.scale_inv) * static_cast<double>(f.max) ? 1 : 0;
      underflow += value != 0 && code == 0 ? 1 : 0;
      signal += value * value;
      const double error = value - code * static_cast<double>(q.scale_inv);
      noise += error * error;
    }
  }
  float saturated = 0, underflow = 0;
  double signal = 0, noise = 0;
};

TEST_P(MsampLinear, telemetry_counts_the_casts_of_x_and_dy) {
  Layer counted(std::string(GetParam().lines) + "\ntelemetry = true", 1),
      plain(GetParam().lines, 1);
  for (const float amplitude :
       {1.0f, 16.0f}) {  // the second step's values outgrow the scale of the first
    Matrix x = rough_matrix(kM, kK, 10, amplitude), dy = rough_matrix(kM, kN, 50, amplitude);
    x.v[1] = std::ldexp(x.v[1], -30), dy.v[2] = std::ldexp(dy.v[2], -40);
    const Counts of_x(x, counted.x.cast(x), kE4m3), of_dy(dy, counted.dy.cast(dy), kE5m2);
    Matrix y[2], dx[2];
    for (Layer *layer : {&counted, &plain}) {
      const int i = layer == &plain ? 1 : 0;
      ASSERT_EQ(layer->m.forward(layer->linear, x, y[i]), OCTAVO_OK) << layer->m.error();
      ASSERT_EQ(layer->m.backward(layer->linear, dy, dx[i]), OCTAVO_OK) << layer->m.error();
    }
    expect_same(y[1], y[0], "y");
    expect_same(dx[1], dx[0], "dx");
    for (const auto &[operand, counts] : {std::pair{"x", of_x}, std::pair{"dy", of_dy}}) {
      const auto found = [&, name = std::string(operand)](const char *what) {
        return *counted.m.floats(name + what);
      };
      EXPECT_EQ(found("/saturated"), counts.saturated) << operand;
      EXPECT_EQ(found("/underflow"), counts.underflow) << operand;
      EXPECT_GE(counts.underflow, 1) << operand;
      EXPECT_EQ(counts.saturated > 0, amplitude > 1) << operand;
      // At most 35 terms, each with a few roundings to fp32.
      EXPECT_NEAR(found("/signal"), counts.signal, 50 * 0x1p-24 * counts.signal) << operand;
      EXPECT_NEAR(found("/noise"), counts.noise, 50 * 0x1p-24 * (counts.noise + counts.signal))
          << operand;
    }
    for (Layer *layer : {&counted, &plain}) {
      ASSERT_EQ(layer->m.end_step(), OCTAVO_OK);
    }
    EXPECT_EQ(*counted.m.floats("x/saturated"), 0.0f);
    counted.x.end_step(amax_of(x)), counted.dy.end_step(amax_of(dy));
  }
}

// Micro-batches of one step: the slot holds the re-cast sum after each of them.
TEST_P(MsampLinear, accumulates_over_micro_batches) {
  Layer l(GetParam().lines);
  const bool fp32 = l.m.slot("gradient")->dtype == OCTAVO_F32;
  Matrix expected(kN, kK);
  float amax = 0;
  for (uint32_t batch = 0; batch < 4; ++batch) {
    Matrix x = rough_matrix(kM, kK, 20 + batch, 3.0f), dy = rough_matrix(kM, kN, 30 + batch, 0.1f);
    Matrix y, dx;
    ASSERT_EQ(l.m.forward(l.linear, x, y), OCTAVO_OK);
    ASSERT_EQ(l.m.backward(l.linear, dy, dx), OCTAVO_OK) << l.m.error();
    const Matrix sum = sum_of(expected, product_of(l.dy.cast(dy), l.x.cast(x)));
    expected = fp32 ? sum : stored_gradient(sum);
    expect_same(l.m.read(0, OCTAVO_ROLE_GRADIENT), expected, "batch " + std::to_string(batch));
    amax = std::max(amax, amax_of(x));
  }
  EXPECT_EQ(*l.m.floats("x/amax"), amax);
  // OVERWRITE forgets them.
  Matrix x = rough_matrix(kM, kK, 40, 1.0f), dy = rough_matrix(kM, kN, 41, 1.0f), y, dx;
  ASSERT_EQ(l.m.forward(l.linear, x, y), OCTAVO_OK);
  ASSERT_EQ(l.m.backward(l.linear, dy, dx, OCTAVO_BACKWARD_OVERWRITE), OCTAVO_OK);
  const Matrix dw = product_of(l.dy.cast(dy), l.x.cast(x));
  expect_same(l.m.read(0, OCTAVO_ROLE_GRADIENT), fp32 ? dw : stored_gradient(dw), "overwritten");
}

TEST_P(MsampLinear, skip_weight_leaves_the_gradient) {
  Layer l(GetParam().lines);
  Matrix x = rough_matrix(kM, kK, 2, 3.0f), dy = rough_matrix(kM, kN, 3, 1.0f), y, dx, dx_alone;
  ASSERT_EQ(l.m.forward(l.linear, x, y), OCTAVO_OK);
  ASSERT_EQ(l.m.backward(l.linear, dy, dx), OCTAVO_OK);
  const Matrix before = l.m.read(0, OCTAVO_ROLE_GRADIENT);
  ASSERT_EQ(l.m.backward(l.linear, dy, dx_alone, OCTAVO_BACKWARD_SKIP_WEIGHT), OCTAVO_OK);
  expect_same(l.m.read(0, OCTAVO_ROLE_GRADIENT), before, "gradient");
  expect_same(dx_alone, dx, "dx");
}

TEST_P(MsampLinear, no_rows) {
  Layer l(GetParam().lines);
  Matrix x = rough_matrix(kM, kK, 2, 3.0f), dy = rough_matrix(kM, kN, 3, 1.0f), y, dx;
  ASSERT_EQ(l.m.forward(l.linear, x, y), OCTAVO_OK);
  ASSERT_EQ(l.m.backward(l.linear, dy, dx), OCTAVO_OK);
  const Matrix before = l.m.read(0, OCTAVO_ROLE_GRADIENT);
  const float amax = *l.m.floats("x/amax");
  Matrix none_x(0, kK), none_dy(0, kN);
  ASSERT_EQ(l.m.forward(l.linear, none_x, y), OCTAVO_OK) << l.m.error();
  EXPECT_EQ(y.rows, 0);
  ASSERT_EQ(l.m.backward(l.linear, none_dy, dx), OCTAVO_OK) << l.m.error();
  expect_same(l.m.read(0, OCTAVO_ROLE_GRADIENT), before, "gradient");
  EXPECT_EQ(*l.m.floats("x/amax"), amax);
  ASSERT_EQ(l.m.backward(l.linear, none_dy, dx, OCTAVO_BACKWARD_OVERWRITE), OCTAVO_OK);
  expect_same(l.m.read(0, OCTAVO_ROLE_GRADIENT), Matrix(kN, kK), "gradient");
}

INSTANTIATE_TEST_SUITE_P(Of, MsampLinear, testing::ValuesIn(kVariants), name_of);

}  // namespace
}  // namespace octavo::test
