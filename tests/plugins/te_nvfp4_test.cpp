// The recipe nvfp4 of te: padding, the mean of stochastic rounding, and its slots. That its numbers
// are those of Transformer Engine is in tests/oracles/te_nvfp4_test.py and
// tests/kernels/golden_fp4_test.cpp.
#include <cmath>

#include "octavo/draft/fp4.h"
#include "tests/plugins/te_layer.h"

namespace octavo::test {
namespace {

using Given = std::map<std::string, std::string>;

TeSetup setup_of(Given options, uint64_t alignment = 1) {
  options["recipe"] = "\"nvfp4\"";
  return {std::move(options), alignment, OCTAVO_PARAMETER_LINEAR_WEIGHT};
}

Matrix padded(const Matrix &m, int64_t rows, int64_t cols) {
  Matrix out(rows, cols);
  for (int64_t r = 0; r < m.rows; ++r)
    for (int64_t c = 0; c < m.cols; ++c) out.at(r, c) = m.at(r, c);
  return out;
}

// The part of `all` that `part` is.
void expect_front(const Matrix &part, const Matrix &all, const char *name) {
  for (int64_t r = 0; r < part.rows; ++r)
    for (int64_t c = 0; c < part.cols; ++c)
      ASSERT_EQ(part.at(r, c), all.at(r, c)) << name << " [" << r << ", " << c << "]";
}

TEST(TeNvfp4, sizes_are_padded_inside_and_it_does_not_show) {
  const Matrix w = some_matrix(20, 33, 1, 0.5f), x = some_matrix(7, 33, 2, 3.0f),
               dy = some_matrix(7, 20, 3, 0.1f);
  for (const Given &options :
       {Given{}, Given{{"disable_2d_quantization", "true"}},
        Given{{"disable_rht", "true"}, {"disable_stochastic_rounding", "true"}}}) {
    TeLayer wide(setup_of(options), padded(w, 32, 48));
    wide.quantize_weight();
    const Matrix expected = wide.forward(padded(x, 16, 48));
    Gradients all;
    wide.backward(padded(dy, 16, 32), padded(x, 16, 48), all);
    // Random numbers follow the layer's own sizes: 32 and 48 draw others.
    if (options.count("disable_stochastic_rounding") == 0) {
      TeLayer own(setup_of(options), w);
      own.quantize_weight();
      own.forward(x);
      all = Gradients{};
      own.backward(dy, x, all);
    }
    for (const uint64_t alignment : {1, 16, 32}) {
      TeLayer layer(setup_of(options, alignment), w);
      layer.quantize_weight();
      expect_front(layer.forward(x), expected, "y");
      Gradients g;
      layer.backward(dy, x, g);
      expect_front(g.dx, all.dx, "dx");
      expect_front(g.dw, all.dw, "dw");
    }
  }
}

TEST(TeNvfp4, slots_and_verdict_say_what_it_takes) {
  TeLayer layer(setup_of({}), some_matrix(20, 33, 1, 0.5f));
  EXPECT_EQ(text_of(layer.verdict().text), "NVFP4 block scaling");
  EXPECT_EQ(text_of(layer.verdict().evidence),
            "N 20 -> 32, K 33 -> 48: 2.33 times the multiply-adds");
  const struct {
    const char *name;
    uint32_t dtype;
    int64_t rows, cols;
  } slots[] = {{"weight_cache", OCTAVO_U8, 32, 24},
               {"weight_cache/scale_inv", OCTAVO_E4M3FN, 2, 3},
               {"weight_cache/amax", OCTAVO_F32, 1, 1},
               {"weight_cache_t", OCTAVO_U8, 48, 16},
               {"weight_cache_t/scale_inv", OCTAVO_E4M3FN, 3, 2},
               {"weight_cache_t/amax", OCTAVO_F32, 1, 1},
               {"count", OCTAVO_F32, 1, 1}};
  for (const auto &slot : slots) {
    const octavo_slot *found = layer.described(slot.name);
    ASSERT_NE(found, nullptr) << slot.name;
    EXPECT_EQ(found->dtype, slot.dtype) << slot.name;
    EXPECT_EQ(found->rows, slot.rows) << slot.name;
    EXPECT_EQ(found->cols, slot.cols) << slot.name;
  }
  EXPECT_EQ(layer.described("count")->flags, uint32_t{OCTAVO_SLOT_CHECKPOINT});
  TeLayer nearest(setup_of({{"disable_stochastic_rounding", "true"}}),
                  some_matrix(20, 33, 1, 0.5f));
  EXPECT_EQ(nearest.described("count"), nullptr);
}

double distance(const std::vector<double> &a, const std::vector<float> &b) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    error += std::pow(a[i] - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(error / norm);
}

// Of many steps the mean of dx is dy by what the codes of w stand for, which is dx with
// backward_override "dequantized"; one step is far from it.
TEST(TeNvfp4, gradients_are_right_on_average) {
  const Matrix w = some_matrix(32, 48, 1, 0.5f), x = some_matrix(32, 48, 2, 3.0f),
               dy = some_matrix(32, 32, 3, 0.1f);
  const auto gradients = [&](TeLayer &layer) {
    Gradients g;
    layer.backward(dy, x, g);
    return g;
  };
  TeLayer layer(setup_of({}), w), exact(setup_of({{"backward_override", "\"dequantized\""}}), w);
  for (TeLayer *l : {&layer, &exact}) l->quantize_weight(), l->forward(x);
  const Matrix expected = gradients(exact).dx;
  std::vector<double> mean(expected.v.size());
  const int steps = 400;
  double one = 0;
  for (int step = 0; step < steps; ++step) {
    const Matrix dx = gradients(layer).dx;
    if (step == 0) one = distance({dx.v.begin(), dx.v.end()}, expected.v);
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<double>(dx.v[i]) / steps;
    layer.end_step();
  }
  // The mean of independent errors is 20 times smaller; saturation of a block's largest elements
  // stays.
  EXPECT_GT(one, 0.1);
  EXPECT_LT(distance(mean, expected.v), one / 20 * 1.2 + 0.01);
}

}  // namespace
}  // namespace octavo::test
