/* gemm over codes that are chosen against it: cancellation, absorption, the largest and the
 * smallest codes, K up to 65,536; compared with the plain chain bit for bit and with exact integers
 * within the bound below.
 *
 * The bound. Products of E4M3, E5M2 and f16 are exact in fp32. Let s_k = fl(s_{k-1} + p_k), S_k the
 * exact sum of k products, T_k the sum of their magnitudes, u = 2^-24. Then
 *   |s_k - S_k| <= (k - 1) u T_k,
 * by induction, with d_k the rounding of step k (s_1 = p_1 has none). Rounding to nearest moves a
 * sum no further than s_{k-1}, which is a float, lies from it: |d_k| <= |p_k|. It also moves it by
 * at most u |s_{k-1} + p_k| (an addition cannot underflow inexactly).
 * - |p_k| <= u T_{k-1}: the error is at most (k - 2) u T_{k-1} + |p_k| <= (k - 1) u T_{k-1}.
 * - else |d_k| <= u (|S_k| + |s_{k-1} - S_{k-1}|) <= u (T_k + (k - 2) u T_{k-1})
 *   <= u (T_k + (k - 2) |p_k|), and with the (k - 2) u T_{k-1} of before this is (k - 1) u T_k.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/kernels/adversarial.h"

namespace octavo::test {
namespace {

__extension__ using Wide = __int128;

/* Every product and every fp32 sum of them is a multiple of 2^-48, the square of f16's 2^-24; with
 * K = 2^16 and products below 2^32 the sums have at most 96 bits, and 2^24 times an error 121. */
constexpr int kUnit = 48;

Wide in_units(float value) {
  return static_cast<Wide>(std::ldexp(static_cast<long double>(value), kUnit));
}

float largest(uint32_t dtype) {
  return dtype == OCTAVO_E4M3FN ? kMaxE4m3 : dtype == OCTAVO_E5M2 ? kMaxE5m2 : kMaxF16;
}

/* The smallest subnormal; there are `subnormals` magnitudes of them. */
float smallest(uint32_t dtype) {
  return dtype == OCTAVO_E4M3FN ? 0x1p-9f : dtype == OCTAVO_E5M2 ? 0x1p-16f : 0x1p-24f;
}
unsigned subnormals(uint32_t dtype) {
  return dtype == OCTAVO_E4M3FN ? 7 : dtype == OCTAVO_E5M2 ? 3 : 1023;
}

/* Any finite value of the dtype, all bit patterns alike. */
float any_finite(uint32_t dtype, std::mt19937 *generator) {
  for (;;) {
    const uint32_t bits = static_cast<uint32_t>((*generator)()); /* the low ones count */
    const float value = decode(dtype, &bits);
    if (std::isfinite(value)) return value;
  }
}

std::vector<float> code_pattern(uint32_t dtype, int pattern, int64_t k, unsigned seed) {
  std::mt19937 generator(seed * 100 + static_cast<unsigned>(pattern));
  std::vector<float> values(static_cast<size_t>(k));
  const float high = largest(dtype);
  const float low = smallest(dtype);
  const size_t half = values.size() / 2;
  for (size_t i = 0; i < values.size(); ++i) {
    const float sign = generator() % 2 == 0 ? 1.0f : -1.0f;
    const float some = any_finite(dtype, &generator);
    switch (pattern) {
      case 0: values[i] = some; break;
      case 1: values[i] = high; break;
      case 2: values[i] = i % 2 == 0 ? high : -high; break;
      case 3: values[i] = i < half ? some : -values[i - half]; break; /* cancels over K / 2 */
      case 4: values[i] = i % 2 == 0 ? some : -values[i - 1]; break;  /* pairs +x, -x */
      case 5: values[i] = low; break;
      case 6:
        values[i] = sign * low * static_cast<float>(generator() % (subnormals(dtype) + 1));
        break;
      case 7: values[i] = i == 0 ? high : low; break; /* the small ones are absorbed */
      default: values[i] = i % 3 == 0 ? -0.0f : sign * (i % 3 == 1 ? high : low); break;
    }
  }
  return values;
}

constexpr uint32_t kPairs[][2] = {{OCTAVO_E4M3FN, OCTAVO_E4M3FN}, {OCTAVO_E4M3FN, OCTAVO_E5M2},
                                  {OCTAVO_E5M2, OCTAVO_E4M3FN},   {OCTAVO_E5M2, OCTAVO_E5M2},
                                  {OCTAVO_F16, OCTAVO_E4M3FN},    {OCTAVO_F16, OCTAVO_F16}};

/* The exact sum and the sum of magnitudes, in units. */
struct Exact {
  Wide sum = 0;
  Wide magnitudes = 0;
};

/* All elements in units of 2^-24, of which every code is a multiple. */
std::vector<int64_t> integers(const Matrix &m) {
  std::vector<int64_t> all;
  for (int64_t row = 0; row < m.rows(); ++row) {
    for (int64_t col = 0; col < m.cols(); ++col) {
      all.push_back(static_cast<int64_t>(m.get(row, col) * 0x1p24f));
    }
  }
  return all;
}

/* Of every pair of patterns, in the order of Adversary::sums. */
std::vector<Exact> exact_sums(const Adversary &adversary) {
  const std::vector<int64_t> a = integers(adversary.a);
  const std::vector<int64_t> b = integers(adversary.b);
  const auto k = static_cast<size_t>(adversary.a.cols());
  std::vector<Exact> all;
  for (size_t i = 0; i < kPatterns; ++i) {
    for (size_t j = 0; j < kPatterns; ++j) {
      Exact e;
      for (size_t at = 0; at < k; ++at) {
        const Wide product = static_cast<Wide>(a[i * k + at]) * b[j * k + at];
        e.sum += product;
        e.magnitudes += product < 0 ? -product : product;
      }
      all.push_back(e);
    }
  }
  return all;
}

TEST(AdversarialCodes, short_sums_equal_the_chain) {
  for (const auto &pair : kPairs) {
    for (const int64_t k : {1, 2, 3, 31, 32, 33, 63, 64, 65, 129}) {
      const Adversary adversary(code_pattern, pair[0], pair[1], k);
      for (const int64_t m : {1, 2, 9, 26, 40}) {
        ASSERT_NO_FATAL_FAILURE(expect_chains(adversary, m, 70));
      }
    }
  }
}

TEST(AdversarialCodes, long_sums_equal_the_chain_and_stay_within_the_bound) {
  int inexact = 0;
  for (const auto &pair : kPairs) {
    for (const int64_t k : {1000, 4097, 65535, 65536}) {
      const Adversary adversary(code_pattern, pair[0], pair[1], k);
      ASSERT_NO_FATAL_FAILURE(expect_chains(adversary, 9, 9));
      if (k < 10000) {
        ASSERT_NO_FATAL_FAILURE(expect_chains(adversary, 40, 37));
      }
      const std::vector<Exact> exact = exact_sums(adversary);
      for (size_t i = 0; i < exact.size(); ++i) {
        const Wide difference = in_units(adversary.sums[i]) - exact[i].sum;
        const Wide error = difference < 0 ? -difference : difference;
        ASSERT_TRUE(error << 24 <= exact[i].magnitudes * (k - 1))
            << "dtypes " << pair[0] << " and " << pair[1] << ", K " << k << ", patterns "
            << i / kPatterns << " and " << i % kPatterns;
        inexact += error != 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(inexact, 100) << "the patterns are too tame to test a bound";
}

/* With scales and a rounding at the end. Let f = fl(a_scale b_scale) and v the output's unit
 * roundoff. Of the exact value x = sum * a_scale * b_scale the output is off by what the chain is
 * off, times the scales, and by three relative roundings: of f, of the product with it and of the
 * result, together at most (1 + u)^2 (1 + v) - 1 of the value that they round. */
TEST(AdversarialCodes, scaled_and_rounded_outputs_stay_within_the_bound) {
  const float a_scale = 0x1.7p-3f;
  const float b_scale = 0x1.9b3p-12f;
  const auto a_scale_inv = per_tensor(&a_scale);
  const auto b_scale_inv = per_tensor(&b_scale);
  const long double scales = static_cast<long double>(a_scale) * static_cast<long double>(b_scale);
  constexpr int64_t kLong = 4096;
  for (const auto &pair : kPairs) {
    const Adversary adversary(code_pattern, pair[0], pair[1], kLong);
    const std::vector<Exact> exact = exact_sums(adversary);
    for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16}) {
      const long double u = 0x1p-24L;
      const long double v = dtype == OCTAVO_F32 ? u : 0x1p-8L;
      const long double roundings = (1 + u) * (1 + u) * (1 + v) - 1;
      for (const std::string &level : supported_levels()) {
        Kernels kernels(1, level);
        Matrix d(dtype, kPatterns, kPatterns);
        auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
        c.a = adversary.a.tensor();
        c.b = adversary.b.tensor();
        c.d = d.tensor();
        c.a_scale_inv = &a_scale_inv;
        c.b_scale_inv = &b_scale_inv;
        ASSERT_EQ(kernels.gemm(c), OCTAVO_OK) << kernels.host().last_text();
        for (int i = 0; i < kPatterns; ++i) {
          for (int j = 0; j < kPatterns; ++j) {
            const Exact &e = exact[static_cast<size_t>(i * kPatterns + j)];
            const long double wanted = std::ldexp(static_cast<long double>(e.sum), -kUnit) * scales;
            const long double chain = (kLong - 1) * u *
                                      std::ldexp(static_cast<long double>(e.magnitudes), -kUnit) *
                                      scales;
            const long double bound = chain + (std::abs(wanted) + chain) * roundings;
            const float found = d.get(i, j);
            ASSERT_LE(std::abs(static_cast<long double>(found) - wanted), bound)
                << level << ", patterns " << i << " and " << j;
            ASSERT_EQ(found, rounded(dtype, adversary.sum(i, j) * (a_scale * b_scale)))
                << level << ", patterns " << i << " and " << j;
          }
        }
      }
    }
  }
}

/* Finite codes with an infinity (of E5M2) or a NaN at the start, in the middle or at the end; the
 * seventh row has a zero where it meets an infinity, the last two are finite. Infinities do not
 * come out of a saturating cast, so bits are written. */
Matrix special_rows(uint32_t dtype, int64_t k, unsigned seed) {
  Matrix m = pattern_rows(code_pattern, dtype, k, seed);
  const int64_t places[] = {0, k / 2, k - 1};
  for (int row = 0; row < 6; ++row) {
    const uint8_t infinity = row < 3 ? 0x7C : 0xFC;
    const uint8_t nan = row < 3 ? 0x7F : 0xFF;
    *m.at(row, places[row % 3]) = dtype == OCTAVO_E5M2 && row != 4 ? infinity : nan;
  }
  m.set(6, 0, 0.0f);
  return m;
}

TEST(AdversarialCodes, specials_along_k) {
  int nans = 0;
  int infinities = 0;
  for (const auto &pair : kPairs) {
    if (pair[0] == OCTAVO_F16) continue; /* adversarial_plain_test has its infinities */
    for (const int64_t k : {3, 64, 65, 4097}) {
      const Adversary adversary(special_rows(pair[0], k, 1), special_rows(pair[1], k, 2));
      for (const int64_t m : {2, 9, 40}) {
        ASSERT_NO_FATAL_FAILURE(expect_chains(adversary, m, 37));
      }
      for (const float sum : adversary.sums) {
        nans += std::isnan(sum) ? 1 : 0;
        infinities += std::isinf(sum) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(nans, 50);
  EXPECT_GT(infinities, 50);
}

}  // namespace
}  // namespace octavo::test
