// The quirks of MS-AMP 0.4.0 that profile msamp04 keeps, each beside what msamp-fixed does.
#include "tests/plugins/msamp_host.h"

namespace octavo::test {
namespace {

constexpr const char *kParity = "profile = \"msamp04\"";
constexpr const char *kFixed = "profile = \"msamp-fixed\"";

// A linear with the weight 1, one input: y is x as the cast leaves it.
struct Identity {
  explicit Identity(const char *lines) : m(lines) {
    linear = m.add_linear(Matrix(1, 1, 1.0f));
    m.seal();
  }
  Matrix cast(Matrix x) {
    Matrix y;
    EXPECT_EQ(m.forward(linear, x, y), OCTAVO_OK) << m.error();
    return y;
  }
  Msamp m;
  uint32_t linear = 0;
};
Matrix column(std::initializer_list<float> values) {
  Matrix m(static_cast<int64_t>(values.size()), 1);
  std::copy(values.begin(), values.end(), m.v.begin());
  return m;
}
const float kInfinity = std::numeric_limits<float>::infinity();

// During the warm-up the rule sees the amax of the tensor itself. From an infinite one 0.4.0 takes
// the reciprocal of the scale, which throws five bits of small values away; fixed keeps the scale.
TEST(MsampProfile, infinite_amax_gives_the_reciprocal) {
  for (const char *profile : {kParity, kFixed}) {
    Identity i(profile);
    i.cast(column({10}));
    ASSERT_EQ(i.m.end_step(), OCTAVO_OK);
    ASSERT_EQ(*i.m.floats("x/scale"), 32.0f);
    const float scale = profile == kParity ? 1 / 32.0f : 32.0f;
    const Matrix y = i.cast(column({kInfinity, 0.11f}));
    EXPECT_EQ(y.at(0, 0), 448 / scale) << profile;
    EXPECT_EQ(y.at(1, 0), cast(kE4m3, 0.11f, scale) / scale) << profile;
    EXPECT_EQ(y.at(1, 0), profile == kParity ? 0.125f : 0.109375f);
    // The history takes 0 for it. 0.4.0 advances all counts and then puts this one back to 0
    // (msamp/optim/optimizer.py), so both have their whole warm-up before them.
    ASSERT_EQ(i.m.end_step(), OCTAVO_OK);
    EXPECT_EQ(*i.m.floats("x/scale"), 32.0f) << profile;
    EXPECT_EQ(*i.m.floats("x/counter"), 0.0f) << profile;
  }
}

// A quotient that overflows: 2^127 is the largest scale of fixed. An infinite one makes every value
// the largest code times 0, and 0 a NaN.
TEST(MsampProfile, overflowing_quotient) {
  const float tiny = 1e-37f;  // below 448 / FLT_MAX = 1.3e-36
  Identity parity(kParity), fixed(kFixed);
  const Matrix kept = fixed.cast(column({tiny, 0}));
  EXPECT_EQ(kept.at(0, 0), cast(kE4m3, tiny, 0x1p127f) * 0x1p-127f);
  EXPECT_NEAR(kept.at(0, 0) / tiny, 1.0f, 1.0f / 16);
  EXPECT_EQ(kept.at(1, 0), 0.0f);
  const Matrix lost = parity.cast(column({tiny, 0}));
  EXPECT_EQ(lost.at(0, 0), 0.0f);
  EXPECT_TRUE(std::isnan(lost.at(1, 0)));
  ASSERT_EQ(fixed.m.end_step(), OCTAVO_OK);
  EXPECT_EQ(*fixed.m.floats("x/scale"), 0x1p127f);
  ASSERT_EQ(parity.m.end_step(), OCTAVO_OK);
  EXPECT_EQ(*parity.m.floats("x/scale"), kInfinity);
}

// Adam with L2: 0.4.0 steps with the decayed gradient but stores moments of the raw one, so they
// are those of a run without decay; fixed stores what it steps with.
TEST(MsampProfile, decay_is_missing_from_stored_moments) {
  Matrix exp_avg[2][2], exp_avg_sq[2][2], weight[2][2];
  for (const bool parity : {false, true}) {
    for (const bool decays : {false, true}) {
      Msamp m(std::string("optimizer = \"adam\"\n") + (parity ? kParity : kFixed));
      m.add_linear(rough_matrix(8, 16, 1, 2.0f));
      m.seal();
      m.hyper()[OCTAVO_HYPER_WEIGHT_DECAY] = decays ? 0.5f : 0.0f;
      ASSERT_EQ(m.write(0, OCTAVO_ROLE_GRADIENT, rough_matrix(8, 16, 2, 1.0f)), OCTAVO_OK);
      ASSERT_EQ(m.step(), OCTAVO_OK) << m.error();
      exp_avg[parity][decays] = m.read(0, OCTAVO_ROLE_EXP_AVG);
      exp_avg_sq[parity][decays] = m.read(0, OCTAVO_ROLE_EXP_AVG_SQ);
      weight[parity][decays] = m.read(0, OCTAVO_ROLE_WEIGHT);
    }
  }
  EXPECT_NE(weight[1][1].v, weight[1][0].v);  // the step itself decays
  expect_same(weight[1][1], weight[0][1], "weight");
  const Matrix w = scaled_half(rough_matrix(8, 16, 1, 2.0f));
  const Matrix g = dequantized(by_rule(kE4m3, rough_matrix(8, 16, 2, 1.0f)));
  for (size_t i = 0; i < w.v.size(); ++i) {
    const double decayed = 0.1 * (double{g.v[i]} + 0.5 * double{w.v[i]}),
                 raw = 0.1 * double{g.v[i]};
    // Half an E4M3 unit: 1/16 of the value, or half of the smallest code, which the amax of about
    // 0.1 puts at 2^-10 / 2048.
    const double unit = 0x1p-21;
    EXPECT_NEAR(exp_avg[0][1].v[i], decayed, std::fabs(decayed) / 16 + unit);
    EXPECT_NEAR(exp_avg[1][1].v[i], raw, std::fabs(raw) / 16 + unit);
  }
  EXPECT_NE(exp_avg[1][1].v, exp_avg[0][1].v);
  EXPECT_NE(exp_avg_sq[1][1].v, exp_avg_sq[0][1].v);
}

// bf16 output: 0.4.0 rounds the product, adds the bias and rounds again; fixed rounds once.
TEST(MsampProfile, bias_after_the_product) {
  constexpr int64_t kM = 16, kN = 24, kK = 32;
  const Matrix weight = rough_matrix(kN, kK, 1, 1.0f), bias = rough_matrix(1, kN, 2, 4.0f);
  Matrix x = rough_matrix(kM, kK, 3, 2.0f);
  const Matrix product = multiplied(by_rule(kE4m3, x), by_rule(kE4m3, scaled_half(weight)));
  size_t differ = 0;
  for (const char *profile : {kParity, kFixed}) {
    Msamp m(profile);
    const uint32_t linear = m.add_linear(weight);
    m.seal();
    Matrix b = bias;
    const octavo_tensor tb = tensor_of(b);
    std::vector<uint16_t> y(kM * kN);
    ASSERT_EQ(
        m.forward_to(linear, tensor_of(x), {y.data(), kM, kN, kN, OCTAVO_BF16, 0}, &tb, nullptr),
        OCTAVO_OK)
        << m.error();
    for (int64_t r = 0; r < kM; ++r) {
      for (int64_t c = 0; c < kN; ++c) {
        const float once = bfloat_of(product.at(r, c) + bias.at(0, c));
        const float twice = bfloat_of(bfloat_of(product.at(r, c)) + bias.at(0, c));
        differ += once != twice ? 1 : 0;
        const float found =
            std::bit_cast<float>(uint32_t{y[static_cast<size_t>(r * kN + c)]} << 16);
        ASSERT_EQ(found, profile == kParity ? twice : once) << profile << " " << r << ", " << c;
      }
    }
  }
  EXPECT_GE(differ, 10u) << "these numbers do not tell the two apart";
}

// A live amax of 0 rolls the history of 0.4.0 and counts as a step; fixed leaves both alone.
TEST(MsampProfile, zero_amax) {
  for (const char *profile : {kParity, kFixed}) {
    Identity i(profile);
    i.cast(column({3}));
    ASSERT_EQ(i.m.end_step(), OCTAVO_OK);
    i.cast(column({0}));
    ASSERT_EQ(i.m.end_step(), OCTAVO_OK);
    EXPECT_EQ(*i.m.floats("x/counter"), profile == kParity ? 2.0f : 1.0f);
    EXPECT_EQ(i.m.floats("x/amax_history")[15], profile == kParity ? 0.0f : 3.0f);
    EXPECT_EQ(*i.m.floats("x/scale"), msamp_scale(3, 448)) << profile;
  }
}

}  // namespace
}  // namespace octavo::test
