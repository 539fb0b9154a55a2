// Stochastic rounding of gradients in te, by every recipe: what it follows from, its slot, and that
// gradients are right on average. tests/kernels/round_codes_test.cpp has the bits.
#include <cmath>

#include "tests/plugins/te_layer.h"

namespace octavo::test {
namespace {

using Given = std::map<std::string, std::string>;

class TeStochastic : public testing::TestWithParam<const char *> {
 protected:
  TeStochastic() {
    for (size_t i = 0; i < dy.v.size(); ++i)
      dy.v[i] *= std::sin(static_cast<float>(i));  // no codes
  }
  TeSetup setup_of(Given options) const {
    const std::string name = GetParam();
    options["recipe"] = "\"" + name.substr(0, name.find('_')) + "\"";
    if (name.find("_e4m3") != std::string::npos) options["fp8_format"] = "\"E4M3\"";
    options.emplace("gradient_rounding", "\"stochastic\"");
    return {std::move(options), 1, OCTAVO_PARAMETER_LINEAR_WEIGHT};
  }
  Gradients gradients(TeLayer &layer) const {
    Gradients g;
    layer.backward(dy, x, g);
    return g;
  }
  void begin(TeLayer &layer) const {
    layer.quantize_weight();
    layer.forward(x);
  }
  Matrix w = some_matrix(32, 32, 1, 0.5f), x = some_matrix(32, 32, 2, 3.0f),
         dy = some_matrix(32, 32, 3, 0.1f);
};

TEST_P(TeStochastic, follows_seed_and_step_and_nothing_else) {
  TeLayer layer(setup_of({}), w), other(setup_of({{"rounding_seed", "7"}}), w);
  begin(layer);
  begin(other);
  const Gradients first = gradients(layer);
  EXPECT_EQ(gradients(layer).dx.v, first.dx.v) << "a backward may be repeated";
  EXPECT_NE(gradients(other).dx.v, first.dx.v) << "another seed";
  layer.end_step();
  EXPECT_EQ(*layer.slot("count"), 1);
  const Gradients second = gradients(layer);
  EXPECT_NE(second.dx.v, first.dx.v);
  EXPECT_NE(second.dw.v, first.dw.v);
  // A session that goes on from the checkpoint of another.
  *layer.slot("count") = 41;
  EXPECT_NE(gradients(layer).dx.v, second.dx.v);
  TeLayer resumed(setup_of({}), w);
  begin(resumed);
  gradients(resumed);
  resumed.end_step();  // delayed scaling has new scales
  *resumed.slot("count") = 41;
  EXPECT_EQ(gradients(resumed).dx.v, gradients(layer).dx.v);
  EXPECT_EQ(gradients(resumed).dw.v, gradients(layer).dw.v);
}

TEST_P(TeStochastic, draws_the_same_again_after_a_step_that_hosts_skip) {
  TeLayer layer(setup_of({}), w);
  begin(layer);
  Matrix bad = dy;
  bad.at(1, 1) = HUGE_VALF;
  Gradients g;
  layer.backward(bad, x, g);
  EXPECT_EQ(*layer.slot("nonfinite"), 1);
  layer.end_step();
  EXPECT_EQ(*layer.slot("count"), 0);
  EXPECT_EQ(*layer.slot("nonfinite"), 0);
}

TEST_P(TeStochastic, alone_has_a_slot_for_the_step) {
  const TeLayer layer(setup_of({}), w),
      nearest(setup_of({{"gradient_rounding", "\"nearest\""}}), w);
  ASSERT_NE(layer.described("count"), nullptr);
  EXPECT_EQ(layer.described("count")->flags, uint32_t{OCTAVO_SLOT_CHECKPOINT});
  EXPECT_EQ(nearest.described("count"), nullptr);
}

INSTANTIATE_TEST_SUITE_P(All, TeStochastic,
                         testing::Values("delayed", "current", "block", "mx", "rowwise", "nvfp4",
                                         "delayed_e4m3"),
                         [](const auto &one) { return std::string(one.param); });

class TeStochasticMean : public TeStochastic {};

double distance(const std::vector<double> &sums, double count, const Matrix &expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    const double wanted = static_cast<double>(expected.v[i]);
    error += std::pow(sums[i] / count - wanted, 2);
    norm += wanted * wanted;
  }
  return std::sqrt(error / norm);
}

void add(std::vector<double> *sums, const Matrix &m) {
  sums->resize(m.v.size());
  for (size_t i = 0; i < m.v.size(); ++i) (*sums)[i] += static_cast<double>(m.v[i]);
}

// With a weight and inputs of ones on the diagonal, dx is what the codes of dy stand for by rows,
// and dw is it by columns. To nearest an error is uniform in a step h and its square h^2 / 12 on
// average, at random h^2 / 6, and that of the mean of n steps is an n-th of it.
TEST_P(TeStochasticMean, of_many_steps_is_the_gradient) {
  for (Matrix *m : {&w, &x})
    for (int64_t r = 0; r < 32; ++r)
      for (int64_t c = 0; c < 32; ++c) m->at(r, c) = r == c ? 1.0f : 0.0f;
  Matrix turned(32, 32);
  for (int64_t r = 0; r < 32; ++r)
    for (int64_t c = 0; c < 32; ++c) turned.at(c, r) = dy.at(r, c);
  TeLayer layer(setup_of({}), w), rounded(setup_of({{"gradient_rounding", "\"nearest\""}}), w);
  begin(layer);
  begin(rounded);
  std::vector<double> dx, dw, nearest_dx, nearest_dw;
  const Gradients g = gradients(rounded);
  add(&nearest_dx, g.dx);
  add(&nearest_dw, g.dw);
  constexpr int kSteps = 1024;
  for (int step = 0; step < kSteps; ++step) {
    const Gradients one = gradients(layer);
    add(&dx, one.dx);
    add(&dw, one.dw);
    layer.end_step();
  }
  const double expected = std::sqrt(2.0 / kSteps);
  EXPECT_NEAR(distance(dx, kSteps, dy) / distance(nearest_dx, 1, dy), expected, expected / 4);
  EXPECT_NEAR(distance(dw, kSteps, turned) / distance(nearest_dw, 1, turned), expected,
              expected / 4);
}

INSTANTIATE_TEST_SUITE_P(All, TeStochasticMean,
                         testing::Values("delayed", "current", "block", "mx", "rowwise",
                                         "delayed_e4m3"),
                         [](const auto &one) { return std::string(one.param); });

}  // namespace
}  // namespace octavo::test
