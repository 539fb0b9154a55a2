/* Products, decoding and refusals of codes of four bits, and the draft call count. */
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "kernels/format/nvfp4.h"
#include "tests/kernels/fp4_case.h"
#include "tests/support/draft_calls.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

/* a [m, k] by b [n, k], which has scales of 16x16. */
struct Product {
  Product(Kernels *kernels, int64_t m, int64_t n, int64_t k, uint32_t d_dtype)
      : a(m, k, false), b(n, k, true), d(d_dtype, m, n, 2), bias(OCTAVO_BF16, 1, n) {
    Matrix left(OCTAVO_F32, m, k), right(OCTAVO_F32, n, k);
    left.fill(1, 5.0f);
    right.fill(2, 0.01f);
    EXPECT_EQ((Fp4Cast{*left.tensor(), &a}.run(kernels)), OCTAVO_OK);
    EXPECT_EQ((Fp4Cast{*right.tensor(), &b}.run(kernels)), OCTAVO_OK);
    d.fill(3);
    bias.fill(4);
    c.a = &a.tensor, c.b = &b.tensor, c.d = d.tensor();
    c.a_scale_inv = &a.scale, c.b_scale_inv = &b.scale;
  }
  Product(const Product &) = delete;
  Product &operator=(const Product &) = delete;

  Fp4Codes a, b;
  Matrix d, bias;
  octavo_gemm c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
};

float value_of(const Fp4Codes &codes, int64_t row, int64_t col) {
  return decode_e2m1(static_cast<uint8_t>(codes.code(row, col)));
}
float scale_of(const Fp4Codes &codes, int64_t row, int64_t col) {
  return decode_e4m3(static_cast<uint8_t>(codes.scale_code(row, col)));
}

/* One element as the header defines it; the exact sum, and that of absolute values. */
struct Sum {
  float plain = 0;
  double exact = 0, absolute = 0;
};
Sum sum_of(const Product &p, int64_t i, int64_t j) {
  Sum s;
  for (int64_t block = 0; block < p.a.cols; block += 16) {
    float part = 0;
    const float scales = scale_of(p.a, i, block) * scale_of(p.b, j, block);
    for (int64_t k = block; k < block + 16; ++k) {
      part += value_of(p.a, i, k) * value_of(p.b, j, k);
      s.absolute += std::fabs(static_cast<double>(value_of(p.a, i, k) * value_of(p.b, j, k))) *
                    static_cast<double>(scales);
    }
    s.plain += part * scales;
    s.exact += static_cast<double>(part) * static_cast<double>(scales);
  }
  s.plain *= p.a.second * p.b.second / 7225344.0f;
  const double factor =
      static_cast<double>(p.a.second) * static_cast<double>(p.b.second) / 7225344.0;
  s.exact *= factor, s.absolute *= factor;
  return s;
}

TEST(Fp4Gemm, is_the_sum_of_the_header_on_every_level_for_any_threads) {
  const struct {
    int64_t m, n, k;
  } shapes[] = {{1, 1, 16}, {7, 33, 48}, {14, 12, 1040}, {13, 64, 0}, {0, 5, 16}};
  for (const std::string &level : supported_levels()) {
    for (const int threads : {1, 3}) {
      Kernels kernels(threads, level);
      for (const auto &shape : shapes) {
        for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16}) {
          for (const int way : {0, 1, 2}) { /* alone, with a bias, added to d */
            Product p(&kernels, shape.m, shape.n, shape.k, dtype);
            const Matrix old = p.d;
            if (way == 1) p.c.bias = p.bias.tensor();
            p.c.accumulate = way == 2;
            ASSERT_EQ(kernels.gemm(p.c), OCTAVO_OK) << kernels.host().last_text();
            for (int64_t i = 0; i < shape.m; ++i) {
              for (int64_t j = 0; j < shape.n; ++j) {
                const Sum s = sum_of(p, i, j);
                float expected = s.plain;
                if (way == 1) expected += p.bias.get(0, j);
                if (way == 2) expected = old.get(i, j) + expected;
                ASSERT_EQ(float_bits(p.d.get(i, j)), float_bits(rounded(dtype, expected)))
                    << level << " [" << i << ", " << j << "] of K " << shape.k;
                /* Parts and their products with scales are exact, so only the additions of blocks
                 * round, and the factor three times. */
                const double limit = (static_cast<double>(shape.k) / 16 + 3) * 0x1p-24 * 1.001;
                ASSERT_LE(std::fabs(static_cast<double>(s.plain) - s.exact), limit * s.absolute);
              }
            }
          }
        }
      }
    }
  }
}

TEST(Fp4Gemm, both_operands_may_be_one) {
  Kernels kernels;
  Product p(&kernels, 16, 16, 32, OCTAVO_F32), same(&kernels, 16, 16, 32, OCTAVO_F32);
  Matrix in(OCTAVO_F32, 16, 32);
  in.fill(9);
  Fp4Codes twin(16, 32, false);
  ASSERT_EQ((Fp4Cast{*in.tensor(), &p.a}.run(&kernels)), OCTAVO_OK);
  ASSERT_EQ((Fp4Cast{*in.tensor(), &twin}.run(&kernels)), OCTAVO_OK);
  p.c.b = &p.a.tensor, p.c.b_scale_inv = &p.a.scale;
  same.c.a = &p.a.tensor, same.c.a_scale_inv = &p.a.scale;
  same.c.b = &twin.tensor, same.c.b_scale_inv = &twin.scale;
  ASSERT_EQ(kernels.gemm(p.c), OCTAVO_OK);
  ASSERT_EQ(kernels.gemm(same.c), OCTAVO_OK);
  expect_equal(p.d, same.d);
}

TEST(Fp4Dequantize, gives_what_codes_stand_for) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(2, level);
    Matrix in(OCTAVO_F32, 20, 600);
    in.fill(6);
    for (const bool square : {false, true}) {
      Fp4Codes codes(20, 600, square);
      ASSERT_EQ((Fp4Cast{*in.tensor(), &codes}.run(&kernels)), OCTAVO_OK);
      octavo_tensor real = codes.tensor;
      real.cols = 599; /* of padded codes, an odd number is read */
      Matrix out(OCTAVO_BF16, 20, 599);
      auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
      c.in = &real, c.scale_inv = &codes.scale, c.out = out.tensor();
      ASSERT_EQ(kernels.table->dequantize(kernels.ctx(), &c), OCTAVO_OK)
          << kernels.host().last_text();
      for (int64_t row = 0; row < 20; ++row)
        for (int64_t col = 0; col < 599; ++col) {
          const float factor = scale_of(codes, row, col) * codes.second * (1.0f / 2688.0f);
          ASSERT_EQ(out.get(row, col), rounded(OCTAVO_BF16, value_of(codes, row, col) * factor));
        }
    }
  }
}

TEST(Fp4Count, counts_and_begins_again) {
  Kernels kernels;
  float count = 0;
  auto c = make_call<octavo_count>(OCTAVO_KIND_COUNT);
  c.count = &count;
  const auto next = [&](float from) {
    count = from;
    EXPECT_EQ(draft_call(kernels.table, kernels.ctx(), &c), OCTAVO_OK);
    return count;
  };
  EXPECT_EQ(next(0), 1);
  EXPECT_EQ(next(41), 42);
  EXPECT_EQ(next(16777214), 16777215);
  EXPECT_EQ(next(16777215), 0);
  float skip = 0;
  c.skip = &skip;
  EXPECT_EQ(next(41), 42);
  skip = 1;
  EXPECT_EQ(next(41), 41) << "a step that hosts skip";
  c.count = nullptr;
  EXPECT_EQ(draft_call(kernels.table, kernels.ctx(), &c), OCTAVO_INVALID);
  EXPECT_THAT(kernels.host().last_text(), HasSubstr("count is null"));
}

/* Each call is right but for one change, and refused with a text that names it. */
struct Calls {
  Calls()
      : in(OCTAVO_F32, 32, 40),
        out(32, 40, false),
        out_t(40, 32, true),
        p(&kernels, 8, 16, 32, OCTAVO_F32) {
    in.fill(1);
    q.in = in.tensor();
    q.out = &out.tensor, q.out_scale_inv = &out.scale;
    q.out_t = &out_t.tensor, q.out_t_scale_inv = &out_t.scale;
    q.rule = OCTAVO_RULE_NVFP4;
    fp4.quantize = &q;
    fp4.flags = OCTAVO_FP4_STOCHASTIC;
  }
  Kernels kernels;
  Matrix in;
  Fp4Codes out, out_t;
  Product p;
  octavo_quantize q = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  octavo_quantize_fp4 fp4 = make_call<octavo_quantize_fp4>(OCTAVO_KIND_QUANTIZE_FP4);
};

struct Wrong {
  std::function<void(Calls *)> change;
  octavo_status status;
  const char *text;
};

TEST(Fp4Refusals, of_casts) {
  const float one = 1;
  const Wrong wrongs[] = {
      {[](Calls *t) { t->q.rule = OCTAVO_RULE_QUOTIENT; }, OCTAVO_UNSUPPORTED,
       "rule = 1 with blocks of 16"},
      {[&](Calls *t) { t->q.scale = &one; }, OCTAVO_INVALID, "scale is not null"},
      {[](Calls *t) { t->q.flags = OCTAVO_QUANTIZE_KEEP_POSITIVE; }, OCTAVO_UNSUPPORTED,
       "flags = 0x1"},
      {[](Calls *t) { t->q.out = nullptr, t->q.out_t = nullptr; }, OCTAVO_INVALID,
       "out and out_t are null"},
      {[](Calls *t) { t->q.out_scale_inv = nullptr; }, OCTAVO_INVALID, "out_scale_inv is null"},
      {[](Calls *t) { t->out.scale.second = nullptr; }, OCTAVO_INVALID, "out_scale_inv.second"},
      {[](Calls *t) { t->out.scale.dtype = OCTAVO_F32; }, OCTAVO_UNSUPPORTED,
       "out_scale_inv.dtype = 0x2002"},
      {[](Calls *t) { t->out.scale.stride = 2; }, OCTAVO_INVALID, "out_scale_inv.stride = 2"},
      {[](Calls *t) { t->out.scale.granularity = OCTAVO_BLOCK_1X32; }, OCTAVO_INVALID,
       "granularity = 4"},
      {[](Calls *t) { t->out.tensor.cols = 40; }, OCTAVO_INVALID,
       "out.cols = 40; expected a multiple of 16"},
      {[](Calls *t) { t->out.tensor.stride = 49; }, OCTAVO_INVALID,
       "out.stride = 49; expected an even"},
      {[](Calls *t) { t->out.tensor.dtype = OCTAVO_E4M3FN; }, OCTAVO_UNSUPPORTED, "expected 0x411"},
      {[](Calls *t) { t->out_t.tensor.rows = 39; }, OCTAVO_INVALID, "out_t has shape [39, 32]"},
      {[](Calls *t) { t->fp4.flags = 4; }, OCTAVO_UNSUPPORTED, "flags = 0x4"},
      {[](Calls *t) { t->fp4.quantize = nullptr; }, OCTAVO_INVALID, "quantize is null"},
      {[](Calls *t) { t->fp4.size = 8; }, OCTAVO_INVALID, "has 8 bytes"}};
  for (const Wrong &wrong : wrongs) {
    Calls t;
    wrong.change(&t);
    EXPECT_EQ(draft_call(t.kernels.table, t.kernels.ctx(), &t.fp4), wrong.status) << wrong.text;
    EXPECT_THAT(t.kernels.host().last_text(), HasSubstr(wrong.text));
  }
  Calls right;
  EXPECT_EQ(draft_call(right.kernels.table, right.kernels.ctx(), &right.fp4), OCTAVO_OK);
}

TEST(Fp4Refusals, of_products) {
  const Wrong wrongs[] = {
      {[](Calls *t) { t->p.c.b_scale_inv = nullptr; }, OCTAVO_INVALID,
       "b_scale_inv.granularity = 0"},
      {[](Calls *t) { t->p.c.layout = OCTAVO_GEMM_B_KN; }, OCTAVO_UNSUPPORTED,
       "layout = 2 turns b of dtype 0x411"},
      {[](Calls *t) { t->p.b.scale.second = nullptr; }, OCTAVO_INVALID, "b_scale_inv.second"},
      {[](Calls *t) { t->p.b.tensor.dtype = OCTAVO_E4M3FN; }, OCTAVO_UNSUPPORTED,
       "b.dtype = 0x80a"},
      {[](Calls *t) { t->p.a.scale.granularity = OCTAVO_BLOCK_1X32; }, OCTAVO_UNSUPPORTED,
       "a.dtype = 0x411"},
      {[](Calls *t) { t->p.a.tensor.cols = t->p.b.tensor.cols = 24; }, OCTAVO_INVALID,
       "a.cols = 24"}};
  for (const Wrong &wrong : wrongs) {
    Calls t;
    wrong.change(&t);
    EXPECT_EQ(t.kernels.gemm(t.p.c), wrong.status) << wrong.text;
    EXPECT_THAT(t.kernels.host().last_text(), HasSubstr(wrong.text));
  }
  Calls right;
  EXPECT_EQ(right.kernels.gemm(right.p.c), OCTAVO_OK);
}

TEST(Fp4Ability, is_what_calls_do) {
  Kernels kernels;
  const auto accepts = [&](uint32_t call, uint32_t dtype, uint32_t a, uint32_t b) {
    auto q = make_call<octavo_ability>(OCTAVO_KIND_ABILITY);
    q.call = call, q.dtype = q.b_dtype = dtype, q.granularity = a, q.b_granularity = b;
    EXPECT_EQ(kernels.table->ability(kernels.ctx(), &q), OCTAVO_OK);
    return q.decision == OCTAVO_ACCEPT_EMULATED;
  };
  for (const uint32_t call : {OCTAVO_KIND_QUANTIZE + 0u, OCTAVO_KIND_GEMM + 0u,
                              OCTAVO_KIND_DEQUANTIZE + 0u, OCTAVO_KIND_QUANTIZE_FP4}) {
    EXPECT_TRUE(accepts(call, OCTAVO_E2M1, OCTAVO_BLOCK_1X16, OCTAVO_BLOCK_16X16)) << call;
    EXPECT_FALSE(accepts(call, OCTAVO_E2M1, OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_1X32)) << call;
    EXPECT_FALSE(accepts(call, OCTAVO_E4M3FN, OCTAVO_BLOCK_1X16, OCTAVO_BLOCK_1X16)) << call;
  }
  EXPECT_FALSE(accepts(OCTAVO_KIND_GEMM, OCTAVO_E2M1, OCTAVO_BLOCK_1X16, OCTAVO_BLOCK_1X32));
  EXPECT_FALSE(accepts(OCTAVO_KIND_QUANTIZE_STATS, OCTAVO_E2M1, OCTAVO_BLOCK_1X16, 0));
  EXPECT_TRUE(accepts(OCTAVO_KIND_COUNT, 0, 0, 0));
}

}  // namespace
}  // namespace octavo::test
