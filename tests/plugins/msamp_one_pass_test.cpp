// state_scale = "bound": scales of moments and weights from bounds of their new values, in one
// pass.
#include "octavo/draft/one_pass.h"
#include "tests/plugins/msamp_host.h"

namespace octavo::test {
namespace {

const char *const kBound = "state_scale = \"bound\"\n";
const char *const kRows = "state_format = \"coat\"\nstate_scale = \"bound\"\n";

void build(Msamp &m) {
  m.add_linear(rough_matrix(24, 40, 1, 1.0f));
  m.seal();
}
void train(Msamp &m, uint32_t from, uint32_t to, float largest = 1.0f) {
  for (uint32_t k = from; k < to; ++k) {
    ASSERT_EQ(m.write(0, OCTAVO_ROLE_GRADIENT, rough_matrix(24, 40, 10 + k, largest)), OCTAVO_OK);
    ASSERT_EQ(m.step(), OCTAVO_OK) << m.error();
  }
}
float float_in(Msamp &m, const char *slot, int at = 0) {
  return static_cast<const float *>(m.memory(slot))[at];
}
void copy_slot(Msamp &from, Msamp &to, const char *name) {
  const octavo_slot &s = *from.slot(name);
  const auto size = static_cast<size_t>(s.rows * s.cols * (OCTAVO_DTYPE_BITS(s.dtype) / 8));
  std::memcpy(to.memory(name), from.memory(name), size);
}

// From the same state the bound of exp_avg_sq is at most twice its amax, so that its scale is the
// exact one or half of it, and no scale is larger than the exact one.
TEST(MsampOnePass, costs_at_most_a_binade_of_second_moments) {
  Msamp exact(""), bound(kBound);
  build(exact);
  build(bound);
  for (uint32_t k = 0; k < 20; ++k) {
    train(exact, k, k + 1);
    train(bound, k, k + 1);
    const float ratio =
        float_in(bound, "exp_avg_sq/scale_inv") / float_in(exact, "exp_avg_sq/scale_inv");
    EXPECT_TRUE(ratio == 1.0f || ratio == 2.0f) << k << ": " << ratio;
    for (const char *slot : {"weight/scale_inv", "exp_avg/scale_inv"})
      EXPECT_GE(float_in(bound, slot), float_in(exact, slot)) << k << " " << slot;
    for (const char *slot : {"weight", "weight/scale_inv", "exp_avg", "exp_avg/scale_inv",
                             "exp_avg_sq", "exp_avg_sq/scale_inv"})
      copy_slot(bound, exact, slot);
  }
}

// The kept amaxes follow from the codes: a checkpoint without them continues with the same bits.
TEST(MsampOnePass, continues_with_and_without_the_kept_amaxes) {
  for (const char *lines : {kBound, kRows}) {
    const bool in_groups = lines == kRows;
    Msamp once(lines);
    build(once);
    train(once, 0, 6);
    for (const bool keeps : {false, true}) {
      Msamp first(lines), second(lines);
      build(first);
      build(second);
      train(first, 0, 3);
      for (const char *slot : {"weight", "weight/scale_inv", "exp_avg", "exp_avg/scale_inv",
                               "exp_avg_sq", "exp_avg_sq/scale_inv", "step"})
        copy_slot(first, second, slot);
      EXPECT_GT(float_in(first, "state_amax", OCTAVO_AMAX_WEIGHT), 0.0f);
      EXPECT_EQ(float_in(first, "state_amax", OCTAVO_AMAX_EXP_AVG) > 0.0f, !in_groups);
      if (keeps) copy_slot(first, second, "state_amax");
      train(second, 3, 6);
      EXPECT_EQ(second.read(0, OCTAVO_ROLE_WEIGHT).v, once.read(0, OCTAVO_ROLE_WEIGHT).v) << keeps;
    }
  }
}

// Values from outside end what is known of the old ones.
TEST(MsampOnePass, written_values_are_measured_anew) {
  for (const uint32_t role : {OCTAVO_ROLE_WEIGHT, OCTAVO_ROLE_EXP_AVG, OCTAVO_ROLE_EXP_AVG_SQ}) {
    Msamp m(kBound);
    build(m);
    train(m, 0, 3);
    Matrix values = rough_matrix(24, 40, 5, 1000.0f);
    for (float &v : values.v) v = std::fabs(v);
    ASSERT_EQ(m.write(0, role, values), OCTAVO_OK);
    EXPECT_EQ(float_in(m, "state_amax", OCTAVO_AMAX_WEIGHT), 0.0f);
    train(m, 3, 4);
    // 0.9 and more of the largest value is left: nothing saturated.
    EXPECT_GE(amax_of(m.read(0, role)), 0.8f * amax_of(values)) << role;
  }
}

// A gradient that is 2^12 times as large as those before it, and one of zeros.
TEST(MsampOnePass, sudden_gradients_do_not_saturate) {
  Msamp m(kBound);
  build(m);
  train(m, 0, 10, 0x1p-12f);
  const float before = amax_of(m.read(0, OCTAVO_ROLE_EXP_AVG));
  train(m, 10, 11, 1.0f);
  const float gradient = amax_of(m.read(0, OCTAVO_ROLE_GRADIENT));
  const float after = amax_of(m.read(0, OCTAVO_ROLE_EXP_AVG));
  // A tenth of the gradient, give or take what is left of the old moment and a rounding of 2^-4.
  EXPECT_NEAR(after, 0.1f * gradient, before + 0x1p-4f * 0.1f * gradient);
  train(m, 11, 12, 0.0f);
  EXPECT_NEAR(amax_of(m.read(0, OCTAVO_ROLE_EXP_AVG)), 0.9f * after, 0x1p-3f * after);
}

}  // namespace
}  // namespace octavo::test
