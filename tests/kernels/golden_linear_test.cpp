/* Golden vectors, linear/: quantize and gemm as one linear layer, forward and backward.
 *
 * Codes are bit-exact. Results are within (K' + 8) * 2^-24 * absum of the float64 reference, K' the
 * summed length: at most K' - 1 additions and a few roundings of the scales, each of 2^-24
 * relative.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/vector_files.h"

namespace octavo::test {
namespace {

/* One operand: its codes and their transpose with the scale_inv that belongs to both. */
struct Operand {
  Matrix codes;
  Matrix codes_t;
  float scale_inv;
};

size_t scale_row(const Csv &scales, const std::string &tensor) {
  for (size_t row = 0; row < scales.rows(); ++row) {
    if (scales.text(row, "tensor") == tensor) return row;
  }
  throw std::runtime_error("scales.csv has no tensor " + tensor);
}

/* Quantizes one recorded tensor and checks its codes and scale_inv. */
Operand quantize_operand(Kernels *kernels, const std::string &folder, const std::string &name) {
  const VectorFiles &files = VectorFiles::get();
  const std::string path = folder + "/" + name;
  const std::vector<int64_t> shape = files.file(path + ".bin").shape;
  const std::vector<uint8_t> values = files.bytes(path + ".bin");
  const Csv scales = files.csv(folder + "/scales.csv");
  const size_t row = scale_row(scales, name);
  const bool is_e4m3 = scales.text(row, "fmt") == "e4m3";
  const uint32_t dtype = is_e4m3 ? OCTAVO_E4M3FN : OCTAVO_E5M2;
  Matrix in(OCTAVO_F32, shape.at(0), shape.at(1));
  std::memcpy(in.at(0, 0), values.data(), values.size());
  Operand o = {Matrix(dtype, in.rows(), in.cols()), Matrix(dtype, in.cols(), in.rows()), 0.0f};

  const float scale = scales.real(row, "scale_bits");
  const octavo_scale out_scale_inv = per_tensor(&o.scale_inv);
  auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  c.in = in.tensor();
  c.out = o.codes.tensor();
  c.out_t = o.codes_t.tensor();
  c.out_scale_inv = &out_scale_inv;
  c.scale = &scale;
  c.format_max = is_e4m3 ? kMaxE4m3 : kMaxE5m2;
  /* The current rule must find the recorded scale by itself. */
  const bool is_current = folder.find("_current") != std::string::npos;
  c.rule = is_current ? OCTAVO_RULE_QUOTIENT : OCTAVO_RULE_GIVEN;
  EXPECT_EQ(kernels->quantize(c), OCTAVO_OK);
  EXPECT_EQ(o.scale_inv, scales.real(row, "scale_inv_bits")) << path;
  EXPECT_EQ(o.codes.data(), files.array<uint8_t>(path + "_codes.bin")) << path;
  for (int64_t r = 0; r < in.rows(); ++r) {
    for (int64_t col = 0; col < in.cols(); ++col) {
      EXPECT_EQ(o.codes_t.code(col, r), o.codes.code(r, col)) << path;
    }
  }
  return o;
}

/* Half a unit in the last place of a rounded result. */
double half_unit(uint32_t dtype, double value) {
  if (dtype == OCTAVO_F32) return 0.0;
  const int mantissa = dtype == OCTAVO_BF16 ? 7 : 10;
  const int lowest = dtype == OCTAVO_BF16 ? -126 : -14;
  const int exponent = value == 0.0 ? lowest : std::max(std::ilogb(value), lowest);
  return std::ldexp(0.5, exponent - mantissa);
}

void expect_product(Kernels *kernels, const Operand &left, const Matrix &a, const Operand &right,
                    const Matrix &b, const std::string &path, uint32_t dtype,
                    const std::vector<float> *bias_values) {
  const std::vector<double> reference = VectorFiles::get().array<double>(path + ".bin");
  const std::vector<float> absum = VectorFiles::get().array<float>(path + "_absum.bin");
  Matrix d(dtype, a.rows(), b.rows());
  Matrix bias(OCTAVO_F32, 1, b.rows());
  const octavo_scale a_scale_inv = per_tensor(&left.scale_inv);
  const octavo_scale b_scale_inv = per_tensor(&right.scale_inv);
  auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
  c.a = a.tensor();
  c.b = b.tensor();
  c.d = d.tensor();
  c.a_scale_inv = &a_scale_inv;
  c.b_scale_inv = &b_scale_inv;
  if (bias_values != nullptr) {
    std::memcpy(bias.at(0, 0), bias_values->data(), bias.data().size());
    c.bias = bias.tensor();
  }
  ASSERT_EQ(kernels->gemm(c), OCTAVO_OK);
  ASSERT_EQ(reference.size(), static_cast<size_t>(d.rows() * d.cols()));
  const double relative = static_cast<double>(a.cols() + 8) * 0x1p-24;
  for (int64_t row = 0; row < d.rows(); ++row) {
    for (int64_t col = 0; col < d.cols(); ++col) {
      const size_t i = static_cast<size_t>(row * d.cols() + col);
      const double added = bias_values == nullptr ? 0.0 : (*bias_values)[static_cast<size_t>(col)];
      const double expected = reference[i] + added;
      /* The bias takes part in one addition more. */
      const double bound = relative * (absum[i] + std::abs(added));
      const double rounding = half_unit(dtype, std::abs(expected) + bound);
      ASSERT_LE(std::abs(d.get(row, col) - expected), bound + rounding)
          << path << " [" << row << ", " << col << "]";
    }
  }
}

TEST(GoldenLinear, forward_and_backward_within_the_derived_bound) {
  const VectorFiles &files = VectorFiles::get();
  const std::vector<std::string> cases = files.folders("linear");
  ASSERT_FALSE(cases.empty());
  Kernels kernels(2);
  for (const std::string &folder : cases) {
    const Operand x = quantize_operand(&kernels, folder, "x");
    const Operand w = quantize_operand(&kernels, folder, "w");
    const Operand dy = quantize_operand(&kernels, folder, "dy");
    const std::vector<float> bias = files.array<float>(folder + "/bias.bin");
    for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
      expect_product(&kernels, x, x.codes, w, w.codes, folder + "/y_nobias", dtype, nullptr);
      expect_product(&kernels, x, x.codes, w, w.codes, folder + "/y_nobias", dtype, &bias);
      expect_product(&kernels, dy, dy.codes, w, w.codes_t, folder + "/dx", dtype, nullptr);
      expect_product(&kernels, dy, dy.codes_t, x, x.codes_t, folder + "/dw", dtype, nullptr);
    }
  }
}

}  // namespace
}  // namespace octavo::test
