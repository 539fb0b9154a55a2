// ability: the answer about a call is what the call does.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/check/granularity.h"
#include "tests/kernels/block_cast.h"

namespace octavo::test {
namespace {

constexpr uint32_t kDtypes[] = {OCTAVO_F32,  OCTAVO_BF16,    OCTAVO_F16, OCTAVO_E4M3FN,
                                OCTAVO_E5M2, OCTAVO_E8M0FNU, OCTAVO_I32, OCTAVO_U8};
constexpr uint32_t kMost = OCTAVO_BLOCK_32X32 + 2; /* two that do not exist */
constexpr int64_t kSide = 128;

class Ability : public testing::Test {
 protected:
  static octavo_ability question(uint32_t call) {
    octavo_ability q = {};
    q.size = sizeof(q);
    q.kind = OCTAVO_KIND_ABILITY;
    q.call = call;
    return q;
  }
  /* Whether the call is accepted, and says why not. */
  bool accepts(octavo_ability q) {
    EXPECT_EQ(kernels_.table->ability(kernels_.ctx(), &q), OCTAVO_OK);
    EXPECT_NE(q.decision, uint32_t{OCTAVO_ACCEPT}) << "no CPU has FP8 units";
    EXPECT_GT(q.evidence.size, 0u);
    return q.decision == OCTAVO_ACCEPT_EMULATED;
  }
  octavo_tensor tensor(uint32_t dtype) {
    memory_.emplace_back(kSide * kSide); /* 4 bytes an element */
    return {memory_.back().data(), kSide, kSide, kSide, dtype, 0};
  }
  octavo_scale scale(uint32_t granularity) {
    memory_.emplace_back(kSide * kSide, 1.0f);
    octavo_scale s = {};
    s.data = memory_.back().data();
    s.dtype = is_mx_granularity(granularity) ? OCTAVO_E8M0FNU : OCTAVO_F32;
    s.granularity = granularity;
    if (granularity == OCTAVO_PER_ROW) s.stride = 1;
    if (is_block_granularity(granularity)) s.stride = kSide / block_cols(granularity);
    return s;
  }

  Kernels kernels_;
  std::vector<std::vector<float>> memory_;
};

TEST_F(Ability, of_casts) {
  for (const uint32_t dtype : kDtypes)
    for (uint32_t granularity = 0; granularity < kMost; ++granularity) {
      octavo_ability q = question(OCTAVO_KIND_QUANTIZE);
      q.dtype = dtype;
      q.granularity = granularity;
      const octavo_tensor in = tensor(OCTAVO_F32);
      octavo_tensor out = tensor(dtype);
      const octavo_scale s = scale(granularity);
      auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
      c.in = &in;
      c.out = &out;
      c.out_scale_inv = &s;
      c.format_max = 448;
      c.rule = is_mx_granularity(granularity) ? OCTAVO_RULE_MX_UP : OCTAVO_RULE_QUOTIENT;
      EXPECT_EQ(accepts(q), kernels_.quantize(c) == OCTAVO_OK)
          << "dtype " << dtype << ", granularity " << granularity;
    }
}

TEST_F(Ability, of_decoding) {
  for (const uint32_t dtype : kDtypes)
    for (uint32_t granularity = 0; granularity < kMost; ++granularity) {
      octavo_ability q = question(OCTAVO_KIND_DEQUANTIZE);
      q.dtype = dtype;
      q.granularity = granularity;
      const octavo_tensor in = tensor(dtype);
      octavo_tensor out = tensor(OCTAVO_F32);
      const octavo_scale s = scale(granularity);
      auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
      c.in = &in;
      c.scale_inv = &s;
      c.out = &out;
      const octavo_status status = kernels_.table->dequantize(kernels_.ctx(), &c);
      EXPECT_EQ(accepts(q), status == OCTAVO_OK)
          << "dtype " << dtype << ", granularity " << granularity;
    }
}

TEST_F(Ability, of_products) {
  for (const uint32_t a_dtype : kDtypes)
    for (const uint32_t b_dtype : kDtypes)
      for (uint32_t a_granularity = 0; a_granularity < kMost; ++a_granularity)
        for (uint32_t b_granularity = 0; b_granularity < kMost; ++b_granularity)
          for (const uint32_t layout : {0, OCTAVO_GEMM_A_KM + 0, OCTAVO_GEMM_B_KN + 0}) {
            octavo_ability q = question(OCTAVO_KIND_GEMM);
            q.flags = layout;
            q.dtype = a_dtype;
            q.granularity = a_granularity;
            q.b_dtype = b_dtype;
            q.b_granularity = b_granularity;
            memory_.clear();
            memory_.reserve(8);
            const octavo_tensor a = tensor(a_dtype), b = tensor(b_dtype);
            octavo_tensor d = tensor(OCTAVO_F32);
            const octavo_scale a_scale = scale(a_granularity), b_scale = scale(b_granularity);
            const auto is_plain = [](uint32_t dtype, uint32_t granularity) {
              return dtype_bytes(dtype) > 1 && granularity == OCTAVO_PER_TENSOR;
            };
            auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
            c.a = &a;
            c.b = &b;
            c.d = &d;
            c.a_scale_inv = is_plain(a_dtype, a_granularity) ? nullptr : &a_scale;
            c.b_scale_inv = is_plain(b_dtype, b_granularity) ? nullptr : &b_scale;
            c.layout = layout;
            EXPECT_EQ(accepts(q), kernels_.gemm(c) == OCTAVO_OK)
                << a_dtype << " " << a_granularity << " by " << b_dtype << " " << b_granularity
                << ", layout " << layout;
          }
}

TEST_F(Ability, of_what_does_not_exist) {
  EXPECT_FALSE(accepts(question(0)));
  EXPECT_FALSE(accepts(question(OCTAVO_KIND_PLUGIN)));
  EXPECT_FALSE(accepts(question(9999)));
  EXPECT_TRUE(accepts(question(OCTAVO_KIND_COPY)));
  octavo_ability q = question(OCTAVO_KIND_GEMM);
  q.size = OCTAVO_SIZE_THROUGH(octavo_ability, b_granularity);
  EXPECT_EQ(kernels_.table->ability(kernels_.ctx(), &q), OCTAVO_INVALID);
  EXPECT_EQ(kernels_.table->ability(kernels_.ctx(), nullptr), OCTAVO_INVALID);
}

}  // namespace
}  // namespace octavo::test
