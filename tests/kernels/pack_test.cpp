/* pack, and gemm on what it wrote: the bits of the same gemm on plain codes, for every size, dtype
 * and granularity.
 */
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/packed.h"

namespace octavo::test {
namespace {

/* gemm(c) on plain codes in b and on packed ones, into copies of d. */
void expect_same_bits(Kernels *kernels, octavo_gemm c, const Matrix &b, const Matrix &d) {
  Matrix expected = d;
  Matrix found = d;
  c.b = b.tensor();
  c.d = expected.tensor();
  ASSERT_EQ(kernels->gemm(c), OCTAVO_OK) << kernels->host().last_text();
  const Packed packed(*kernels, b);
  c.b = packed.tensor();
  c.d = found.tensor();
  c.layout |= OCTAVO_GEMM_B_PACKED;
  ASSERT_EQ(kernels->gemm(c), OCTAVO_OK) << kernels->host().last_text();
  ASSERT_EQ(found.data(), expected.data()) << "M " << d.rows() << ", N " << d.cols() << ", K "
                                           << b.cols() << ", dtype of a " << c.a->dtype;
}

void expect_same_bits(Kernels *kernels, uint32_t a_dtype, uint32_t b_dtype, int64_t m, int64_t n,
                      int64_t k, unsigned turn) {
  const Matrix a = Matrix(a_dtype, m, k, turn % 3).fill(turn + 1, 3.0f);
  const Matrix b = Matrix(b_dtype, n, k, turn % 2).fill(turn + 2, 3.0f);
  const Matrix d = Matrix(turn % 2 == 0 ? OCTAVO_F32 : OCTAVO_BF16, m, n).fill(turn + 3);
  std::vector<float> of_rows;
  for (int64_t i = 0; i < n; ++i) of_rows.push_back(0.3f + 0.1f * static_cast<float>(i % 7));
  const float one = 0.37f;
  const octavo_scale a_scale = per_tensor(&one);
  const octavo_scale b_scale =
      turn % 3 == 0 ? octavo_scale OCTAVO_SCALE(of_rows.data(), 1, OCTAVO_F32, OCTAVO_PER_ROW)
                    : per_tensor(&one);
  auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
  c.a = a.tensor();
  c.a_scale_inv = a_dtype == OCTAVO_BF16 ? nullptr : &a_scale;
  c.b_scale_inv = &b_scale;
  c.accumulate = turn % 5 == 0 ? 1 : 0;
  expect_same_bits(kernels, c, b, d);
}

constexpr int64_t kSizes[] = {1, 2, 3, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 127, 128, 129, 217};

TEST(Pack, products_have_the_bits_of_plain_codes) {
  OCTAVO_NEEDS_PACKING_LEVEL();
  for (const std::string &level : packing_levels()) {
    Kernels kernels(0, level);
    unsigned turn = 0;
    for (const int64_t m : kSizes) {
      for (const int64_t n : kSizes) {
        for (const int64_t k : kSizes) {
          const uint32_t a = turn % 4 < 2 ? OCTAVO_E4M3FN : OCTAVO_E5M2;
          const uint32_t b = turn % 3 < 2 ? OCTAVO_E4M3FN : OCTAVO_E5M2;
          ASSERT_NO_FATAL_FAILURE(expect_same_bits(&kernels, a, b, m, n, k, turn));
          ++turn;
        }
      }
    }
  }
}

TEST(Pack, every_small_size) {
  OCTAVO_NEEDS_PACKING_LEVEL();
  for (const std::string &level : packing_levels()) {
    Kernels kernels(0, level);
    unsigned turn = 0;
    for (int64_t size = 1; size <= 33; ++size) {
      for (const auto &[m, n, k] : {std::tuple{size, int64_t{33}, int64_t{65}},
                                    {int64_t{5}, size, int64_t{65}},
                                    {int64_t{5}, int64_t{33}, size},
                                    {int64_t{13}, int64_t{33}, size}}) {
        for (const uint32_t b : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
          ASSERT_NO_FATAL_FAILURE(expect_same_bits(&kernels, OCTAVO_E4M3FN, b, m, n, k, turn++));
        }
      }
    }
  }
}

/* Parts of K, and for three threads strips of rows beside panels. */
TEST(Pack, long_k_and_any_number_of_threads) {
  OCTAVO_NEEDS_PACKING_LEVEL();
  for (const std::string &level : packing_levels()) {
    for (const int threads : {0, 1, 3}) {
      Kernels kernels(threads, level);
      unsigned turn = 0;
      for (const int64_t m : {1, 8, 16, 131}) {
        for (const int64_t k : {2047, 2048, 4099}) {
          ASSERT_NO_FATAL_FAILURE(
              expect_same_bits(&kernels, OCTAVO_E4M3FN, OCTAVO_E4M3FN, m, 70, k, turn++));
        }
      }
    }
  }
}

/* Every code, and a row of a beside it whose products with them leave fp32's range or do not. */
TEST(Pack, all_codes_beside_bf16) {
  OCTAVO_NEEDS_PACKING_LEVEL();
  for (const std::string &level : packing_levels()) {
    Kernels kernels(0, level);
    for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
      Matrix b(dtype, 256, 67);
      for (int64_t row = 0; row < 256; ++row) {
        for (int64_t col = 0; col < 67; ++col) *b.at(row, col) = static_cast<uint8_t>(row + col);
      }
      for (const float spread : {1.0f, 0x1p-122f}) {
        for (const int64_t m : {1, 4, 13}) {
          const Matrix a = Matrix(OCTAVO_BF16, m, 67).fill(7, spread);
          auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
          c.a = a.tensor();
          ASSERT_NO_FATAL_FAILURE(expect_same_bits(&kernels, c, b, Matrix(OCTAVO_F32, m, 256)));
        }
      }
    }
  }
}

TEST(Pack, block_scales) {
  OCTAVO_NEEDS_PACKING_LEVEL();
  for (const std::string &level : packing_levels()) {
    Kernels kernels(0, level);
    for (const int64_t m : {1, 8, 33}) {
      for (const int64_t k : {127, 128, 129, 400, 8321}) {
        const int64_t stride = (k + 127) / 128;
        std::vector<float> scales;
        for (int64_t i = 0; i < 70 * stride; ++i) {
          scales.push_back(0.25f + 0.01f * static_cast<float>(i % 89));
        }
        const octavo_scale a_scale =
            OCTAVO_SCALE(scales.data(), stride, OCTAVO_F32, OCTAVO_BLOCK_1X128);
        const octavo_scale b_scale =
            OCTAVO_SCALE(scales.data() + 3, stride, OCTAVO_F32, OCTAVO_BLOCK_128X128);
        const Matrix a = Matrix(OCTAVO_E4M3FN, m, k).fill(1, 3.0f);
        const Matrix b = Matrix(OCTAVO_E4M3FN, 70, k).fill(2, 3.0f);
        auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
        c.a = a.tensor();
        c.a_scale_inv = &a_scale;
        c.b_scale_inv = &b_scale;
        ASSERT_NO_FATAL_FAILURE(expect_same_bits(&kernels, c, b, Matrix(OCTAVO_F32, m, 70)));
      }
    }
  }
}

/* A permutation of the codes within panels; what is added are zeros. */
TEST(Pack, holds_every_code_once) {
  OCTAVO_NEEDS_PACKING_LEVEL();
  for (const std::string &level : packing_levels()) {
    const Kernels kernels(3, level);
    for (const int64_t k : {1, 6, 65}) {
      Matrix codes(OCTAVO_E4M3FN, 45, k, 2);
      codes.fill(9, 3.0f);
      const Packed packed(kernels, codes);
      std::vector<uint8_t> expected(static_cast<size_t>(packed.codes().rows() * k));
      for (int64_t row = 0; row < 45; ++row) {
        for (int64_t col = 0; col < k; ++col) {
          expected[static_cast<size_t>(row * k + col)] = codes.code(row, col);
        }
      }
      std::vector<uint8_t> found = packed.codes().data();
      std::sort(expected.begin(), expected.end());
      std::sort(found.begin(), found.end());
      EXPECT_EQ(found, expected) << "K " << k;
    }
  }
}

}  // namespace
}  // namespace octavo::test
