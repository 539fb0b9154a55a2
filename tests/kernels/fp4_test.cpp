/* Casts to E2M1 with two levels of scales: every code, the definition on every level of this CPU,
 * the transform, stochastic rounding, and numbers that are none. golden_fp4_test.cpp has the
 * numbers of Transformer Engine's reference.
 */
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/format/nvfp4.h"
#include "tests/kernels/fp4_case.h"

namespace octavo::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

int expected_code(float value) {
  return nearest_e2m1(std::fabs(static_cast<double>(value))) | (value < 0 ? 8 : 0);
}

TEST(E2m1, every_code_and_every_boundary) {
  for (int code = 0; code < 16; ++code) {
    const double value = (code & 8) != 0 ? -kE2m1[code & 7] : kE2m1[code & 7];
    const auto stored = static_cast<float>(value);
    EXPECT_EQ(decode_e2m1(static_cast<uint8_t>(code)), stored);
    EXPECT_EQ(std::signbit(decode_e2m1(static_cast<uint8_t>(code))), (code & 8) != 0);
    EXPECT_EQ(encode_e2m1(stored), code == 8 ? 0 : code);
  }
  for (int code = 0; code < 7; ++code) {
    const auto middle = static_cast<float>((kE2m1[code] + kE2m1[code + 1]) / 2);
    for (const float value : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 9.0f)}) {
      EXPECT_EQ(encode_e2m1(value), expected_code(value)) << value;
      EXPECT_EQ(encode_e2m1(-value), expected_code(-value)) << -value;
    }
  }
}

TEST(E2m1, a_float_of_every_sixteen_bits) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    for (const uint32_t low : {0u, 1u, 0x8000u, 0xFFFFu}) {
      const float value = bits_float(static_cast<int32_t>(half << 16 | low));
      const int expected = std::isnan(value) ? 0 : expected_code(value);
      ASSERT_EQ(encode_e2m1(value), expected) << std::hex << half << " " << low;
    }
  }
}

/* Every pattern of the bits that are dropped: as many of them round up as the value is units above
 * the lower code. */
TEST(E2m1, stochastic_counts_are_exact) {
  for (const float value : {0.1f, -2.3f}) {
    const double magnitude = std::fabs(static_cast<double>(value));
    int low = 0;
    while (low < 6 && kE2m1[low + 1] <= magnitude) ++low;
    const double share = (magnitude - kE2m1[low]) / (kE2m1[low + 1] - kE2m1[low]);
    int64_t upper = 0;
    for (uint32_t random = 0; random < 1u << 22; ++random) {
      const int code = encode_e2m1_random(value, random);
      ASSERT_EQ(code & 8, value < 0 ? 8 : 0);
      ASSERT_TRUE((code & 7) == low || (code & 7) == low + 1) << value << " " << code;
      upper += (code & 7) > low ? 1 : 0;
    }
    EXPECT_EQ(upper, static_cast<int64_t>(std::floor(share * 0x1p22))) << value;
  }
  for (const float value :
       {0.0f, -0.0f, 6.0f, -6.0f, 7.5f, kInf, -kInf, std::nanf(""), 3.0f, -1.5f})
    for (const uint32_t random : {0u, ~0u})
      EXPECT_EQ(encode_e2m1_random(value, random), encode_e2m1(value)) << value;
}

/* in with zeros around it, as fp32, and turned where wanted. */
std::vector<float> padded(const Matrix &in, int64_t rows, int64_t cols, bool turns) {
  std::vector<float> values(static_cast<size_t>(rows * cols), 0.0f);
  for (int64_t row = 0; row < in.rows(); ++row)
    for (int64_t col = 0; col < in.cols(); ++col)
      values[static_cast<size_t>(turns ? col * cols + row : row * cols + col)] = in.get(row, col);
  return values;
}

void expect_codes(const Fp4Codes &found, const Fp4Oracle &expected, const std::string &what) {
  EXPECT_EQ(static_cast<double>(found.second), expected.amax) << what;
  EXPECT_TRUE(found.guards_are_whole()) << what;
  for (int64_t row = 0; row < found.rows; ++row) {
    for (int64_t col = 0; col < found.cols; ++col) {
      const auto at = static_cast<size_t>(row * found.cols + col);
      ASSERT_EQ(found.scale_code(row, col), expected.scales[at])
          << what << " [" << row << ", " << col << "]";
      ASSERT_EQ(found.code(row, col), expected.codes[at])
          << what << " [" << row << ", " << col << "]";
    }
  }
}

struct Shape {
  int64_t rows, cols;
};
constexpr Shape kShapes[] = {{1, 1}, {16, 16}, {17, 33}, {3, 600}, {70, 20}, {32, 528}};

TEST(Fp4Cast, follows_the_definition_on_every_level_for_any_threads) {
  for (const std::string &level : supported_levels()) {
    for (const int threads : {1, 3}) {
      Kernels kernels(threads, level);
      for (const Shape &s : kShapes) {
        for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
          for (const bool square : {false, true}) {
            Matrix in(dtype, s.rows, s.cols, 3);
            in.fill(static_cast<unsigned>(s.rows * 7 + s.cols), 3.0f);
            Fp4Codes out(s.rows, s.cols, square), out_t(s.cols, s.rows, square);
            float amax = 0, nonfinite = 0;
            ASSERT_EQ(
                (Fp4Cast{*in.tensor(), &out, &out_t, 0, 0, 0, &amax, &nonfinite}.run(&kernels)),
                OCTAVO_OK);
            EXPECT_EQ(amax, amax_of(in, 1));
            EXPECT_EQ(nonfinite, 0);
            const std::string what = level + " " + std::to_string(s.rows) + " x " +
                                     std::to_string(s.cols) + (square ? ", square" : "");
            expect_codes(
                out, fp4_oracle(padded(in, out.rows, out.cols, false), out.rows, out.cols, square),
                what);
            expect_codes(out_t,
                         fp4_oracle(padded(in, out_t.rows, out_t.cols, true), out_t.rows,
                                    out_t.cols, square),
                         what + ", columns");
          }
        }
      }
    }
  }
}

/* in^T with each 16 of a row multiplied by the signs and by Sylvester's matrix. */
std::vector<float> transformed(const Matrix &in, int64_t rows, int64_t cols) {
  constexpr int kSigns[] = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
  const std::vector<float> turned = padded(in, rows, cols, true);
  std::vector<float> result(turned.size());
  for (size_t start = 0; start < turned.size(); start += 16) {
    for (unsigned j = 0; j < 16; ++j) {
      double sum = 0;
      for (unsigned i = 0; i < 16; ++i) {
        const double sign = __builtin_popcount(i & j) % 2 == 0 ? kSigns[i] : -kSigns[i];
        sum += sign * static_cast<double>(turned[start + i]);
      }
      result[start + j] = rounded(in.dtype(), static_cast<float>(sum / 4));
    }
  }
  return result;
}

TEST(Fp4Cast, transforms_columns) {
  Kernels kernels;
  for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16}) {
    for (const Shape &s : kShapes) {
      Matrix in(dtype, s.rows, s.cols);
      /* Multiples of 1/8 up to 16: fp32 rounds none of the sums. */
      std::mt19937 generator(5);
      for (int64_t row = 0; row < s.rows; ++row)
        for (int64_t col = 0; col < s.cols; ++col)
          in.set(row, col, static_cast<float>(static_cast<int>(generator() % 257) - 128) / 8);
      Fp4Codes out(s.rows, s.cols, false), out_t(s.cols, s.rows, false);
      ASSERT_EQ((Fp4Cast{*in.tensor(), &out, &out_t, OCTAVO_FP4_HADAMARD}.run(&kernels)),
                OCTAVO_OK);
      expect_codes(out,
                   fp4_oracle(padded(in, out.rows, out.cols, false), out.rows, out.cols, false),
                   "rows");
      expect_codes(
          out_t, fp4_oracle(transformed(in, out_t.rows, out_t.cols), out_t.rows, out_t.cols, false),
          "columns");
    }
  }
}

TEST(Fp4Cast, stochastic_rounding_is_unbiased_and_repeats) {
  Kernels kernels(3), one(1, "baseline");
  Matrix in(OCTAVO_F32, 48, 80);
  in.fill(11);
  std::vector<double> sums(48 * 80), sums_t(48 * 80);
  const int draws = 200;
  std::vector<uint8_t> first, first_t;
  for (int step = 0; step < draws; ++step) {
    Fp4Codes out(48, 80, false), out_t(80, 48, false), again(48, 80, false), nearest(48, 80, false);
    Fp4Cast cast{*in.tensor(), &out, &out_t, OCTAVO_FP4_STOCHASTIC, 77, static_cast<float>(step)};
    ASSERT_EQ(cast.run(&kernels), OCTAVO_OK);
    if (step == 0) {
      first = out.codes, first_t = out_t.codes;
      cast.out = &again, cast.out_t = nullptr;
      ASSERT_EQ(cast.run(&one), OCTAVO_OK);
      EXPECT_EQ(again.codes, out.codes) << "other threads and level";
      cast.key = 78;
      ASSERT_EQ(cast.run(&one), OCTAVO_OK);
      EXPECT_NE(again.codes, out.codes) << "another key";
      ASSERT_EQ((Fp4Cast{*in.tensor(), &nearest}.run(&one)), OCTAVO_OK);
      EXPECT_EQ(nearest.scales, out.scales) << "scales know no rounding of codes";
    } else {
      EXPECT_NE(out.codes, first) << step;
    }
    for (int64_t row = 0; row < 48; ++row) {
      for (int64_t col = 0; col < 80; ++col) {
        const auto value = [](const Fp4Codes &codes, int64_t r, int64_t c) {
          return decode_e2m1(static_cast<uint8_t>(codes.code(r, c))) *
                 decode_e4m3(static_cast<uint8_t>(codes.scale_code(r, c))) * codes.second / 2688.0f;
        };
        sums[static_cast<size_t>(row * 80 + col)] += static_cast<double>(value(out, row, col));
        sums_t[static_cast<size_t>(row * 80 + col)] += static_cast<double>(value(out_t, col, row));
      }
    }
  }
  /* A step is at most amax / 3, so the mean of 200 draws has a deviation of at most amax / 6 /
   * 14. 6 of them are exceeded by one of 7680 means with 2e-5. What saturates, since the scale of
   * its block was rounded down by up to 2^-4, is off by that share. */
  for (size_t i = 0; i < sums.size(); ++i) {
    const double value =
        static_cast<double>(in.get(static_cast<int64_t>(i) / 80, static_cast<int64_t>(i) % 80));
    const double limit = 6 * static_cast<double>(amax_of(in, 1)) / 84 + std::fabs(value) / 16;
    EXPECT_NEAR(sums[i] / draws, value, limit);
    EXPECT_NEAR(sums_t[i] / draws, value, limit);
  }
}

TEST(Fp4Cast, specials) {
  Kernels kernels;
  Matrix in(OCTAVO_F32, 16, 32);
  const auto cast = [&](Fp4Codes *out, Fp4Codes *out_t, float *nonfinite) {
    ASSERT_EQ((Fp4Cast{*in.tensor(), out, out_t, 0, 0, 0, nullptr, nonfinite}.run(&kernels)),
              OCTAVO_OK);
  };
  const auto follows = [&](const Fp4Codes &out) {
    expect_codes(out, fp4_oracle(padded(in, 16, 32, false), 16, 32, out.square), "specials");
  };
  const auto fill = [&](float value) {
    for (int64_t i = 0; i < 16 * 32; ++i) in.set(i / 32, i % 32, i % 3 == 0 ? value : -value / 3);
  };
  float nonfinite = 0;
  for (const float value :
       {0.0f, 1e-45f, 1e-40f, 7e-36f, 1e-30f, std::numeric_limits<float>::max()}) {
    fill(value);
    Fp4Codes out(16, 32, false), square(16, 32, true);
    cast(&out, nullptr, &nonfinite);
    cast(&square, nullptr, &nonfinite);
    follows(out);
    follows(square);
    EXPECT_EQ(nonfinite, 0);
  }
  /* Inf saturates, and the numbers beside it stay what they are. */
  fill(2.0f);
  in.set(3, 5, -kInf);
  Fp4Codes out(16, 32, false);
  cast(&out, nullptr, &nonfinite);
  EXPECT_EQ(nonfinite, 1);
  EXPECT_EQ(out.second, 2688);
  EXPECT_EQ(out.code(3, 5), 15);
  EXPECT_EQ(out.scale_code(3, 5), 0x7E);
  EXPECT_EQ(out.scale_code(3, 20), encode_e4m3(2.0f / 6));
  /* NaN: the scale of its block alone. */
  in.set(3, 5, std::nanf(""));
  Fp4Codes rows(16, 32, false), columns(32, 16, false);
  nonfinite = 0;
  cast(&rows, &columns, &nonfinite);
  EXPECT_EQ(nonfinite, 1);
  EXPECT_EQ(rows.second, 2);
  for (int64_t row = 0; row < 16; ++row)
    for (int64_t col = 0; col < 32; ++col) {
      EXPECT_EQ(rows.scale_code(row, col) == 0x7F, row == 3 && col < 16);
      EXPECT_EQ(columns.scale_code(col, row) == 0x7F, col == 5);
      EXPECT_TRUE(rows.scale_code(row, col) != 0x7F || rows.code(row, col) == 0);
    }
}

TEST(Fp4Cast, no_rows_have_scales_too) {
  Kernels kernels;
  const octavo_tensor in{nullptr, 0, 40, 40, OCTAVO_F32, 0};
  Fp4Codes out(0, 40, false), out_t(40, 0, false);
  ASSERT_EQ((Fp4Cast{in, &out, &out_t, OCTAVO_FP4_HADAMARD}.run(&kernels)), OCTAVO_OK);
  EXPECT_EQ(out.second, 0);
  EXPECT_EQ(out_t.second, 0);
}

}  // namespace
}  // namespace octavo::test
