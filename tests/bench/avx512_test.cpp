// The opponents of the benches compute what they claim: an opponent that is wrong could be fast.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/format/adam.h"
#include "kernels/format/float8.h"
#include "tests/bench/avx512.h"

namespace octavo::bench {
namespace {

class Avx512 : public testing::Test {
 protected:
  void SetUp() override {
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq")) {
      GTEST_SKIP() << "this CPU has no AVX-512";
    }
  }
};

// Exponents from far below E4M3's subnormals to far above its largest value, and ties.
TEST_F(Avx512, cast_equals_the_format_on_values_and_ties) {
  std::vector<float> values = {0.0f, -0.0f, 448.0f, 464.0f, 465.0f, 1e30f, -1e30f, INFINITY};
  for (int exponent = -14; exponent <= 9; ++exponent) {
    for (int sixteenth = 16; sixteenth < 32; ++sixteenth) {
      const float value = std::ldexp(static_cast<float>(sixteenth) / 16, exponent);
      for (const float v : {value, std::nextafter(value, 0.0f), std::nextafter(value, 1e9f)}) {
        values.push_back(v);
        values.push_back(-v);
      }
    }
  }
  values.resize((values.size() + 63) / 64 * 64, 1.0f);
  std::vector<uint8_t> found(values.size());
  for (const float scale : {1.0f, 0.37f}) {
    aten_cast_e4m3(values.data(), static_cast<int64_t>(values.size()), scale, found.data());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(found[i], encode_e4m3(values[i] * scale)) << values[i] << " times " << scale;
    }
  }
}

TEST_F(Avx512, decode_equals_the_format_on_every_code) {
  std::vector<uint8_t> codes(256);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  std::vector<float> found(codes.size());
  aten_decode_e4m3(codes.data(), 256, found.data());
  for (size_t i = 0; i < codes.size(); ++i) {
    const float expected = decode_e4m3(codes[i]);
    EXPECT_EQ(std::memcmp(&found[i], &expected, sizeof expected), 0) << "code " << i;
  }
}

TEST_F(Avx512, transpose_moves_every_byte) {
  constexpr int64_t kRows = 128;
  constexpr int64_t kCols = 192;
  std::mt19937 bits(7);
  std::vector<uint8_t> in(kRows * kCols);
  for (uint8_t &byte : in) byte = static_cast<uint8_t>(bits());
  std::vector<uint8_t> out(in.size());
  transpose_bytes(in.data(), kRows, kCols, out.data());
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < kCols; ++col) {
      ASSERT_EQ(out[static_cast<size_t>(col * kRows + row)],
                in[static_cast<size_t>(row * kCols + col)])
          << row << ", " << col;
    }
  }
}

// Fused multiply-adds and a reciprocal correction: a few roundings of 2^-24 each.
TEST_F(Avx512, adam_is_the_step_of_the_format) {
  constexpr size_t kCount = 1024;
  std::mt19937 bits(11);
  std::normal_distribution<float> normal;
  std::vector<float> weight(kCount), gradient(kCount), exp_avg(kCount), exp_avg_sq(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    weight[i] = normal(bits);
    gradient[i] = normal(bits);
    exp_avg[i] = normal(bits);
    exp_avg_sq[i] = normal(bits) * normal(bits) + 20.0f;
  }
  const AdamConstants c = {0.9f, 0.999f, 1e-3f, 0.5f, 1e-8f, 0.99f};
  AdamFactors f = {};
  f.ratio_limit = INFINITY;
  f.beta1 = c.beta1;
  f.beta2 = c.beta2;
  f.one_minus_beta1 = 1.0f - c.beta1;
  f.one_minus_beta2 = 1.0f - c.beta2;
  f.step_size = c.step_size;
  f.root_correction2 = c.root_correction2;
  f.eps = c.eps;
  f.keep = c.keep;
  const std::vector<float> old_weight = weight, old_exp_avg = exp_avg, old_sq = exp_avg_sq;
  adam_f32(c, gradient.data(), kCount, weight.data(), exp_avg.data(), exp_avg_sq.data());
  for (size_t i = 0; i < kCount; ++i) {
    const AdamElement e = adam_element(f, {old_weight[i], old_exp_avg[i], old_sq[i]}, gradient[i]);
    EXPECT_NEAR(weight[i], e.weight, 1e-6f * (1 + std::fabs(e.weight)));
    EXPECT_NEAR(exp_avg[i], e.exp_avg, 1e-6f * (1 + std::fabs(e.exp_avg)));
    EXPECT_NEAR(exp_avg_sq[i], e.exp_avg_sq, 1e-6f * (1 + std::fabs(e.exp_avg_sq)));
  }
}

TEST_F(Avx512, copies_are_copies) {
  constexpr int64_t kBytes = 4096;
  struct alignas(64) Page {
    uint8_t bytes[kBytes];
  };
  Page in;
  for (int64_t i = 0; i < kBytes; ++i) in.bytes[i] = static_cast<uint8_t>(i * 7 + 1);
  for (const auto copy : {copy_nontemporal, copy_regular}) {
    Page out = {};
    copy(in.bytes, kBytes, out.bytes);
    EXPECT_EQ(std::memcmp(in.bytes, out.bytes, kBytes), 0);
  }
}

}  // namespace
}  // namespace octavo::bench
