/* Golden vectors, cast/: kernels/format and quantize against the codes of public libraries.
 *
 * NaN is compared by class, all else by code; the README beside the vectors says why.
 */
#include <gtest/gtest.h>

#include <string>

#include "kernels/format/e8m0.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/vector_files.h"

namespace octavo::test {
namespace {

struct Format {
  const char *name;
  uint32_t dtype;
  uint8_t (*encode)(float);
  float (*decode)(uint8_t);
};

constexpr Format kFormats[] = {{"e4m3", OCTAVO_E4M3FN, &encode_e4m3, &decode_e4m3},
                               {"e5m2", OCTAVO_E5M2, &encode_e5m2, &decode_e5m2}};

bool same_code(const Format &f, uint8_t left, uint8_t right) {
  return left == right || (std::isnan(f.decode(left)) && std::isnan(f.decode(right)));
}

/* The codes that the table gives for `in` with this scale; empty when the call fails. */
std::vector<uint8_t> quantize_all(Kernels *kernels, const Matrix &in, uint32_t dtype, float scale,
                                  float *inverse) {
  Matrix out(dtype, in.rows(), in.cols());
  const octavo_scale scale_inv = per_tensor(inverse);
  auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  c.in = in.tensor();
  c.out = out.tensor();
  c.out_scale_inv = &scale_inv;
  c.scale = &scale;
  if (kernels->quantize(c) != OCTAVO_OK) return {};
  return out.data();
}

void expect_codes(const Matrix &in, const Format &f, const std::vector<uint8_t> &expected) {
  Kernels kernels;
  float inverse = 0;
  const std::vector<uint8_t> codes = quantize_all(&kernels, in, f.dtype, 1.0f, &inverse);
  ASSERT_EQ(codes.size(), expected.size());
  EXPECT_EQ(inverse, 1.0f);
  int wrong = 0;
  for (size_t i = 0; i < expected.size() && wrong < 10; ++i) {
    const uint8_t direct = f.encode(in.get(0, static_cast<int64_t>(i)));
    if (same_code(f, codes[i], expected[i]) && same_code(f, direct, expected[i])) continue;
    ++wrong;
    ADD_FAILURE() << f.name << " index " << i << ": quantize " << +codes[i] << ", format "
                  << +direct << ", expected " << +expected[i];
  }
}

TEST(GoldenCast, half_precision_tables) {
  const VectorFiles &files = VectorFiles::get();
  for (const Format &f : kFormats) {
    for (const auto &[name, dtype] : {std::pair<std::string, uint32_t>{"bf16", OCTAVO_BF16},
                                      std::pair<std::string, uint32_t>{"fp16", OCTAVO_F16}}) {
      const std::vector<uint8_t> codes =
          files.array<uint8_t>("cast/" + name + "_to_" + f.name + ".bin");
      Matrix in(dtype, 1, static_cast<int64_t>(codes.size()));
      for (int64_t i = 0; i < in.cols(); ++i) {
        const uint16_t pattern = static_cast<uint16_t>(i);
        std::memcpy(in.at(0, i), &pattern, sizeof(pattern));
      }
      expect_codes(in, f, codes);
    }
  }
}

TEST(GoldenCast, fp32_table) {
  const VectorFiles &files = VectorFiles::get();
  const std::vector<uint32_t> bits = files.array<uint32_t>("cast/fp32_in.bin");
  Matrix in(OCTAVO_F32, 1, static_cast<int64_t>(bits.size()));
  std::memcpy(in.at(0, 0), bits.data(), bits.size() * sizeof(uint32_t));
  for (const Format &f : kFormats) {
    expect_codes(in, f, files.array<uint8_t>(std::string("cast/fp32_to_") + f.name + ".bin"));
  }
}

TEST(GoldenCast, decode_tables) {
  Kernels kernels;
  for (const Format &f : kFormats) {
    const Csv table = VectorFiles::get().csv(std::string("cast/decode_") + f.name + ".csv");
    for (size_t row = 0; row < table.rows(); ++row) {
      const uint8_t code = table.code(row, "code");
      const float expected = table.real(row, "fp32_bits");
      EXPECT_TRUE(same_value(f.decode(code), expected)) << f.name << " code " << +code;
      Matrix in(f.dtype, 1, 1);
      Matrix out(OCTAVO_F32, 1, 1);
      *in.at(0, 0) = code;
      auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
      c.in = in.tensor();
      c.out = out.tensor();
      ASSERT_EQ(kernels.dequantize(c), OCTAVO_OK);
      EXPECT_TRUE(same_value(out.get(0, 0), expected)) << f.name << " code " << +code;
    }
  }
  const Csv e8m0 = VectorFiles::get().csv("cast/decode_e8m0.csv");
  for (size_t row = 0; row < e8m0.rows(); ++row) {
    EXPECT_TRUE(same_value(decode_e8m0(e8m0.code(row, "code")), e8m0.real(row, "fp32_bits")))
        << "row " << row;
  }
}

TEST(GoldenCast, scaled_casts_multiply_and_divide) {
  const VectorFiles &files = VectorFiles::get();
  Kernels kernels;
  const std::vector<float> x = files.array<float>("cast/scaled_x.bin");
  const std::vector<float> s = files.array<float>("cast/scaled_s.bin");
  const std::vector<float> inv = files.array<float>("cast/scaled_inv.bin");
  for (const Format &f : kFormats) {
    const std::string name = f.name;
    const std::vector<uint8_t> mul = files.array<uint8_t>("cast/scaled_mul_" + name + ".bin");
    const std::vector<uint8_t> div = files.array<uint8_t>("cast/scaled_div_" + name + ".bin");
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_TRUE(same_code(f, f.encode(x[i] * s[i]), mul[i])) << name << " index " << i;
      ASSERT_TRUE(same_code(f, f.encode(x[i] / inv[i]), div[i])) << name << " index " << i;
      Matrix in(OCTAVO_F32, 1, 1);
      std::memcpy(in.at(0, 0), &x[i], sizeof(float));
      float inverse = 0;
      const std::vector<uint8_t> codes = quantize_all(&kernels, in, f.dtype, s[i], &inverse);
      ASSERT_EQ(codes.size(), 1u);
      ASSERT_TRUE(same_code(f, codes[0], mul[i])) << name << " index " << i;
      ASSERT_TRUE(same_value(inverse, inv[i])) << name << " index " << i;
    }
  }
}

TEST(GoldenCast, multiply_and_divide_differ_where_recorded) {
  for (const Format &f : kFormats) {
    const Csv table = VectorFiles::get().csv(std::string("cast/mul_vs_div_") + f.name + ".csv");
    for (size_t row = 0; row < table.rows(); ++row) {
      const float x = table.real(row, "x_bits");
      ASSERT_EQ(f.encode(x * table.real(row, "s_bits")), table.code(row, "code_mul")) << row;
      ASSERT_EQ(f.encode(x / table.real(row, "inv_bits")), table.code(row, "code_div")) << row;
    }
  }
}

TEST(GoldenCast, overflow_follows_the_contract) {
  const Csv table = VectorFiles::get().csv("cast/overflow_conventions.csv");
  for (size_t row = 0; row < table.rows(); ++row) {
    const Format &f = table.text(row, "fmt") == "e4m3" ? kFormats[0] : kFormats[1];
    EXPECT_TRUE(same_code(f, f.encode(table.real(row, "fp32_bits")), table.code(row, "contract")))
        << "row " << row;
  }
}

TEST(GoldenCast, e8m0_rounds_up_as_te_and_down_as_ocp) {
  const Csv table = VectorFiles::get().csv("cast/e8m0.csv");
  for (size_t row = 0; row < table.rows(); ++row) {
    const float value = table.real(row, "fp32_bits");
    const std::string bits = table.text(row, "fp32_bits");
    EXPECT_EQ(encode_e8m0_up(value), table.code(row, "up_te")) << bits;
    if (is_finite(value) && value >= 0.0f) {
      EXPECT_EQ(encode_e8m0_up(value), table.code(row, "exact_up")) << bits;
      EXPECT_EQ(encode_e8m0_down(value), table.code(row, "exact_down")) << bits;
    }
  }
}

TEST(GoldenVectors, every_listed_file_is_present_and_whole) {
  const VectorFiles &files = VectorFiles::get();
  int checked = 0;
  for (const VectorFile &file : files.files()) {
    ++checked;
    if (file.type == "csv") {
      EXPECT_NO_THROW(files.csv(file.path));
    } else {
      EXPECT_NO_THROW(files.bytes(file.path));
    }
  }
  EXPECT_GT(checked, 0) << files.root();
}

}  // namespace
}  // namespace octavo::test
