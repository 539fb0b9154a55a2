/* What pack refuses, and a gemm on packed codes: a text, and nothing written. */
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/packed.h"

namespace octavo::test {
namespace {

using ::testing::HasSubstr;

TEST(PackInvalid, levels_without_a_panel_order_refuse) {
  const Matrix codes = Matrix(OCTAVO_E4M3FN, 32, 8).fill(1);
  for (const std::string &level : supported_levels()) {
    Kernels kernels(0, level);
    if (pack_rows(kernels) > 0) continue;
    Matrix out(OCTAVO_E4M3FN, 32, 8);
    const std::vector<uint8_t> before = out.data();
    const octavo_pack c = pack_call(codes.tensor(), out.tensor());
    EXPECT_EQ(kernels.table->pack(kernels.ctx(), &c), OCTAVO_UNSUPPORTED);
    EXPECT_THAT(kernels.host().last_text(),
                HasSubstr("pack: cpu." + level + " has no panel order"));
    EXPECT_EQ(out.data(), before);
    Matrix d(OCTAVO_F32, 32, 32);
    auto g = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
    g.a = codes.tensor();
    g.b = codes.tensor();
    g.d = d.tensor();
    g.layout = OCTAVO_GEMM_B_PACKED;
    EXPECT_EQ(kernels.gemm(g), OCTAVO_UNSUPPORTED);
    EXPECT_THAT(kernels.host().last_text(), HasSubstr("b is packed, but cpu." + level));
  }
}

TEST(PackInvalid, malformed_calls_are_refused) {
  OCTAVO_NEEDS_PACKING_LEVEL();
  Kernels kernels(0, packing_levels().front());
  const Matrix codes = Matrix(OCTAVO_E4M3FN, 33, 8).fill(1);
  const Matrix plain = Matrix(OCTAVO_BF16, 33, 8).fill(1);
  const auto refuses = [&](const Matrix &in, Matrix out, octavo_status status, const char *text) {
    const std::vector<uint8_t> before = out.data();
    const octavo_pack c = pack_call(in.tensor(), out.tensor());
    EXPECT_EQ(kernels.table->pack(kernels.ctx(), &c), status) << text;
    EXPECT_THAT(kernels.host().last_text(), HasSubstr(text));
    EXPECT_EQ(out.data(), before);
  };
  refuses(codes, Matrix(OCTAVO_E4M3FN, 33, 8), OCTAVO_INVALID, "out.rows = 33; expected");
  refuses(codes, Matrix(OCTAVO_E4M3FN, 64, 9), OCTAVO_INVALID, "out.cols = 9; expected in.cols");
  refuses(codes, Matrix(OCTAVO_E4M3FN, 64, 8, 1), OCTAVO_INVALID, "out.stride = 9; expected");
  refuses(codes, Matrix(OCTAVO_E5M2, 64, 8), OCTAVO_INVALID, "expected in.dtype");
  refuses(plain, Matrix(OCTAVO_BF16, 64, 8), OCTAVO_UNSUPPORTED, "in.dtype");
  EXPECT_EQ(kernels.table->pack(kernels.ctx(), nullptr), OCTAVO_INVALID);
  Matrix out(OCTAVO_E4M3FN, 64, 8);
  octavo_pack c = pack_call(codes.tensor(), out.tensor());
  c.in = nullptr;
  EXPECT_EQ(kernels.table->pack(kernels.ctx(), &c), OCTAVO_INVALID);
  EXPECT_THAT(kernels.host().last_text(), HasSubstr("in is null"));
}

TEST(PackInvalid, malformed_products_are_refused) {
  OCTAVO_NEEDS_PACKING_LEVEL();
  Kernels kernels(0, packing_levels().front());
  const Matrix codes = Matrix(OCTAVO_E4M3FN, 32, 32).fill(1);
  Matrix d = Matrix(OCTAVO_F32, 32, 32).fill(2);
  const std::vector<uint8_t> before = d.data();
  const Packed packed(kernels, codes);
  const auto refuses = [&](auto change, octavo_status status, const char *text) {
    auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
    c.a = codes.tensor();
    c.b = packed.tensor();
    c.d = d.tensor();
    c.layout = OCTAVO_GEMM_B_PACKED;
    change(&c);
    EXPECT_EQ(kernels.gemm(c), status) << text;
    EXPECT_THAT(kernels.host().last_text(), HasSubstr(text));
    EXPECT_EQ(d.data(), before);
  };
  const Matrix f32 = Matrix(OCTAVO_F32, 32, 32).fill(1);
  const Matrix bf16 = Matrix(OCTAVO_BF16, 32, 32).fill(1);
  const Matrix apart = Matrix(OCTAVO_E4M3FN, 32, 32, 1).fill(1);
  refuses([&](octavo_gemm *c) { c->a = f32.tensor(); }, OCTAVO_UNSUPPORTED,
          " with a packed b; expected float8_e4m3fn");
  refuses([&](octavo_gemm *c) { c->b = bf16.tensor(); }, OCTAVO_UNSUPPORTED, "packed b.dtype");
  refuses([&](octavo_gemm *c) { c->b = apart.tensor(); }, OCTAVO_INVALID,
          "stride of the packed b = 33; expected b.cols = 32");
  refuses([](octavo_gemm *c) { c->layout |= OCTAVO_GEMM_B_KN; }, OCTAVO_UNSUPPORTED,
          "turns b of dtype");
  refuses([](octavo_gemm *c) { c->layout |= 8; }, OCTAVO_UNSUPPORTED, "layout = 0xc");
}

}  // namespace
}  // namespace octavo::test
