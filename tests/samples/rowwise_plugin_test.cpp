// The sample rowwise_plugin: its bits against torchao's rules written out, and the conformance
// suite.
#define OCTAVO_PLUGIN_ID "rowwise"
#define OCTAVO_PLUGIN_VERSION "1"
#include "samples/rowwise_plugin/rowwise.cpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sdk/verify/heap.h"
#include "sdk/verify/host.h"
#include "tests/plugins/te_oracle.h"
#include "tests/sdk/hpp/plugin_hpp_target.h"
#include "tests/support/abilities.h"
#include "tests/support/param_name.h"

namespace octavo::test {
namespace {

// torchao's rule: 448 / max(amax, 1e-12), rounded down to a power of two.
constexpr CastRule kOfRows{ScaleRule::kPow2, 1, 0, 1e-12F};
constexpr CastRule kOfAll{ScaleRule::kPow2, 0, 0, 1e-12F};

float rounded(uint32_t dtype, float v) {
  if (dtype == OCTAVO_F32 || !std::isfinite(v)) return v;
  int exponent = 0;
  std::frexp(v, &exponent);
  const int step = exponent - 8;  // bf16 has 8 significant bits; nothing here is subnormal
  return std::ldexp(std::nearbyint(std::ldexp(v, -step)), step);
}

// a[M, K] b[N, K]^T: sums of codes in ascending order, then one factor for each element.
Matrix product(const CastTensor &a, const CastTensor &b) {
  Matrix d = plain_product(a.codes, b.codes);
  for (int64_t m = 0; m < d.rows; ++m)
    for (int64_t n = 0; n < d.cols; ++n) d.at(m, n) *= a.scale_inv.at(m, 0) * b.scale_inv.at(n, 0);
  return d;
}

void fill(conformance::Matrix &to, const Matrix &from) {
  for (int64_t r = 0; r < from.rows; ++r)
    for (int64_t c = 0; c < from.cols; ++c) to.set(r, c, static_cast<double>(from.at(r, c)));
}
void expect_equal(const conformance::Matrix &found, const Matrix &expected, uint32_t dtype,
                  const char *what) {
  for (int64_t r = 0; r < expected.rows; ++r)
    for (int64_t c = 0; c < expected.cols; ++c)
      ASSERT_EQ(static_cast<float>(found.at(r, c)), rounded(dtype, expected.at(r, c)))
          << what << " [" << r << ", " << c << "]";
}

// Magnitudes that differ from row to row and from column to column, and rows at the edges of the
// rule. Scales are powers of two, so another one shows in elements that become subnormal codes.
Matrix operand(int64_t rows, int64_t cols, uint32_t seed, bool with_edges) {
  Matrix m = uneven_matrix(rows, cols, seed, 2);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      m.at(r, c) = std::ldexp(m.at(r, c), static_cast<int>((c * 7 + seed) % 13) - 6);
  if (!with_edges) return m;
  const float edges[] = {
      0,      448,  std::nextafter(448.0F, 500.0F), std::nextafter(448.0F, 0.0F), 1e-17F, 9e-13F,
      2e-12F, 3e38F};
  for (size_t i = 0; i < std::size(edges) && static_cast<int64_t>(i) < rows; ++i)
    for (int64_t c = 0; c < cols; ++c)
      m.at(static_cast<int64_t>(i), c) = c % 2 == 0 ? edges[i] : edges[i] / 3;
  return m;
}

struct Case {
  int64_t m, n, k;
  uint64_t alignment;
  uint32_t dtype;  // of x, y, dy and dx
  bool with_edges;
};

void check_bits(const Case &one) {
  const Opened opened;
  const conformance::Target target = opened.target<Rowwise>();
  conformance::Session session({target, 1, one.alignment});
  session.add({{{"w", one.n, one.k}}, {{"l", "w"}}});
  session.seal();
  conformance::Host host(session, 1);
  conformance::Batch &b = host.add_batch({0, one.m, 1, one.dtype, one.dtype});
  const Matrix x = operand(one.m, one.k, 1, one.with_edges);
  const Matrix w = operand(one.n, one.k, 2, one.with_edges);
  const Matrix dy = operand(one.m, one.n, 3, one.with_edges), old = some_matrix(one.n, one.k, 4, 1);
  fill(b.x, x), fill(host.weight(0), w), fill(b.dy, dy), fill(b.dw, old);

  host.quantize_weights();
  host.forward(b);
  Matrix y = product(cast_tensor(kOfRows, kE4m3, x), cast_tensor(kOfRows, kE4m3, w));
  for (int64_t r = 0; r < y.rows; ++r)
    for (int64_t c = 0; c < y.cols; ++c)
      y.at(r, c) = rounded(one.dtype, y.at(r, c)) + static_cast<float>(b.bias.at(0, c));
  expect_equal(b.y, y, one.dtype, "y");

  host.backward(b);
  const CastTensor w_t = cast_tensor(kOfAll, kE4m3, transposed(w));
  expect_equal(b.dx, product(cast_tensor(kOfRows, kE4m3, dy), w_t), one.dtype, "dx");
  Matrix dw = plain_product(transposed(dy), transposed(x));
  for (size_t i = 0; i < dw.v.size(); ++i) dw.v[i] += old.v[i];
  expect_equal(b.dw, dw, OCTAVO_F32, "dw");
  EXPECT_EQ(*host.nonfinite(), 0);
}

TEST(RowwisePlugin, has_the_bits_of_the_recipe) {
  for (const uint64_t alignment : {1, 16})
    for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16})
      for (const auto &[m, n, k] : {std::tuple{1, 1, 1}, {5, 7, 3}, {33, 17, 65}, {64, 48, 96}}) {
        SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << ", alignment "
                                        << alignment << ", dtype " << dtype);
        check_bits({m, n, k, alignment, dtype, false});
        if (dtype == OCTAVO_F32) check_bits({m, n, k, alignment, dtype, true});
        if (testing::Test::HasFatalFailure()) return;
      }
}

// An Inf in dy reaches the flag whether or not dx, whose cast would hide it, is wanted.
TEST(RowwisePlugin, reports_a_nonfinite_gradient_without_dx) {
  const Opened opened;
  const conformance::Target target = opened.target<Rowwise>();
  for (const bool want_dx : {false, true}) {
    conformance::Session session({target, 1, 1});
    session.add({{{"w", 4, 6}}, {{"l", "w"}}});
    session.seal();
    conformance::Host host(session, 1);
    conformance::Batch &b = host.add_batch({0, 3, 1});
    b.dy.set(1, 2, std::numeric_limits<double>::infinity());
    host.quantize_weights();
    host.forward(b);
    conformance::Call call;
    call.want_dx = want_dx;
    host.backward(b, call);
    EXPECT_EQ(*host.nonfinite(), 1) << "want_dx " << want_dx;
  }
}

TEST(RowwisePlugin, refuses_kernels_without_scales_of_rows) {
  const Opened opened;
  conformance::Target target = opened.target<Rowwise>();
  const LackingKernels kernels(*target.desc.kernels);
  LackingKernels::granularities() = {OCTAVO_PER_ROW};
  target.desc.kernels = &kernels.table;
  octavo_session *session = nullptr;
  EXPECT_EQ(target.backend->open_session(&target.desc, &session), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(session, nullptr);
}

TEST(RowwisePlugin, its_slots_state_scales_of_rows) {
  const Opened opened;
  const conformance::Target target = opened.target<Rowwise>();
  conformance::Session session({target, 1, 16});
  session.add({{{"w", 20, 40}}, {{"l", "w"}}});
  session.seal();
  std::string all;
  for (const conformance::Slot &s : session.slots()) {
    const octavo_slot &d = s.desc;
    all += s.name + " " + std::to_string(d.rows) + "x" + std::to_string(d.cols) + " by " +
           std::to_string(d.granularity) + "\n";
  }
  EXPECT_EQ(all,
            "nonfinite 1x1 by 0\n"
            "weight 20x40 by 0\n"
            "weight_rows 32x48 by 1\n"
            "weight_rows/scale_inv 32x1 by 0\n"
            "weight_columns_t 48x32 by 0\n"
            "weight_columns/scale_inv 1x1 by 0\n");
  EXPECT_EQ(session.plan(0).flags & OCTAVO_LINEAR_NEEDS_X, uint32_t{OCTAVO_LINEAR_NEEDS_X});
  EXPECT_EQ(session.plan(0).saved.fixed_bytes + session.plan(0).saved.bytes_per_row, 0u);
}

// A backend with these scales of x, whose products read the scale of the row `shift` further down.
template <uint32_t granularity, int shift>
class Subject : public plugin::Backend<Subject<granularity, shift>> {
 public:
  void declare(plugin::Slots &s) { weight_ = s.native_weight({OCTAVO_VERB_FORWARD}); }
  void forward(plugin::Pass &p, const plugin::ForwardCall &c) const {
    plugin::Codes x = p.codes(c.m() + shift, c.k(), OCTAVO_E4M3FN, plugin::kRows, granularity);
    plugin::Codes w = p.codes(c.n(), c.k(), OCTAVO_E4M3FN, plugin::kRows);
    p.cast(c.x(), x);
    p.cast(c[weight_], w);
    plugin::Operand a = x.by_rows();
    if (!p.measuring()) a.scale_inv.data = static_cast<float *>(a.scale_inv.data) + shift;
    p.multiply(a, w.by_rows(), c.y(), c.bias());
  }
  void backward(plugin::Pass &, const plugin::BackwardCall &) const {}

 private:
  plugin::MatrixSlot weight_;
};

template <typename Backend>
conformance::Result examine(const char *check) {
  const Opened opened;
  const conformance::Target target = opened.target<Backend>();
  return conformance::run_check(*conformance::find_check(check), target, 1);
}

// The check `rows` tells a recipe with scales of rows from one without, and a fault from both.
TEST(ConformanceRows, examines_scales_of_rows) {
  const auto right = examine<Subject<OCTAVO_PER_ROW, 0>>("rows");
  EXPECT_EQ(right.outcome, conformance::Outcome::kPass) << right.detail;
  const auto current = examine<Subject<OCTAVO_PER_TENSOR, 0>>("rows");
  EXPECT_EQ(current.outcome, conformance::Outcome::kPass) << current.detail;
  const auto shifted = examine<Subject<OCTAVO_PER_ROW, 1>>("rows");
  EXPECT_EQ(shifted.outcome, conformance::Outcome::kFail);
  EXPECT_THAT(shifted.detail, testing::HasSubstr("times in one batch, against once"));
}

class RowwiseConformance : public testing::TestWithParam<conformance::Check> {};

// Nothing is skipped but the interfaces that the sample does not have, and what only a library
// shows.
TEST_P(RowwiseConformance, passes) {
  const auto result = examine<Rowwise>(GetParam().name);
  const bool has_heap = conformance::heap_is_counted() || std::string(GetParam().name) != "heap";
  const bool is_optional =
      !has_heap ||
      testing::Matches(testing::ContainsRegex(
          "optimizer|reduction|fused|grouped|shard|process|symbols"))(std::string(GetParam().name));
  EXPECT_EQ(result.outcome, is_optional ? conformance::Outcome::kSkip : conformance::Outcome::kPass)
      << result.detail;
  if (!is_optional) {
    EXPECT_EQ(result.detail, "") << "a part of the check was left out";
  }
}

INSTANTIATE_TEST_SUITE_P(All, RowwiseConformance,
                         testing::ValuesIn(conformance::checks().begin(),
                                           conformance::checks().end()),
                         [](const auto &check) { return name_of_text(check.param.name); });

}  // namespace
}  // namespace octavo::test
