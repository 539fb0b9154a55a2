// What a step of msamp takes from its call: groups, GRAD_SCALE, the skip flag, schedules, counts;
// and states in E4M3 whose second moment rounds to zero.
#include "tests/plugins/adam_oracle.h"
#include "tests/plugins/msamp_host.h"

namespace octavo::test {
namespace {

using Hyper = std::array<float, OCTAVO_HYPER_COUNT>;

Hyper hyper_of(const AdamOracle &o) {
  return {static_cast<float>(o.lr),  static_cast<float>(o.beta1), static_cast<float>(o.beta2),
          static_cast<float>(o.eps), static_cast<float>(o.decay), 1.0f};
}
// fp32 against fp64, the bound of the torch vectors (tests/vectors/README.md).
void expect_near(const Matrix &found, const AdamOracle &o, const std::string &what) {
  for (size_t i = 0; i < found.v.size(); ++i)
    ASSERT_LE(std::fabs(found.v[i] - o.w[i]), 4e-6 * (std::fabs(o.w[i]) + o.lr)) << what << i;
}

// Two arrays of hyperparameters in one call; a schedule that changes them between steps; a group
// that sits out some steps keeps its own count.
TEST(MsampStep, groups_schedules_and_counts) {
  Msamp m("opt_level = \"O1\"");
  AdamOracle o[2];
  o[0].decay = 0.1;
  o[1].beta2 = 0.95;
  for (uint32_t p = 0; p < 2; ++p) {
    m.add_parameter(rough_matrix(4, 16, 1 + p, 1.0f));
    o[p].start(m.value(p).v);
  }
  m.seal();
  for (uint32_t k = 0; k < 12; ++k) {
    std::vector<octavo_parameter_item> items;
    Hyper hyper[2];
    for (uint32_t p = 0; p < 2; ++p) {
      o[p].lr = (p == 0 ? 1e-2 : 3e-3) / (1 + k);
      hyper[p] = hyper_of(o[p]);
      m.set_gradient(p, rough_matrix(4, 16, 50 + 2 * k + p, 2.0f));
      if (p == 1 && k % 3 == 0) continue;
      items.push_back(m.item(p, hyper[p].data()));
      o[p].step(m.gradient(p).v.data());
    }
    ASSERT_EQ(m.step_items(items), OCTAVO_OK) << m.error();
    for (uint32_t p = 0; p < 2; ++p)
      ASSERT_NO_FATAL_FAILURE(expect_near(m.value(p), o[p], "group " + std::to_string(p) + ", "));
  }
  EXPECT_EQ(*static_cast<int32_t *>(m.memory("step", 0)), 12);
  EXPECT_EQ(*static_cast<int32_t *>(m.memory("step", 1)), 8);
}

// More parameters in one call than cross to the kernels at once.
TEST(MsampStep, many_parameters) {
  constexpr uint32_t kMany = 70;
  Msamp m("opt_level = \"O1\"");
  std::vector<AdamOracle> o(kMany);
  for (uint32_t p = 0; p < kMany; ++p) {
    m.add_parameter(rough_matrix(1, 5, p, 1.0f));
    o[p].start(m.value(p).v);
  }
  m.seal();
  for (uint32_t p = 0; p < kMany; ++p) {
    m.set_gradient(p, rough_matrix(1, 5, 100 + p, 1.0f));
    o[p].step(m.gradient(p).v.data());
  }
  ASSERT_EQ(m.step(), OCTAVO_OK) << m.error();
  for (uint32_t p = 0; p < kMany; ++p)
    ASSERT_NO_FATAL_FAILURE(expect_near(m.value(p), o[p], "parameter " + std::to_string(p) + ", "));
}

// A linear's weight and a bias at every level, to the byte.
class MsampStepLevels : public testing::TestWithParam<Variant> {
 protected:
  static void build(Msamp &m) {
    m.add_linear(rough_matrix(16, 24, 1, 1.0f));
    m.add_parameter(rough_matrix(1, 16, 2, 1.0f));
    m.seal();
    m.hyper()[OCTAVO_HYPER_WEIGHT_DECAY] = 0.1f;
  }
  static void give(Msamp &m, uint32_t step, float factor) {
    Matrix g = rough_matrix(16, 24, 10 + step, 3.0f);
    m.set_gradient(1, rough_matrix(1, 16, 30 + step, 3.0f));
    for (float &v : m.gradient(1).v) v *= factor;
    ASSERT_EQ(m.write(0, OCTAVO_ROLE_GRADIENT, g), OCTAVO_OK);
    // Codes stay, their scale_inv takes the factor: what a device-side clipping spares.
    *m.floats("gradient/scale_inv") *= factor;
  }
};

TEST_P(MsampStepLevels, grad_scale_equals_scaled_gradients) {
  Msamp scaled(GetParam().lines), plain(GetParam().lines);
  build(scaled);
  build(plain);
  scaled.hyper()[OCTAVO_HYPER_GRAD_SCALE] = 0.375f;  // exact on codes and on these gradients
  for (uint32_t k = 0; k < 5; ++k) {
    give(scaled, k, 1.0f);
    give(plain, k, 0.375f);
    ASSERT_EQ(scaled.step(), OCTAVO_OK) << scaled.error();
    ASSERT_EQ(plain.step(), OCTAVO_OK) << plain.error();
    for (const uint32_t role : {OCTAVO_ROLE_WEIGHT, OCTAVO_ROLE_EXP_AVG, OCTAVO_ROLE_EXP_AVG_SQ})
      for (uint32_t p = 0; p < 2; ++p)
        expect_same(scaled.read(p, role), plain.read(p, role), "role " + std::to_string(role));
  }
}

TEST_P(MsampStepLevels, skip_changes_nothing) {
  Msamp m(GetParam().lines);
  build(m);
  give(m, 0, 1.0f);
  ASSERT_EQ(m.step(), OCTAVO_OK);
  give(m, 1, 1.0f);
  const auto before = m.snapshot(2);
  for (const float flag : {1.0f, 0x1p-149f, std::nanf("")}) {
    ASSERT_EQ(m.step(&flag), OCTAVO_OK) << m.error();
    EXPECT_TRUE(m.snapshot(2) == before) << flag;
  }
  EXPECT_EQ(*static_cast<int32_t *>(m.memory("step")), 1);
  const float none = 0;
  ASSERT_EQ(m.step(&none), OCTAVO_OK);
  EXPECT_FALSE(m.snapshot(2) == before);
  EXPECT_EQ(*static_cast<int32_t *>(m.memory("step")), 2);
}

TEST_P(MsampStepLevels, sum_of_squares_for_clipping) {
  Msamp m(GetParam().lines);
  build(m);
  give(m, 0, 1.0f);
  double expected = 100;
  for (const float v : m.read(0, OCTAVO_ROLE_GRADIENT).v) expected += double{v} * double{v};
  for (const float v : m.gradient(1).v) expected += double{v} * double{v};
  float sum = 100;
  const octavo_parameter_item items[] = {m.item(0), m.item(1)};
  auto c = Msamp::make<octavo_norm_call>(OCTAVO_KIND_NORM_CALL);
  c.items = items;
  c.count = 2;
  c.sum = &sum;
  ASSERT_EQ(m.optimizer()->sum_of_squares(m.session(), &c), OCTAVO_OK) << m.error();
  // 400 positive terms: at most as many roundings of 2^-24, each of a part of the sum.
  EXPECT_NEAR(sum, expected, 400 * 0x1p-24 * expected);
}

constexpr Variant kVariants[] = {
    {"o1", "opt_level = \"O1\""},        {"o2", "opt_level = \"O2\""},
    {"o3", "opt_level = \"O3\""},        {"block", "state_format = \"e4m3-block\""},
    {"coat", "state_format = \"coat\""}, {"msamp04", "profile = \"msamp04\""},
    {"adam", "optimizer = \"adam\""}};
INSTANTIATE_TEST_SUITE_P(Of, MsampStepLevels, testing::ValuesIn(kVariants), name_of);

// One large gradient beside small ones, then none: squares 1e6 apart do not both fit into E4M3, so
// the second moment of the small ones is stored as 0 while their first moment is not, and the next
// step divides by eps. Returns the largest change of a weight in one step, in learning rates.
double largest_update(const std::string &lines) {
  constexpr int64_t kCount = 256;
  Msamp m(lines);
  m.add_parameter(Matrix(1, kCount, 1.0f));
  m.seal();
  double largest = 0;
  for (int k = 0; k < 40; ++k) {
    for (int64_t i = 0; i < kCount; ++i)
      m.gradient(0).at(0, i) = k >= 3 ? 0.0f : i == 0 ? 1000.0f : 1.0f;
    const Matrix before = m.value(0);
    EXPECT_EQ(m.step(), OCTAVO_OK) << m.error();
    for (size_t i = 0; i < before.v.size(); ++i) {
      EXPECT_TRUE(std::isfinite(m.value(0).v[i]));
      const double change = std::fabs(double{m.value(0).v[i]} - double{before.v[i]});
      largest = std::max(largest, change / double{m.hyper()[OCTAVO_HYPER_LR]});
    }
  }
  return largest;
}

// A second moment is kept at 2^-9 of its block's scale or more, which only makes steps smaller.
// Rounding makes a moment at most 1 / 16 larger and a small second moment at most a third smaller,
// so a step of one learning rate stays below 1.0625 / sqrt(2 / 3) = 1.3; two are asked for.
TEST(MsampTrap, a_second_moment_never_becomes_zero) {
  EXPECT_LE(largest_update("state_format = \"e4m3-block\""), 2.0);
  EXPECT_LE(largest_update("state_format = \"coat\""), 2.0);
  EXPECT_LE(largest_update("opt_level = \"O2\""), 2.0);
  EXPECT_LE(largest_update("opt_level = \"O1\""), 2.0);
}

// Without that rule, as in MS-AMP's time, m / eps = 0.1 / 1e-8 learning rates.
TEST(MsampTrap, it_explodes_where_zero_is_allowed) {
  EXPECT_GE(largest_update("state_format = \"e4m3-block\"\nprofile = \"msamp04\""), 1e6);
  // Range expansion gives every positive value a code of its own.
  EXPECT_LE(largest_update("state_format = \"coat\"\nprofile = \"msamp04\""), 2.0);
}

}  // namespace
}  // namespace octavo::test
