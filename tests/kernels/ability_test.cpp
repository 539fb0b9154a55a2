// ability: the answer about a call is what the call does.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/check/granularity.h"
#include "tests/kernels/block_cast.h"

namespace octavo::test {
namespace {

constexpr uint32_t kDtypes[] = {OCTAVO_F32,     OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2,
                                OCTAVO_E8M0FNU, OCTAVO_I32,  OCTAVO_U8,  OCTAVO_E2M1};
constexpr uint32_t kGranularities[] = {
    0, 1, 2, 3, 4, 5, 6, 7, OCTAVO_EXPANDED_128, OCTAVO_BLOCK_1X16, OCTAVO_BLOCK_16X16, 0x8003};
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
    s.dtype = is_mx_granularity(granularity)    ? uint32_t{OCTAVO_E8M0FNU}
              : is_fp4_granularity(granularity) ? uint32_t{OCTAVO_E4M3FN}
                                                : uint32_t{OCTAVO_F32};
    s.granularity = granularity;
    if (granularity == OCTAVO_PER_ROW) s.stride = 1;
    if (is_block_granularity(granularity) || is_fp4_granularity(granularity))
      s.stride = kSide / block_cols(granularity);
    if (is_fp4_granularity(granularity)) s.second = memory_.back().data();
    return s;
  }

  Kernels kernels_;
  std::vector<std::vector<float>> memory_;
};

/* Questions about all dtypes and granularities, without flags and with each bit of them. */
template <typename Ask>
void for_questions(uint32_t call, Ask ask) {
  for (const uint32_t dtype : kDtypes)
    for (const uint32_t granularity : kGranularities)
      for (uint32_t bit = 0; bit <= 32; ++bit) {
        octavo_ability q = {};
        q.size = sizeof(q);
        q.kind = OCTAVO_KIND_ABILITY;
        q.call = call;
        q.dtype = dtype;
        q.granularity = granularity;
        q.flags = bit == 0 ? 0 : uint32_t{1} << (bit - 1);
        ask(q);
      }
}

std::string text(const octavo_ability &q) {
  return "call " + std::to_string(q.call) + ", dtype " + std::to_string(q.dtype) +
         ", granularity " + std::to_string(q.granularity) + ", flags " + std::to_string(q.flags);
}

TEST_F(Ability, of_casts) {
  for (const uint32_t call : {uint32_t{OCTAVO_KIND_QUANTIZE}, uint32_t{OCTAVO_KIND_QUANTIZE_FP4}})
    for_questions(call, [&](const octavo_ability &q) {
      memory_.clear();
      memory_.reserve(3);
      const octavo_tensor in = tensor(OCTAVO_F32);
      octavo_tensor out = tensor(q.dtype);
      const octavo_scale s = scale(q.granularity);
      auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
      c.in = &in;
      c.out = &out;
      c.out_scale_inv = &s;
      c.format_max = 448;
      c.rule = is_mx_granularity(q.granularity)    ? uint32_t{OCTAVO_RULE_MX_UP}
               : is_fp4_granularity(q.granularity) ? OCTAVO_RULE_NVFP4
                                                   : uint32_t{OCTAVO_RULE_QUOTIENT};
      auto fp4 = make_call<octavo_quantize_fp4>(OCTAVO_KIND_QUANTIZE_FP4);
      fp4.quantize = &c;
      (call == OCTAVO_KIND_QUANTIZE ? c.flags : fp4.flags) = q.flags;
      const octavo_status status = call == OCTAVO_KIND_QUANTIZE
                                       ? kernels_.quantize(c)
                                       : draft_call(kernels_.table, kernels_.ctx(), &fp4);
      EXPECT_EQ(accepts(q), status == OCTAVO_OK) << text(q);
    });
}

TEST_F(Ability, of_codes_that_are_looked_at) {
  for (const uint32_t call :
       {uint32_t{OCTAVO_KIND_QUANTIZE_STATS}, uint32_t{OCTAVO_KIND_ROUND_CODES}})
    for_questions(call, [&](const octavo_ability &q) {
      memory_.clear();
      memory_.reserve(3);
      const octavo_tensor in = tensor(OCTAVO_F32), codes = tensor(q.dtype);
      const octavo_scale s = scale(q.granularity);
      auto stats = make_call<octavo_quantize_stats>(OCTAVO_KIND_QUANTIZE_STATS);
      stats.in = &in;
      stats.codes = &codes;
      stats.scale_inv = &s;
      auto round = make_call<octavo_round_codes>(OCTAVO_KIND_ROUND_CODES);
      round.in = &in;
      round.codes = &codes;
      round.scale_inv = &s;
      const octavo_status status = call == OCTAVO_KIND_QUANTIZE_STATS
                                       ? kernels_.table->quantize_stats(kernels_.ctx(), &stats)
                                       : draft_call(kernels_.table, kernels_.ctx(), &round);
      EXPECT_EQ(accepts(q), status == OCTAVO_OK && q.flags == 0) << text(q);
    });
}

TEST_F(Ability, of_sums_and_maxima) {
  for (const uint32_t call : {uint32_t{OCTAVO_KIND_SUM}, uint32_t{OCTAVO_KIND_COMPUTE_AMAX}})
    for_questions(call, [&](const octavo_ability &q) {
      memory_.clear();
      memory_.reserve(3);
      const octavo_tensor in = tensor(q.dtype);
      const octavo_scale s = scale(q.granularity);
      std::vector<float> out(kSide);
      auto sum = make_call<octavo_sum>(OCTAVO_KIND_SUM);
      sum.in = &in;
      sum.in_scale_inv = &s;
      sum.out = out.data();
      auto amax = make_call<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX);
      amax.in = &in;
      amax.in_scale_inv = &s;
      amax.amax = out.data();
      const octavo_status status = call == OCTAVO_KIND_SUM
                                       ? kernels_.table->sum_rows(kernels_.ctx(), &sum)
                                       : kernels_.table->compute_amax(kernels_.ctx(), &amax);
      EXPECT_EQ(accepts(q), status == OCTAVO_OK && q.flags == 0) << text(q);
    });
}

TEST_F(Ability, of_calls_without_scales) {
  octavo_kernels_caps caps = {};
  caps.size = sizeof(caps);
  caps.kind = OCTAVO_KIND_KERNELS_CAPS;
  ASSERT_EQ(kernels_.table->describe(kernels_.ctx(), &caps), OCTAVO_OK);
  ASSERT_EQ(kSide % static_cast<int64_t>(caps.pack_rows), 0);
  for (const uint32_t call : {uint32_t{OCTAVO_KIND_PACK}, uint32_t{OCTAVO_KIND_SUM_QUANTIZED}})
    for_questions(call, [&](const octavo_ability &q) {
      if (q.granularity != OCTAVO_PER_TENSOR) return;
      memory_.clear();
      memory_.reserve(3);
      const octavo_tensor in = tensor(q.dtype);
      octavo_tensor out = tensor(q.dtype);
      auto pack = make_call<octavo_pack>(OCTAVO_KIND_PACK);
      pack.in = &in;
      pack.out = &out;
      auto sum = make_call<octavo_sum_quantized>(OCTAVO_KIND_SUM_QUANTIZED);
      sum.codes = in.data;
      sum.out = out.data;
      sum.count = static_cast<uint64_t>(kSide);
      sum.shards = 1;
      sum.dtype = q.dtype;
      const octavo_status status = call == OCTAVO_KIND_PACK
                                       ? kernels_.table->pack(kernels_.ctx(), &pack)
                                       : draft_call(kernels_.table, kernels_.ctx(), &sum);
      EXPECT_EQ(accepts(q), status == OCTAVO_OK && q.flags == 0) << text(q);
    });
}

TEST_F(Ability, of_histories_and_prologues) {
  for_questions(OCTAVO_KIND_DELAYED_SCALE_UPDATE, [&](const octavo_ability &q) {
    float amax = 1.0f, history = 0.0f, scale_now = 1.0f;
    auto c = make_call<octavo_delayed_scale_update>(OCTAVO_KIND_DELAYED_SCALE_UPDATE);
    c.amax = &amax;
    c.history = &history;
    c.scale = &scale_now;
    c.n = c.length = 1;
    c.format_max = 448;
    c.rule = OCTAVO_RULE_QUOTIENT;
    c.history_flags = q.flags;
    const octavo_status status = kernels_.table->delayed_scale_update(kernels_.ctx(), &c);
    EXPECT_EQ(accepts(q), status == OCTAVO_OK) << text(q);
  });
  for_questions(OCTAVO_KIND_PROLOGUE_CALL, [&](const octavo_ability &q) {
    memory_.clear();
    memory_.reserve(3);
    const octavo_tensor in = tensor(q.dtype);
    octavo_tensor out = tensor(OCTAVO_F32);
    auto p = make_call<octavo_prologue>(OCTAVO_KIND_PROLOGUE);
    p.op = OCTAVO_PROLOGUE_GELU;
    p.in = &in;
    auto c = make_call<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);
    c.prologue = &p;
    c.out = &out;
    const bool fits = q.granularity == OCTAVO_PER_TENSOR && q.flags == 0;
    EXPECT_EQ(accepts(q), kernels_.table->prologue(kernels_.ctx(), &c) == OCTAVO_OK && fits)
        << text(q);
  });
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
  constexpr uint32_t kLayouts[] = {0,
                                   OCTAVO_GEMM_A_KM,
                                   OCTAVO_GEMM_B_KN,
                                   OCTAVO_GEMM_B_PACKED,
                                   OCTAVO_GEMM_B_KN | OCTAVO_GEMM_B_PACKED,
                                   8};
  for (const uint32_t a_dtype : kDtypes)
    for (const uint32_t b_dtype : kDtypes)
      for (uint32_t a_granularity = 0; a_granularity < kMost; ++a_granularity)
        for (uint32_t b_granularity = 0; b_granularity < kMost; ++b_granularity)
          for (const uint32_t layout : kLayouts) {
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
