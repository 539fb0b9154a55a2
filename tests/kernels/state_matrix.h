/* tests/kernels/state_matrix.h: a matrix with its codes in blocks, written and read by the verbs.
 *
 * expect_written_and_read compares both ways with the formulas of state_oracle.h.
 */
#ifndef OCTAVO_TESTS_KERNELS_STATE_MATRIX_H
#define OCTAVO_TESTS_KERNELS_STATE_MATRIX_H

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/state_oracle.h"

namespace octavo::test {

/* A matrix, its codes with their scales, and what is read back. */
struct State {
  Matrix in;
  Matrix codes;
  Matrix back;
  uint32_t granularity;
  std::vector<float> scales;
  float amax = 0.0f;
  float nonfinite = 0.0f;
  octavo_scale scale_inv;

  State(uint32_t g, int64_t rows, int64_t cols, uint32_t plain = OCTAVO_F32)
      : in(plain, rows, cols),
        codes(OCTAVO_E4M3FN, rows, cols),
        back(plain, rows, cols),
        granularity(g),
        scales(static_cast<size_t>(scale_count(g, rows * cols)), -1.0f),
        scale_inv OCTAVO_SCALE(scales.data(), 0, OCTAVO_F32, g) {
    if (scales.empty()) scale_inv.data = &amax; /* an address that is never written */
  }

  octavo_quantize write_call() {
    auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
    c.in = in.tensor();
    c.out = codes.tensor();
    c.out_scale_inv = &scale_inv;
    c.amax = &amax;
    c.nonfinite = &nonfinite;
    c.rule = 99; /* not looked at */
    return c;
  }
  octavo_dequantize read_call() {
    auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
    c.in = codes.tensor();
    c.scale_inv = &scale_inv;
    c.out = back.tensor();
    return c;
  }
  std::vector<float> values() const {
    std::vector<float> all;
    for (int64_t i = 0; i < in.rows() * in.cols(); ++i) {
      all.push_back(in.get(i / in.cols(), i % in.cols()));
    }
    return all;
  }
};

/* Values that span `spread` powers of two, of both signs, with some zeros. */
inline void fill_spread(Matrix *m, unsigned seed, float spread) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> exponent(-spread, 0.0f);
  for (int64_t row = 0; row < m->rows(); ++row) {
    for (int64_t col = 0; col < m->cols(); ++col) {
      const float magnitude = std::exp2(exponent(generator));
      const unsigned kind = generator() % 16;
      m->set(row, col, kind == 0 ? 0.0f : kind % 2 == 0 ? magnitude : -magnitude);
    }
  }
}

inline void expect_written_and_read(State *s) {
  Kernels kernels(2);
  ASSERT_EQ(kernels.quantize(s->write_call()), OCTAVO_OK) << kernels.host().last_text();
  const std::vector<float> values = s->values();
  ASSERT_NO_FATAL_FAILURE(expect_blocks(s->granularity, values, s->codes.data(), s->scales));
  ASSERT_EQ(kernels.dequantize(s->read_call()), OCTAVO_OK) << kernels.host().last_text();
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = block_value(s->granularity, s->codes.data(), s->scales, i);
    const int64_t at = static_cast<int64_t>(i);
    const float found = s->back.get(at / s->back.cols(), at % s->back.cols());
    ASSERT_NEAR(found, expected, std::abs(expected) * 0x1p-23 + 0x1p-149) << i;
  }
}

}  // namespace octavo::test

#endif
