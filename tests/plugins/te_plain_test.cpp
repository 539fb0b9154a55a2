// Products in the host's precision where x or dy has 16 bits and the weight is f32: of the weight
// rounded to their dtype. The products are those of plain_product, bit for bit.
#include "kernels/format/float16.h"
#include "tests/plugins/te_layer.h"
#include "tests/plugins/te_oracle.h"

namespace octavo::test {
namespace {

struct PlainCase {
  const char *name;
  uint32_t dtype;
  int64_t m;
  int64_t n;
  int64_t k;
};

// 40 x 131072 is converted in parts, by rows in fprop and by columns in dgrad.
constexpr PlainCase kCases[] = {{"bf16", OCTAVO_BF16, 3, 20, 130},
                                {"f16", OCTAVO_F16, 3, 20, 130},
                                {"in_parts", OCTAVO_BF16, 1, 40, 131072}};

// Values with more bits than the dtypes have.
Matrix fine_matrix(int64_t rows, int64_t cols, uint32_t seed, float largest) {
  Matrix m = some_matrix(rows, cols, seed, largest);
  for (size_t i = 0; i < m.v.size(); ++i) m.v[i] *= 1 + static_cast<float>(i % 7) * 0x1p-12f;
  return m;
}

class TePlain : public testing::TestWithParam<PlainCase> {
 protected:
  std::vector<uint16_t> encoded(const Matrix &t) const {
    std::vector<uint16_t> out(t.v.size());
    std::transform(t.v.begin(), t.v.end(), out.begin(), [](float v) {
      return GetParam().dtype == OCTAVO_BF16 ? encode_bf16(v) : encode_f16(v);
    });
    return out;
  }
  Matrix rounded(Matrix t) const {
    const std::vector<uint16_t> bits = encoded(t);
    std::transform(bits.begin(), bits.end(), t.v.begin(), [](uint16_t v) {
      return GetParam().dtype == OCTAVO_BF16 ? decode_bf16(v) : decode_f16(v);
    });
    return t;
  }
  static octavo_tensor tensor(std::vector<uint16_t> &bits, const Matrix &t) {
    return {bits.data(), t.rows, t.cols, t.cols, GetParam().dtype, 0};
  }
  static TeSetup setup(std::map<std::string, std::string> options) {
    options["recipe"] = "\"current\"";
    return {options, 1, OCTAVO_PARAMETER_LINEAR_WEIGHT};
  }

  const int64_t m = GetParam().m, n = GetParam().n, k = GetParam().k;
  const Matrix w = fine_matrix(n, k, 1, 0.75f);
  const Matrix x = fine_matrix(m, k, 2, 30.0f), dy = fine_matrix(m, n, 3, 0.5f);
  Matrix bias = some_matrix(1, n, 4, 2.0f);
};

TEST_P(TePlain, evaluation_reads_the_weight_in_the_dtype_of_x) {
  TeLayer layer(setup({}), w);
  layer.quantize_weight();
  std::vector<uint16_t> bits = encoded(x);
  const Matrix expected = plus_rows(plain_product(rounded(x), rounded(w)), bias);
  expect_same(layer.forward(tensor(bits, x), &bias, OCTAVO_FORWARD_EVALUATION), expected, "y");
  EXPECT_NE(plus_rows(plain_product(rounded(x), w), bias).v, expected.v);
}

TEST_P(TePlain, dgrad_reads_the_weight_in_the_dtype_of_dy) {
  TeLayer layer(setup({{"backward_override", "\"high_precision\""}}), w);
  layer.quantize_weight();
  std::vector<uint16_t> x_bits = encoded(x), dy_bits = encoded(dy);
  layer.forward(tensor(x_bits, x), &bias);
  Gradients g;
  layer.backward(tensor(dy_bits, dy), tensor(x_bits, x), g);
  expect_same(g.dx, plain_product(rounded(dy), transposed(rounded(w))), "dx");
}

INSTANTIATE_TEST_SUITE_P(All, TePlain, testing::ValuesIn(kCases),
                         [](const auto &i) { return std::string(i.param.name); });

}  // namespace
}  // namespace octavo::test
