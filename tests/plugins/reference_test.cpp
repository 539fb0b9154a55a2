// The reference backend is the matmul of the dequantized operands, and keeps no state.
#include "tests/plugins/layer.h"

namespace octavo::test {
namespace {

class Reference : public testing::Test {
 protected:
  Reference() { request.set("fp8.backend", "reference"); }
  Environment environment;
  Request request;
};

TEST_F(Reference, equals_the_dequantized_matmul) {
  const struct { int64_t m, n, k; } shapes[] = {{1, 1, 1}, {5, 6, 7}, {16, 8, 32}, {3, 33, 17}};
  for (const auto &shape : shapes) {
    SCOPED_TRACE(std::to_string(shape.m) + " x " + std::to_string(shape.n) + " x " +
                 std::to_string(shape.k));
    Request own;
    own.set("fp8.backend", "reference");
    Session s(own);
    const uint32_t weight = s.add_weight(some_matrix(shape.n, shape.k, 1, 0.75f));
    const uint32_t linear = s.add_linear(weight);
    s.seal();
    Matrix x = some_matrix(shape.m, shape.k, 2, 300.0f),
           dy = some_matrix(shape.m, shape.n, 3, 0.5f);
    Matrix bias = some_matrix(1, shape.n, 4, 1.0f), y;
    ASSERT_EQ(s.quantize_weight(weight), OCTAVO_OK);
    ASSERT_EQ(s.forward(linear, x, y, &bias), OCTAVO_OK) << own.host.error();
    Gradients g;
    g.dw = some_matrix(shape.n, shape.k, 5, 1.0f);
    g.db = some_matrix(1, shape.n, 6, 1.0f);
    const Gradients before = g;
    ASSERT_EQ(s.backward(linear, dy, x, g), OCTAVO_OK) << own.host.error();
    const Matrix &w = s.weight(weight);
    const Quantized qx = quantized(kE4m3, x, current_scale(kE4m3, x));
    const Quantized qw = quantized(kE4m3, w, current_scale(kE4m3, w));
    const Quantized qdy = quantized(kE5m2, dy, current_scale(kE5m2, dy));
    expect_same(y, plus_rows(multiplied(qx, qw), bias), "y");
    expect_same(g.dx, multiplied(qdy, transposed(qw)), "dx");
    Matrix dw = multiplied(transposed(qdy), transposed(qx));
    for (size_t i = 0; i < dw.v.size(); ++i) dw.v[i] = before.dw.v[i] + dw.v[i];
    expect_same(g.dw, dw, "dw");
    Matrix db = column_sums(dy);
    for (size_t i = 0; i < db.v.size(); ++i) db.v[i] = before.db.v[i] + db.v[i];
    expect_same(g.db, db, "db");
  }
}

TEST_F(Reference, keeps_nothing_but_the_flag) {
  Session s(request);
  const uint32_t linear = s.add_linear(s.add_weight(some_matrix(4, 8, 1, 1.0f)));
  s.seal();
  ASSERT_EQ(octavo_run_slot_count(s.run()), 2u);  // nonfinite, and the host's own weight
  Matrix x = some_matrix(3, 8, 2, 1.0f), dy = some_matrix(3, 4, 3, 1.0f), y;
  ASSERT_EQ(s.forward(linear, x, y), OCTAVO_OK);
  dy.at(1, 1) = INFINITY;
  Gradients g;
  ASSERT_EQ(s.backward(linear, dy, x, g), OCTAVO_OK);
  EXPECT_EQ(*s.slot("nonfinite"), 1.0f);
  ASSERT_EQ(s.end_step(), OCTAVO_OK);
  EXPECT_EQ(*s.slot("nonfinite"), 0.0f);
}

TEST_F(Reference, no_rows) {
  Session s(request);
  const uint32_t linear = s.add_linear(s.add_weight(some_matrix(4, 8, 1, 1.0f)));
  s.seal();
  Matrix x(0, 8), dy(0, 4), y;
  ASSERT_EQ(s.forward(linear, x, y), OCTAVO_OK) << request.host.error();
  Gradients g;
  g.dw = Matrix(4, 8, 3.0f);
  ASSERT_EQ(s.backward(linear, dy, x, g, OCTAVO_BACKWARD_OVERWRITE), OCTAVO_OK)
      << request.host.error();
  expect_same(g.dw, Matrix(4, 8), "dw");
}

}  // namespace
}  // namespace octavo::test
