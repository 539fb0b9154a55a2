// A step full of Inf and NaN: the flag is set on the way, the step changes nothing, the next one is
// as if it had never been.
#include "tests/plugins/msamp_host.h"

namespace octavo::test {
namespace {

constexpr int64_t kN = 8, kK = 16, kM = 4;

void build(Msamp &m) {
  m.add_linear(rough_matrix(kN, kK, 1, 1.0f));
  m.add_parameter(rough_matrix(1, kN, 2, 1.0f));
  m.seal();
}
// One step from x and dy; the bias takes the column sums of dy.
void step(Msamp &m, Matrix x, Matrix dy) {
  Matrix y(kM, kN), dx(kM, kK);
  const auto saved = m.saved_for(0, kM);
  m.quantize_weights();
  ASSERT_EQ(m.forward_to(0, tensor_of(x), tensor_of(y), nullptr, saved->get()), OCTAVO_OK);
  octavo_tensor tdx = tensor_of(dx), tdb = tensor_of(m.gradient(1));
  ASSERT_EQ(m.backward_to(0, tensor_of(dy), &tdx, nullptr, &tdb, saved->get()), OCTAVO_OK);
  ASSERT_EQ(m.step(m.floats("nonfinite")), OCTAVO_OK) << m.error();
}
Matrix filled(int64_t rows, int64_t cols, float a, float b) {
  Matrix m(rows, cols, a);
  for (size_t i = 0; i < m.v.size(); i += 2) m.v[i] = b;
  return m;
}

class MsampNonfinite : public testing::TestWithParam<Variant> {
 protected:
  // A good step, the given one, a good step; a twin that skips the given one must end equal.
  void expect_skipped(const Matrix &x, const Matrix &dy) {
    Msamp m(GetParam().lines), twin(GetParam().lines);
    build(m);
    build(twin);
    for (Msamp *each : {&m, &twin}) {
      ASSERT_NO_FATAL_FAILURE(
          step(*each, rough_matrix(kM, kK, 3, 1.0f), rough_matrix(kM, kN, 4, 1.0f)));
      EXPECT_EQ(*each->floats("nonfinite"), 0.0f);
      ASSERT_EQ(each->end_step(), OCTAVO_OK);
    }
    const auto kept = states_of(m);
    ASSERT_NO_FATAL_FAILURE(step(m, x, dy));
    EXPECT_EQ(*m.floats("nonfinite"), 1.0f);
    EXPECT_TRUE(states_of(m) == kept) << "the step changed something";
    ASSERT_EQ(m.end_step(), OCTAVO_OK);
    EXPECT_EQ(*m.floats("nonfinite"), 0.0f);
    for (const char *name : {"x/scale", "dy/scale"}) {
      EXPECT_TRUE(std::isfinite(*m.floats(name)) && *m.floats(name) > 0) << name;
    }
    for (Msamp *each : {&m, &twin}) {
      ASSERT_NO_FATAL_FAILURE(
          step(*each, rough_matrix(kM, kK, 5, 1.0f), rough_matrix(kM, kN, 6, 1.0f)));
      EXPECT_EQ(*each->floats("nonfinite"), 0.0f);
    }
    EXPECT_TRUE(states_of(m) == states_of(twin)) << "the step left a trace";
  }
  // Weights, moments and counts, native weights, too; no gradients, amax or scales of x and dy.
  static std::vector<std::vector<uint8_t>> states_of(Msamp &m) {
    std::vector<std::vector<uint8_t>> all = m.snapshot(2), states;
    for (uint32_t id = 0; id < all.size(); ++id) {
      const octavo_slot *s = octavo_run_slot(m.run(), id);
      const bool gradient = s != nullptr && text_of(s->name).rfind("gradient", 0) == 0;
      const bool cache = s != nullptr && text_of(s->name).rfind("weight_cache", 0) == 0;
      if (s == nullptr || (s->owner_kind == OCTAVO_OWNER_PARAMETER && !gradient && !cache))
        states.push_back(all[id]);
    }
    return states;
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
};

TEST_P(MsampNonfinite, everywhere) {
  expect_skipped(filled(kM, kK, nan, infinity), filled(kM, kN, nan, -infinity));
}
TEST_P(MsampNonfinite, one_infinite_output_gradient) {
  Matrix dy = rough_matrix(kM, kN, 7, 1.0f);
  dy.at(1, 1) = infinity;
  expect_skipped(rough_matrix(kM, kK, 8, 1.0f), dy);
}
// A saturating cast of x leaves products finite.
TEST_P(MsampNonfinite, one_infinite_input) {
  Matrix x = rough_matrix(kM, kK, 8, 1.0f);
  x.at(2, 3) = -infinity;
  expect_skipped(x, rough_matrix(kM, kN, 7, 1.0f));
}
// The output gradient is good, and yet the weight gradient is not.
TEST_P(MsampNonfinite, input_alone) {
  Matrix x = rough_matrix(kM, kK, 8, 1.0f);
  x.at(2, 3) = nan;
  expect_skipped(x, rough_matrix(kM, kN, 7, 1.0f));
}

constexpr Variant kVariants[] = {{"o1", "opt_level = \"O1\""},
                                 {"o2", "opt_level = \"O2\""},
                                 {"o3", "opt_level = \"O3\""},
                                 {"coat", "state_format = \"coat\""},
                                 {"fp32_gradients", "gradient_accumulation = \"fp32\""}};
INSTANTIATE_TEST_SUITE_P(Of, MsampNonfinite, testing::ValuesIn(kVariants), name_of);

}  // namespace
}  // namespace octavo::test
