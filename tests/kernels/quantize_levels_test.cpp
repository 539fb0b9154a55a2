/* quantize and dequantize on every level, element by element against kernels/format: all inputs of
 * 16 bits, all codes, odd sizes and addresses, scales of every size, and outputs past the caches.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kScales[] = {1.0f,  13.7f, 0x1p-20f, 0x1p30f, 3e38f, 1e-38f, 1e-45f,
                             -2.5f, 0.0f,  -0.0f,    kInf,    -kInf, kNan};
constexpr uint32_t kFloat8[] = {OCTAVO_E4M3FN, OCTAVO_E5M2};

uint8_t expected_code(uint32_t dtype, float value) {
  return dtype == OCTAVO_E4M3FN ? encode_e4m3(value) : encode_e5m2(value);
}

struct Result {
  float scale_inv = 0.0f;
  float amax = 0.0f;
  float nonfinite = 0.0f;
};

Result quantize(Kernels *kernels, const octavo_tensor &in, octavo_tensor *out, float scale) {
  Result result;
  const octavo_scale scale_inv = per_tensor(&result.scale_inv);
  auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  c.in = &in;
  c.out = out;
  c.out_scale_inv = &scale_inv;
  c.scale = &scale;
  c.amax = &result.amax;
  c.nonfinite = &result.nonfinite;
  EXPECT_EQ(kernels->quantize(c), OCTAVO_OK) << kernels->host().last_text();
  return result;
}

void expect_codes(const Matrix &in, const Matrix &out, float scale, const Result &result) {
  float amax = 0.0f;
  bool nonfinite = false;
  for (int64_t row = 0; row < in.rows(); ++row) {
    for (int64_t col = 0; col < in.cols(); ++col) {
      const float value = in.get(row, col);
      ASSERT_EQ(out.code(row, col), expected_code(out.dtype(), scaled_by(value, scale)))
          << row << ", " << col << ": " << value << " * " << scale;
      if (!std::isnan(value)) amax = std::fmax(amax, std::fabs(value));
      nonfinite = nonfinite || !std::isfinite(value);
    }
  }
  EXPECT_EQ(result.amax, amax);
  EXPECT_EQ(result.nonfinite, nonfinite ? 1.0f : 0.0f);
}

TEST(QuantizeLevels, every_half_with_scales_of_every_size) {
  for (const uint32_t in_dtype : {OCTAVO_BF16, OCTAVO_F16}) {
    Matrix in(in_dtype, 16, 4096); /* NaN is in four rows of 16 */
    for (int64_t i = 0; i < 65536; ++i) {
      const auto pattern = static_cast<uint16_t>(i);
      std::memcpy(in.at(i / 4096, i % 4096), &pattern, sizeof(pattern));
    }
    for (const std::string &level : supported_levels()) {
      Kernels kernels(1, level);
      for (const uint32_t dtype : kFloat8) {
        for (const float scale : kScales) {
          Matrix out(dtype, 16, 4096);
          const Result result = quantize(&kernels, *in.tensor(), out.tensor(), scale);
          ASSERT_NO_FATAL_FAILURE(expect_codes(in, out, scale, result)) << level << " " << scale;
        }
      }
    }
  }
}

TEST(QuantizeLevels, random_patterns_with_scales_of_every_size) {
  std::mt19937 generator(3);
  Matrix in(OCTAVO_F32, 3, 4097);
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t col = 0; col < 4097; ++col) {
      uint32_t bits = static_cast<uint32_t>(generator());
      if (row == 1 && (bits & 0x7F800000u) == 0x7F800000u) bits &= 0xBFFFFFFFu; /* all finite */
      std::memcpy(in.at(row, col), &bits, sizeof(bits));
    }
  }
  for (const std::string &level : supported_levels()) {
    Kernels kernels(1, level);
    for (const uint32_t dtype : kFloat8) {
      for (int i = 0; i < 200; ++i) {
        const float scale = i < static_cast<int>(std::size(kScales))
                                ? kScales[i]
                                : bits_float(static_cast<int32_t>(generator() & 0x7FFFFFFFu));
        Matrix out(dtype, 3, 4097);
        const Result result = quantize(&kernels, *in.tensor(), out.tensor(), scale);
        ASSERT_NO_FATAL_FAILURE(expect_codes(in, out, scale, result)) << level << " " << scale;
      }
    }
  }
}

TEST(QuantizeLevels, odd_sizes_at_odd_addresses) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(1, level);
    for (const uint32_t in_dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
      for (const int64_t n : {1, 15, 17, 31, 33, 63, 65, 217, 4095, 4097, 8200}) {
        for (const int64_t shift : {1, 3, 31}) {
          Matrix whole(in_dtype, 1, n + shift);
          whole.fill(static_cast<unsigned>(n), 50.0f);
          Matrix in(in_dtype, 1, n);
          for (int64_t i = 0; i < n; ++i) in.set(0, i, whole.get(0, i + shift));
          octavo_tensor part = *whole.tensor();
          part.data = whole.at(0, shift);
          part.cols = part.stride = n;
          std::vector<uint8_t> around(static_cast<size_t>(n + shift + 64), 0xC3);
          octavo_tensor codes = {around.data() + shift, 1, n, n, OCTAVO_E4M3FN, 0};
          const Result result = quantize(&kernels, part, &codes, 1.7f);
          Matrix out(OCTAVO_E4M3FN, 1, n);
          std::memcpy(out.at(0, 0), codes.data, static_cast<size_t>(n));
          ASSERT_NO_FATAL_FAILURE(expect_codes(in, out, 1.7f, result)) << level << " " << n;
          for (int64_t i = 0; i < shift; ++i) ASSERT_EQ(around[static_cast<size_t>(i)], 0xC3);
          for (size_t i = static_cast<size_t>(n + shift); i < around.size(); ++i) {
            ASSERT_EQ(around[i], 0xC3) << level << " " << n << ": beyond the end";
          }
        }
      }
    }
  }
}

/* Larger than half of any last-level cache of a machine that would run this, where writes go past
 * the caches; a NaN and an unaligned start are in it. */
TEST(QuantizeLevels, outputs_past_the_caches_are_those_of_the_baseline) {
  constexpr int64_t kRows = 130;
  constexpr int64_t kCols = (int64_t{24} << 20) / kRows;
  Matrix in(OCTAVO_F32, kRows, kCols);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < kCols; ++col) {
      const auto mixed = static_cast<uint32_t>(row * 7919 + col * 104729) * 2654435761u;
      const float value = static_cast<float>(static_cast<int32_t>(mixed)) * 0x1p-28f;
      std::memcpy(in.at(row, col), &value, sizeof(value));
    }
  }
  in.set(70, 12345, -kNan);
  std::vector<uint8_t> expected;
  std::vector<uint8_t> expected_t;
  for (const std::string &level : supported_levels()) {
    Kernels kernels(2, level);
    std::vector<uint8_t> codes(static_cast<size_t>(kRows * kCols) + 5, 0xC3);
    octavo_tensor out = {codes.data() + 5, kRows, kCols, kCols, OCTAVO_E4M3FN, 0};
    const Result result = quantize(&kernels, *in.tensor(), &out, 3.3f);
    EXPECT_EQ(result.nonfinite, 1.0f);
    EXPECT_LE(result.amax, 8.0f);
    Matrix turned(OCTAVO_E4M3FN, kCols, kRows, 62);
    const float scale = 3.3f;
    float inverse = 0.0f;
    const octavo_scale scale_inv = per_tensor(&inverse);
    auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
    c.in = in.tensor();
    c.out_t = turned.tensor();
    c.out_scale_inv = &scale_inv;
    c.scale = &scale;
    ASSERT_EQ(kernels.quantize(c), OCTAVO_OK);
    if (expected.empty()) {
      for (int64_t row = 0; row < kRows; row += 9) {
        for (int64_t col = 0; col < kCols; col += 101) {
          const uint8_t code = codes[static_cast<size_t>(5 + row * kCols + col)];
          ASSERT_EQ(code, expected_code(OCTAVO_E4M3FN, scaled_by(in.get(row, col), 3.3f)));
          ASSERT_EQ(turned.code(col, row), code);
        }
      }
      expected = codes;
      expected_t = turned.data();
    }
    EXPECT_TRUE(codes == expected) << level;
    EXPECT_TRUE(turned.data() == expected_t) << level;
  }
}

TEST(DequantizeLevels, every_code_with_scales_of_every_size) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(1, level);
    for (const uint32_t in_dtype : kFloat8) {
      for (const uint32_t out_dtype : {OCTAVO_BF16, OCTAVO_F16, OCTAVO_F32}) {
        for (const float scale_inv : kScales) {
          Matrix in(in_dtype, 12, 257, 1);
          for (int64_t row = 0; row < 12; ++row) {
            for (int64_t col = 0; col < 257; ++col) {
              *in.at(row, col) = static_cast<uint8_t>(row * 31 + col);
            }
          }
          Matrix out(out_dtype, 12, 257, 3);
          const octavo_scale scale = per_tensor(&scale_inv);
          auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
          c.in = in.tensor();
          c.scale_inv = &scale;
          c.out = out.tensor();
          ASSERT_EQ(kernels.dequantize(c), OCTAVO_OK) << kernels.host().last_text();
          for (int64_t row = 0; row < 12; ++row) {
            for (int64_t col = 0; col < 257; ++col) {
              const float expected = rounded(out_dtype, in.get(row, col) * scale_inv);
              ASSERT_TRUE(same_value(out.get(row, col), expected))
                  << level << " code " << +in.code(row, col) << " * " << scale_inv << ": "
                  << out.get(row, col) << ", expected " << expected;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test
