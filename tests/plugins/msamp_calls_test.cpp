// How msamp answers the calls of a host: recompute, evaluation, ties, calls without outputs.
#include "tests/plugins/msamp_host.h"

namespace octavo::test {
namespace {

constexpr int64_t kN = 6, kK = 7, kM = 5;

std::vector<uint8_t> bytes_of(const AlignedBytes &b) {
  const auto *data = static_cast<const uint8_t *>(b.get());
  return {data, data + b.size()};
}

class MsampCalls : public testing::TestWithParam<const char *> {
 protected:
  MsampCalls() : m(std::string("opt_level = \"") + GetParam() + "\"") {}
  Msamp m;
};

// Scales change in end_step only, so a second forward gives equal bits, also of what is saved.
TEST_P(MsampCalls, recompute_equals) {
  const uint32_t linear = m.add_linear(rough_matrix(kN, kK, 1, 1.0f));
  m.seal();
  Matrix x = rough_matrix(kM, kK, 2, 3.0f), other = rough_matrix(3, kK, 3, 9.0f);
  Matrix y(kM, kN), again(kM, kN), unused(3, kN);
  const auto saved = m.saved_for(linear, kM), saved_again = m.saved_for(linear, kM);
  const auto saved_other = m.saved_for(linear, 3);
  ASSERT_EQ(m.forward_to(linear, tensor_of(x), tensor_of(y), nullptr, saved->get()), OCTAVO_OK);
  ASSERT_EQ(m.forward_to(linear, tensor_of(other), tensor_of(unused), nullptr, saved_other->get()),
            OCTAVO_OK);
  ASSERT_EQ(m.forward_to(linear, tensor_of(x), tensor_of(again), nullptr, saved_again->get()),
            OCTAVO_OK);
  expect_same(again, y, "y");
  EXPECT_EQ(bytes_of(*saved_again), bytes_of(*saved));
  EXPECT_EQ(*m.floats("x/amax"), amax_of(other));
}

TEST_P(MsampCalls, evaluation_records_nothing) {
  const uint32_t linear = m.add_linear(rough_matrix(kN, kK, 1, 1.0f));
  m.seal();
  Matrix x = rough_matrix(kM, kK, 2, 3.0f), y(kM, kN), trained(kM, kN);
  const auto before = m.snapshot(1);
  ASSERT_EQ(m.forward_to(linear, tensor_of(x), tensor_of(y), nullptr, nullptr, false), OCTAVO_OK);
  EXPECT_TRUE(m.snapshot(1) == before);
  const auto saved = m.saved_for(linear, kM);
  ASSERT_EQ(m.forward_to(linear, tensor_of(x), tensor_of(trained), nullptr, saved->get()),
            OCTAVO_OK);
  expect_same(y, trained, "y");
  EXPECT_EQ(*m.floats("x/amax"), amax_of(x));
}

// A step of evaluation only changes no scale and no count.
TEST_P(MsampCalls, end_step_without_a_batch) {
  const uint32_t linear = m.add_linear(rough_matrix(kN, kK, 1, 1.0f));
  m.seal();
  Matrix x = rough_matrix(kM, kK, 2, 3.0f), y;
  ASSERT_EQ(m.forward(linear, x, y), OCTAVO_OK);
  ASSERT_EQ(m.end_step(), OCTAVO_OK);
  const auto before = m.snapshot(1);
  ASSERT_EQ(m.end_step(), OCTAVO_OK);
  EXPECT_TRUE(m.snapshot(1) == before);
}

// Two linears, one weight: one cache, one gradient, scales of their own.
TEST_P(MsampCalls, tied_weights) {
  const Matrix weight = rough_matrix(kN, kK, 1, 1.0f);
  const uint32_t first = m.add_linear(weight);
  const Answer second = add_linear(m.run(), "tied", 0);
  ASSERT_EQ(second.status, OCTAVO_OK);
  m.seal();
  const Quantized w = by_rule(kE4m3, scaled_half(weight));
  Matrix sum(kN, kK);
  for (const uint32_t linear : {first, second.id}) {
    const float largest = linear == first ? 1.0f : 50.0f;
    Matrix x = rough_matrix(kM, kK, 2 + linear, largest);
    Matrix dy = rough_matrix(kM, kN, 8 + linear, largest), y(kM, kN), dx(kM, kK);
    const auto saved = m.saved_for(linear, kM);
    ASSERT_EQ(m.forward_to(linear, tensor_of(x), tensor_of(y), nullptr, saved->get()), OCTAVO_OK);
    octavo_tensor tdx = tensor_of(dx);
    ASSERT_EQ(m.backward_to(linear, tensor_of(dy), &tdx, nullptr, nullptr, saved->get()),
              OCTAVO_OK);
    const Quantized xq = by_rule(kE4m3, x), dyq = by_rule(kE5m2, dy);
    expect_same(y, multiplied(xq, w), "y");
    expect_same(dx, multiplied(dyq, transposed(w)), "dx");
    const Matrix dw = multiplied(transposed(dyq), transposed(xq));
    for (size_t i = 0; i < sum.v.size(); ++i) sum.v[i] += dw.v[i];
    sum = dequantized(by_rule(kE4m3, sum));
    EXPECT_EQ(m.floats("x/amax")[linear], amax_of(x));
  }
  expect_same(m.read(0, OCTAVO_ROLE_GRADIENT), sum, "gradient");
}

// Outputs that nobody wants, and db, which is the sum of dy itself.
TEST_P(MsampCalls, null_outputs_and_bias_gradient) {
  const uint32_t linear = m.add_linear(rough_matrix(kN, kK, 1, 1.0f));
  m.seal();
  Matrix x = rough_matrix(kM, kK, 2, 3.0f), dy = some_matrix(kM, kN, 3, 1.0f), y(kM, kN);
  const auto saved = m.saved_for(linear, kM);
  ASSERT_EQ(m.forward_to(linear, tensor_of(x), tensor_of(y), nullptr, saved->get()), OCTAVO_OK);
  ASSERT_EQ(m.backward_to(linear, tensor_of(dy), nullptr, nullptr, nullptr, saved->get()),
            OCTAVO_OK);
  const Matrix dw = multiplied(transposed(by_rule(kE5m2, dy)), transposed(by_rule(kE4m3, x)));
  expect_same(m.read(0, OCTAVO_ROLE_GRADIENT), dequantized(by_rule(kE4m3, dw)), "gradient");
  Matrix db = some_matrix(1, kN, 4, 1.0f), expected = db;
  for (int64_t n = 0; n < kN; ++n) expected.at(0, n) += column_sums(dy).at(0, n);
  octavo_tensor tdb = tensor_of(db);
  ASSERT_EQ(m.backward_to(linear, tensor_of(dy), nullptr, nullptr, &tdb, saved->get(),
                          OCTAVO_BACKWARD_SKIP_WEIGHT),
            OCTAVO_OK);
  expect_same(db, expected, "db");
}

INSTANTIATE_TEST_SUITE_P(Of, MsampCalls, testing::Values("O1", "O2", "O3"),
                         [](const auto &i) { return std::string(i.param); });

// O3 multiplies the codes that it keeps, O2 those that it casts: from one f16 weight they are the
// same, so everything that is computed from them is the same.
TEST(MsampLevelsAgree, o3_equals_o2) {
  const Matrix weight = rough_matrix(kN, kK, 1, 1.0f);
  Matrix y[2], dx[2], gradient[2];
  std::vector<uint8_t> codes[2];
  for (int i = 0; i < 2; ++i) {
    Msamp m(i == 0 ? "opt_level = \"O2\"" : "opt_level = \"O3\"");
    const uint32_t linear = m.add_linear(weight);
    m.seal();
    Matrix x = rough_matrix(kM, kK, 2, 3.0f), dy = rough_matrix(kM, kN, 3, 1.0f);
    ASSERT_EQ(m.forward(linear, x, y[i]), OCTAVO_OK);
    ASSERT_EQ(m.backward(linear, dy, dx[i]), OCTAVO_OK);
    gradient[i] = m.read(0, OCTAVO_ROLE_GRADIENT);
    const auto *data = static_cast<const uint8_t *>(m.memory(i == 0 ? "weight_cache" : "weight"));
    codes[i].assign(data, data + kN * kK);
  }
  EXPECT_EQ(codes[0], codes[1]);
  expect_same(y[1], y[0], "y");
  expect_same(dx[1], dx[0], "dx");
  expect_same(gradient[1], gradient[0], "gradient");
}

// Casting the weight in every call gives what the cache gives.
TEST(MsampLevelsAgree, without_the_cache) {
  for (const char *level : {"O1", "O3"}) {
    Matrix y[2], dx[2];
    for (int i = 0; i < 2; ++i) {
      Msamp m(std::string("opt_level = \"") + level + (i == 0 ? "\"" : "\"\nweight_cache = false"));
      const uint32_t linear = m.add_linear(rough_matrix(kN, kK, 1, 1.0f));
      m.seal();
      EXPECT_EQ(m.slot("weight_cache_t") == nullptr, i == 1);
      Matrix x = rough_matrix(kM, kK, 2, 3.0f), dy = rough_matrix(kM, kN, 3, 1.0f);
      ASSERT_EQ(m.forward(linear, x, y[i]), OCTAVO_OK);
      ASSERT_EQ(m.backward(linear, dy, dx[i]), OCTAVO_OK);
    }
    expect_same(y[1], y[0], level);
    expect_same(dx[1], dx[0], level);
  }
}

}  // namespace
}  // namespace octavo::test
