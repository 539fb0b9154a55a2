// Steps of training: micro-batches, tensors that a step does not use, ranks, tensors without rows.
#include "tests/plugins/te_layer.h"
#include "tests/plugins/te_oracle.h"

namespace octavo::test {
namespace {

constexpr int64_t kN = 20, kK = 130;

class TeSteps : public testing::TestWithParam<TeRecipe> {
 protected:
  static TeSetup setup() {
    TeSetup s{GetParam().options};
    if (is_delayed()) s.options["amax_history_len"] = "4";
    return s;
  }
  static bool is_delayed() { return std::string(GetParam().name) == "delayed"; }
  const Matrix w = uneven_matrix(kN, kK, 1, 0.75f);
};

Matrix rows_of(const Matrix &m, int64_t first, int64_t count) {
  Matrix part(count, m.cols);
  std::copy_n(m.v.begin() + first * m.cols, count * m.cols, part.v.begin());
  return part;
}

TEST_P(TeSteps, micro_batches_and_one_batch_give_one_amax_and_one_scale) {
  TeLayer whole(setup(), w), parts(setup(), w);
  constexpr int64_t batch = 32, count = 4;
  for (uint32_t step = 0; step < 3; ++step) {
    const Matrix x = uneven_matrix(batch * count, kK, 10 + step, 30.0f),
                 dy = uneven_matrix(batch * count, kN, 20 + step, 0.5f);
    for (TeLayer *layer : {&whole, &parts}) {
      const int64_t rows = layer == &parts ? batch : batch * count;
      layer->quantize_weight();
      Gradients g;
      for (int64_t first = 0; first < batch * count; first += rows) {
        layer->forward(rows_of(x, first, rows));
        layer->backward(rows_of(dy, first, rows), rows_of(x, first, rows), g);
      }
    }
    for (const char *pool : {"x/amax", "dy/amax", "w/amax"})
      EXPECT_EQ(*parts.slot(pool), *whole.slot(pool)) << pool;
    EXPECT_EQ(*parts.slot("x/amax"), amax_of(x));
    whole.end_step();
    parts.end_step();
    if (!is_delayed()) continue;
    for (const std::string operand : {"x", "dy", "w"}) {
      EXPECT_EQ(*parts.slot(operand + "/scale"), *whole.slot(operand + "/scale")) << operand;
      for (int row = 0; row < 4; ++row)
        EXPECT_EQ(parts.slot(operand + "/amax_history")[row],
                  whole.slot(operand + "/amax_history")[row])
            << operand << " row " << row;
    }
    EXPECT_EQ(*parts.slot("x/scale"), 448.0f / *std::max_element(parts.slot("x/amax_history"),
                                                                 parts.slot("x/amax_history") + 4));
  }
}

// An expert without tokens: its state stays finite, and what it has learned stays.
TEST_P(TeSteps, no_rows_keep_the_state) {
  TeLayer layer(setup(), w);
  const Matrix x = uneven_matrix(17, kK, 10, 30.0f), dy = uneven_matrix(17, kN, 20, 0.5f);
  layer.quantize_weight();
  Gradients g;
  layer.forward(x);
  layer.backward(dy, x, g);
  layer.end_step();
  const Gradients before = g;
  const auto state = [&] {
    std::vector<float> all;
    for (const char *slot : {"x/scale", "dy/scale"})
      if (layer.slot(slot) != nullptr) all.push_back(*layer.slot(slot));
    for (const char *slot : {"x/amax_history", "dy/amax_history"})
      if (layer.slot(slot) != nullptr)
        all.insert(all.end(), layer.slot(slot), layer.slot(slot) + 4);
    return all;
  };
  const std::vector<float> kept = state();
  for (int step = 0; step < 6; ++step) {
    const Matrix y = layer.forward(Matrix(0, kK));
    EXPECT_EQ(y.rows, 0);
    layer.backward(Matrix(0, kN), Matrix(0, kK), g);
    EXPECT_EQ(*layer.slot("x/amax"), 0.0f);
    layer.end_step();
    EXPECT_EQ(state(), kept);
  }
  expect_same(g.dw, before.dw, "dw");
  for (const float v : state()) EXPECT_TRUE(std::isfinite(v));
  layer.backward(Matrix(0, kN), Matrix(0, kK), g, OCTAVO_BACKWARD_OVERWRITE);
  expect_same(g.dw, Matrix(kN, kK), "overwritten dw");
}

TEST_P(TeSteps, forward_without_accumulators_records_nothing) {
  TeLayer layer(setup(), w), silent(setup(), w);
  silent.leave_out({OCTAVO_ROLE_AMAX, OCTAVO_ROLE_NONFINITE});
  const Matrix x = uneven_matrix(17, kK, 10, 30.0f);
  layer.quantize_weight();
  silent.quantize_weight();
  expect_same(silent.forward(x), layer.forward(x), "y");
  for (const char *pool : {"x/amax", "w/amax"}) {
    EXPECT_GT(*layer.slot(pool), 0.0f);
    EXPECT_EQ(*silent.slot(pool), 0.0f);
  }
}

TEST_P(TeSteps, casts_of_x_and_w_flag_inf_and_nan) {
  for (const float bad : {INFINITY, -INFINITY, NAN})
    for (const bool in_w : {false, true}) {
      Matrix x = uneven_matrix(17, kK, 10, 30.0f), spoiled = w;
      (in_w ? spoiled : x).at(3, 4) = bad;
      TeLayer layer(setup(), spoiled);
      layer.quantize_weight();
      EXPECT_EQ(*layer.slot("nonfinite"), in_w ? 1.0f : 0.0f);
      layer.forward(x);
      EXPECT_EQ(*layer.slot("nonfinite"), 1.0f);
      layer.end_step();
      EXPECT_EQ(*layer.slot("nonfinite"), 0.0f);
    }
}

TEST_P(TeSteps, ranks_combine_amax_unless_told_not_to) {
  for (const char *value : {"true", "false"}) {
    TeSetup s = setup();
    s.options["reduce_amax"] = value;
    const TeLayer layer(s, w);
    for (const char *pool : {"x/amax", "dy/amax", "w/amax"})
      EXPECT_EQ(layer.described(pool)->flags,
                value == std::string("true") ? uint32_t{OCTAVO_SLOT_REDUCE} : 0u)
          << pool;
    EXPECT_EQ(layer.described("nonfinite")->flags, uint32_t{OCTAVO_SLOT_REDUCE});
  }
}

INSTANTIATE_TEST_SUITE_P(All, TeSteps, testing::ValuesIn(plain_te_recipes()),
                         [](const testing::TestParamInfo<TeRecipe> &each) {
                           return std::string(each.param.name);
                         });

// Only the fused profile: the Python path of Transformer Engine rolls a window of its own accord.
TEST(TeUnused, a_tensor_keeps_its_scale_and_window) {
  Environment environment;
  Request request;
  request.set("fp8.backend", "te").set("fp8.te.amax_history_len", 3);
  Session s(request);
  const uint32_t used_weight = s.add_weight(some_matrix(6, 7, 1, 0.75f));
  const uint32_t idle_weight = s.add_weight(some_matrix(6, 7, 2, 0.75f));
  const uint32_t used = s.add_linear(used_weight), idle = s.add_linear(idle_weight);
  s.seal();
  Matrix x = some_matrix(5, 7, 3, 4.0f), y;
  for (const uint32_t weight : {used_weight, idle_weight})
    ASSERT_EQ(s.quantize_weight(weight), OCTAVO_OK);
  for (const uint32_t linear : {used, idle}) ASSERT_EQ(s.forward(linear, x, y), OCTAVO_OK);
  ASSERT_EQ(s.end_step(), OCTAVO_OK);
  const auto column = [&](const char *slot, int rows) {
    std::vector<float> values;  // of the idle one, the second of two columns
    for (int row = 0; row < rows; ++row) values.push_back(s.slot(slot)[2 * row + 1]);
    return values;
  };
  const auto scale = column("x/scale", 1), window = column("x/amax_history", 3),
             weight_scale = column("w/scale", 1);
  EXPECT_EQ(scale[0], 448.0f / amax_of(x));
  for (int step = 0; step < 5; ++step) {
    Matrix larger = some_matrix(5, 7, 4, 40.0f + static_cast<float>(step));
    ASSERT_EQ(s.quantize_weight(used_weight), OCTAVO_OK);
    ASSERT_EQ(s.forward(used, larger, y), OCTAVO_OK);
    ASSERT_EQ(s.end_step(), OCTAVO_OK);
    EXPECT_EQ(column("x/scale", 1), scale);
    EXPECT_EQ(column("x/amax_history", 3), window);
    EXPECT_EQ(column("w/scale", 1), weight_scale);
    EXPECT_NE(s.slot("x/scale")[0], scale[0]);
  }
}

}  // namespace
}  // namespace octavo::test
