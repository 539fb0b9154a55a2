// The golden vectors of tests/vectors/linear through a te session.
//
// Codes are bit-exact, where they can be seen: in the weight cache, and x's in `saved`. Results are
// within (K' + 8) * 2^-24 * absum of the float64 reference, as tests/vectors/README.md says, K'
// being the summed length.
#include "tests/kernels/vector_files.h"
#include "tests/plugins/te_layer.h"

namespace octavo::test {
namespace {

const VectorFiles &files() {
  return VectorFiles::get();
}

class TeGolden : public testing::TestWithParam<std::string> {
 protected:
  std::string path(const char *name) const { return GetParam() + "/" + name + ".bin"; }
  Matrix matrix(const char *name) const {
    const std::vector<int64_t> shape = files().file(path(name)).shape;
    Matrix m = shape.size() == 1 ? Matrix(1, shape[0]) : Matrix(shape.at(0), shape.at(1));
    const std::vector<uint32_t> bits = files().array<uint32_t>(path(name));
    for (size_t i = 0; i < bits.size(); ++i) m.v.at(i) = std::bit_cast<float>(bits[i]);
    return m;
  }
  float scale(const std::string &tensor, const char *column) const {
    const Csv csv = files().csv(GetParam() + "/scales.csv");
    for (size_t row = 0; row < csv.rows(); ++row)
      if (csv.text(row, "tensor") == tensor) return csv.real(row, column);
    throw std::runtime_error("scales.csv has no tensor " + tensor);
  }
  void expect_near(const Matrix &found, const std::string &name, int64_t length) const {
    const auto reference = files().array<double>(path(name.c_str()));
    const auto absolute = files().array<float>(path((name + "_absum").c_str()));
    ASSERT_EQ(found.v.size(), reference.size()) << name;
    for (size_t i = 0; i < reference.size(); ++i) {
      const double bound =
          static_cast<double>(length + 8) * std::ldexp(1.0, -24) * static_cast<double>(absolute[i]);
      ASSERT_LE(std::fabs(static_cast<double>(found.v[i]) - reference[i]), bound)
          << name << " element " << i;
    }
  }
};

TEST_P(TeGolden, codes_and_products) {
  const bool delayed = GetParam().find("_delayed") != std::string::npos;
  TeLayer layer({{{"recipe", delayed ? "\"delayed\"" : "\"current\""},
                  {"profile", delayed ? "\"te2-delayed-fused\"" : "\"default\""}}},
                matrix("w"));
  if (delayed)
    for (const char *tensor : {"x", "w", "dy"})
      *layer.slot(std::string(tensor) + "/scale") = scale(tensor, "scale_bits");
  const Matrix x = matrix("x"), dy = matrix("dy");
  const int64_t m = x.rows, k = x.cols, n = dy.cols;
  layer.quantize_weight();
  EXPECT_EQ(*layer.slot("weight_cache/scale_inv"), scale("w", "scale_inv_bits"));
  const auto w_codes = layer.as_cached(files().array<uint8_t>(path("w_codes")));
  EXPECT_EQ(std::memcmp(layer.slot("weight_cache"), w_codes.data(), w_codes.size()), 0);

  const Matrix y = layer.forward(x);
  const auto x_codes = files().array<uint8_t>(path("x_codes"));
  const auto *saved = static_cast<const uint8_t *>(layer.saved().get());
  const int64_t saved_m = (m + 15) / 16 * 16;
  for (int64_t row = 0; row < m; ++row)
    for (int64_t col = 0; col < k; ++col)
      ASSERT_EQ(saved[col * saved_m + row], x_codes[static_cast<size_t>(row * k + col)])
          << "x code [" << row << ", " << col << "]";
  Gradients g;
  layer.backward(dy, x, g);
  expect_near(y, "y_nobias", k);
  expect_near(g.dx, "dx", n);
  expect_near(g.dw, "dw", m);

  Matrix bias = matrix("bias");
  expect_same(layer.forward(x, &bias), plus_rows(y, bias), "y with a bias");
}

INSTANTIATE_TEST_SUITE_P(Vectors, TeGolden, testing::ValuesIn(files().folders("linear")),
                         [](const testing::TestParamInfo<std::string> &each) {
                           return each.param.substr(each.param.find('/') + 1);
                         });

}  // namespace
}  // namespace octavo::test
