// Telemetry of casts: equal to a recount, only where the host asks for it, cleared by end_step.
#include "tests/plugins/te_layer.h"
#include "tests/plugins/te_oracle.h"

namespace octavo::test {
namespace {

constexpr int64_t kM = 33, kN = 20, kK = 130;

struct Counts {
  double saturated = 0, underflow = 0, signal = 0, noise = 0;
};

// An element counts as saturated from 2^-20 beyond the range on, relative: the amax of a tensor can
// lie above the range by the roundings of the scale that was made of it, and is not meant.
void recount(const Matrix &m, const CastTensor &t, const Format &f, Counts *sum) {
  for (size_t i = 0; i < m.v.size(); ++i) {
    const float v = m.v[i];
    const double limit = static_cast<double>(t.scale_inv.v[i]) * static_cast<double>(f.max);
    if (std::fabs(static_cast<double>(v)) > limit * (1 + std::ldexp(1.0, -20))) ++sum->saturated;
    if (v != 0 && t.codes.v[i] == 0) ++sum->underflow;
    const double value = static_cast<double>(v);
    const double error = value - static_cast<double>(t.values.v[i]);
    sum->signal += value * value;
    sum->noise += error * error;
  }
}

class TeTelemetry : public testing::TestWithParam<TeRecipe> {
 protected:
  static TeSetup setup(const char *plain = "none") {
    TeSetup s{GetParam().options};
    s.options["telemetry"] = "true";
    s.options["override_linear_precision"] = "\"" + std::string(plain) + "\"";
    return s;
  }
  // Counts are exact. A sum of squares adds n fp32 numbers, each a rounded square of a rounded
  // difference: at most n + 4 roundings of 2^-24 relative, of numbers that are all positive. The
  // difference itself is off by at most 2^-24 of the value, so the noise by 2^-23 * |value| *
  // |error| more, which the geometric mean of both sums bounds.
  void expect_counts(TeLayer &layer, const std::string &operand, const Counts &expected, double n) {
    const auto found = [&](const char *name) {
      return static_cast<double>(*layer.slot(operand + name));
    };
    const double unit = std::ldexp(1.0, -24);
    EXPECT_EQ(found("/saturated"), expected.saturated) << operand;
    EXPECT_EQ(found("/underflow"), expected.underflow) << operand;
    EXPECT_NEAR(found("/signal"), expected.signal, (n + 4) * unit * expected.signal) << operand;
    EXPECT_NEAR(
        found("/noise"), expected.noise,
        (n + 4) * unit * expected.noise + 4 * unit * std::sqrt(expected.noise * expected.signal))
        << operand;
  }
  const Matrix w = uneven_matrix(kN, kK, 1, 0.75f);
  // Some elements are far above E4M3's range, and some far below that of their block.
  static Matrix spread(int64_t rows, int64_t cols, uint32_t seed, float largest) {
    Matrix m = uneven_matrix(rows, cols, seed, largest);
    for (size_t i = 0; i < m.v.size(); i += 7) m.v[i] = std::ldexp(m.v[i], -24);
    return m;
  }
};

TEST_P(TeTelemetry, equals_a_recount_over_two_micro_batches) {
  const TeRecipe &r = GetParam();
  TeLayer layer(setup(), w);
  layer.quantize_weight();
  Counts x_counts, dy_counts, w_counts;
  recount(w, r.weight_rows(w), kE4m3, &w_counts);
  for (uint32_t batch = 0; batch < 2; ++batch) {
    const Matrix x = spread(kM, kK, 10 + batch, 500.0f), dy = spread(kM, kN, 20 + batch, 0.5f);
    layer.forward(x);
    Gradients g;
    layer.backward(dy, x, g);
    recount(x, r.rows(x), kE4m3, &x_counts);
    recount(dy, r.rows(dy, r.gradient()), r.gradient(), &dy_counts);
  }
  expect_counts(layer, "x", x_counts, 2 * kM * kK);
  expect_counts(layer, "dy", dy_counts, 2 * kM * kN);
  expect_counts(layer, "w", w_counts, kN * kK);
  EXPECT_GT(x_counts.underflow, 0);
  EXPECT_GT(x_counts.noise, 0);
  layer.end_step();
  for (const char *operand : {"x", "dy", "w"})
    for (const char *name : {"/saturated", "/underflow", "/signal", "/noise"})
      EXPECT_EQ(*layer.slot(std::string(operand) + name), 0.0f) << operand << name;
}

TEST_P(TeTelemetry, counts_casts_whose_rows_no_product_reads) {
  const TeRecipe &r = GetParam();
  TeLayer plain_fprop(setup("fprop"), w), plain_dgrad(setup("dgrad"), w);
  const Matrix x = spread(kM, kK, 10, 500.0f), dy = spread(kM, kN, 20, 0.5f);
  Counts x_counts, dy_counts, w_counts;
  recount(x, r.rows(x), kE4m3, &x_counts);
  recount(w, r.weight_rows(w), kE4m3, &w_counts);
  recount(dy, r.rows(dy, r.gradient()), r.gradient(), &dy_counts);
  plain_fprop.quantize_weight();
  plain_fprop.forward(x);
  expect_counts(plain_fprop, "x", x_counts, kM * kK);
  expect_counts(plain_fprop, "w", w_counts, kN * kK);
  plain_dgrad.quantize_weight();
  plain_dgrad.forward(x);
  Gradients g;
  plain_dgrad.backward(dy, x, g);
  expect_counts(plain_dgrad, "dy", dy_counts, kM * kN);
}

TEST_P(TeTelemetry, null_addresses_record_nothing_and_change_nothing) {
  TeLayer recorded(setup(), w), silent(setup(), w);
  silent.leave_out(
      {OCTAVO_ROLE_SATURATED, OCTAVO_ROLE_UNDERFLOW, OCTAVO_ROLE_SIGNAL, OCTAVO_ROLE_NOISE});
  const Matrix x = spread(kM, kK, 10, 500.0f), dy = spread(kM, kN, 20, 0.5f);
  Matrix y[2];
  Gradients g[2];
  for (TeLayer *layer : {&recorded, &silent}) {
    const int i = layer == &silent ? 1 : 0;
    layer->quantize_weight();
    y[i] = layer->forward(x);
    layer->backward(dy, x, g[i]);
  }
  expect_same(y[1], y[0], "y");
  expect_same(g[1].dx, g[0].dx, "dx");
  expect_same(g[1].dw, g[0].dw, "dw");
  for (const char *name : {"x/signal", "dy/signal", "w/signal"}) {
    EXPECT_GT(*recorded.slot(name), 0.0f) << name;
    EXPECT_EQ(*silent.slot(name), 0.0f) << name;
  }
  silent.end_step();  // leaves them out, too
}

TEST_P(TeTelemetry, slots_are_sums_that_ranks_combine) {
  TeLayer layer(setup(), w);
  const std::pair<const char *, uint32_t> roles[] = {{"/saturated", OCTAVO_ROLE_SATURATED},
                                                     {"/underflow", OCTAVO_ROLE_UNDERFLOW},
                                                     {"/signal", OCTAVO_ROLE_SIGNAL},
                                                     {"/noise", OCTAVO_ROLE_NOISE}};
  const std::pair<const char *, uint32_t> verbs[] = {
      {"x", OCTAVO_VERB_FORWARD}, {"dy", OCTAVO_VERB_BACKWARD}, {"w", OCTAVO_VERB_QUANTIZE_WEIGHT}};
  for (const auto &[operand, verb] : verbs) {
    for (const auto &[name, role] : roles) {
      SCOPED_TRACE(std::string(operand) + name);
      const octavo_slot *s = layer.described(std::string(operand) + name);
      ASSERT_NE(s, nullptr);
      EXPECT_EQ(s->role, role);
      EXPECT_EQ(s->combine, uint32_t{OCTAVO_COMBINE_SUM});
      EXPECT_EQ(s->flags, uint32_t{OCTAVO_SLOT_REDUCE});
      EXPECT_EQ(s->access[verb], uint8_t{OCTAVO_ACCESS_ACCUMULATE});
      EXPECT_EQ(s->access[OCTAVO_VERB_END_STEP], uint8_t{OCTAVO_ACCESS_WRITE});
    }
  }
  TeLayer without({GetParam().options}, w);
  EXPECT_EQ(without.slot("x/signal"), nullptr);
}

INSTANTIATE_TEST_SUITE_P(All, TeTelemetry, testing::ValuesIn(te_recipes()),
                         [](const testing::TestParamInfo<TeRecipe> &each) {
                           return std::string(each.param.name);
                         });

}  // namespace
}  // namespace octavo::test
