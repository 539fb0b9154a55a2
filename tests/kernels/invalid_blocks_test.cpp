/* Malformed calls with block granularities and layouts: status, text, and nothing written.
 *
 * Each case changes one thing of a call that succeeds.
 */
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/kernels/block_matrices.h"
#include "tests/kernels/fake_host.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

/* Calls that succeed, with everything they point to. */
struct Calls {
  Matrix in{OCTAVO_F32, 40, 200};
  Matrix out{OCTAVO_E4M3FN, 40, 200};
  Matrix out_t{OCTAVO_E4M3FN, 200, 40};
  Matrix half{OCTAVO_F16, 40, 200};
  Matrix wide{OCTAVO_E5M2, 200, 40};
  Matrix narrow{OCTAVO_E4M3FN, 40, 199};
  Scales scales{OCTAVO_BLOCK_1X128, 40, 200, 1};
  Scales scales_t{OCTAVO_BLOCK_1X128, 200, 40, 1};
  Scales mx{OCTAVO_BLOCK_1X32, 40, 200};
  Matrix a{OCTAVO_E4M3FN, 40, 200};
  Matrix b{OCTAVO_E4M3FN, 30, 200};
  Matrix d{OCTAVO_F32, 40, 30};
  Matrix dequantized{OCTAVO_F32, 40, 200};
  Scales a_scales{OCTAVO_BLOCK_1X128, 40, 200};
  Scales b_scales{OCTAVO_BLOCK_128X128, 30, 200};
  Scales b_mx{OCTAVO_BLOCK_32X32, 30, 200};
  float value = 1.0f;
  float amax = 0.25f;
  octavo_scale one = per_tensor(&value);
  octavo_quantize quantize = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  octavo_dequantize dequantize = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
  octavo_gemm gemm = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);

  Calls() {
    in.fill(1);
    a.fill(2);
    b.fill(3);
    a_scales.fill(4);
    b_scales.fill(5);
    b_mx.fill(6);
    quantize.in = in.tensor();
    quantize.out = out.tensor();
    quantize.out_t = out_t.tensor();
    quantize.out_scale_inv = scales.get();
    quantize.out_t_scale_inv = scales_t.get();
    quantize.rule = OCTAVO_RULE_POW2;
    quantize.format_max = kMaxE4m3;
    quantize.amax = &amax;
    dequantize.in = a.tensor();
    dequantize.scale_inv = a_scales.get();
    dequantize.out = dequantized.tensor();
    gemm.a = a.tensor();
    gemm.b = b.tensor();
    gemm.d = d.tensor();
    gemm.a_scale_inv = a_scales.get();
    gemm.b_scale_inv = b_scales.get();
  }
  Calls(const Calls &) = delete;
  Calls &operator=(const Calls &) = delete;

  void expect_untouched() const {
    for (const std::vector<uint8_t> *data :
         {&out.data(), &out_t.data(), &scales.data(), &scales_t.data(), &mx.data(), &d.data(),
          &dequantized.data(), &half.data(), &wide.data()}) {
      EXPECT_EQ(*data, std::vector<uint8_t>(data->size(), Matrix::kFiller));
    }
    EXPECT_EQ(amax, 0.25f);
  }
};

enum class Verb { kQuantize, kDequantize, kGemm };

octavo_status run(Kernels *kernels, Verb verb, const Calls &calls) {
  if (verb == Verb::kQuantize) return kernels->quantize(calls.quantize);
  if (verb == Verb::kDequantize) return kernels->dequantize(calls.dequantize);
  return kernels->gemm(calls.gemm);
}

struct BadCall {
  const char *name;
  Verb verb;
  std::function<void(Calls *)> change;
  octavo_status expected;
  std::vector<std::string> parts;
};

std::vector<BadCall> bad_calls() {
  constexpr Verb kQ = Verb::kQuantize;
  constexpr Verb kD = Verb::kDequantize;
  constexpr Verb kG = Verb::kGemm;
  constexpr octavo_status kInvalid = OCTAVO_INVALID;
  constexpr octavo_status kUnsupported = OCTAVO_UNSUPPORTED;
  return {
      {"the scale is given",
       kQ,
       [](Calls *t) { t->quantize.scale = &t->value; },
       kInvalid,
       {"quantize: scale is not null", "block granularity"}},
      {"a counter",
       kQ,
       [](Calls *t) { t->quantize.counter = &t->value; },
       kInvalid,
       {"counter is not null"}},
      {"no rule",
       kQ,
       [](Calls *t) { t->quantize.rule = OCTAVO_RULE_GIVEN; },
       kUnsupported,
       {"rule = 0", "out_scale_inv.granularity = 2", "1 (quotient)"}},
      {"a rule of tensors",
       kQ,
       [](Calls *t) { t->quantize.rule = OCTAVO_RULE_MSAMP; },
       kUnsupported,
       {"rule = 4", "8 (deepgemm pow2)"}},
      {"a rule of MX",
       kQ,
       [](Calls *t) { t->quantize.rule = OCTAVO_RULE_MX_UP; },
       kUnsupported,
       {"rule = 5"}},
      {"a rule of f32 scales beside MX",
       kQ,
       [](Calls *t) { t->quantize.out_scale_inv = t->mx.get(); },
       kUnsupported,
       {"rule = 2", "granularity = 4", "5 (mx up)"}},
      {"no scales of out_t",
       kQ,
       [](Calls *t) { t->quantize.out_t_scale_inv = nullptr; },
       kInvalid,
       {"out_t_scale_inv is null, but out_t is given"}},
      {"no scales of out",
       kQ,
       [](Calls *t) { t->quantize.out_scale_inv = nullptr; },
       kInvalid,
       {"out_scale_inv is null, but out is given"}},
      {"one scale for out_t",
       kQ,
       [](Calls *t) { t->quantize.out_t_scale_inv = &t->one; },
       kInvalid,
       {"out_t_scale_inv.granularity = 0", "(2, 3, 4 or 6)"}},
      {"scales of another dtype",
       kQ,
       [](Calls *t) { t->scales.get()->dtype = OCTAVO_E8M0FNU; },
       kUnsupported,
       {"out_scale_inv.dtype = 0x80e", "(f32)"}},
      {"f32 scales of MX",
       kQ,
       [](Calls *t) {
         t->quantize.rule = OCTAVO_RULE_MX_UP;
         t->quantize.out_scale_inv = t->mx.get();
         t->mx.get()->dtype = OCTAVO_F32;
       },
       kUnsupported,
       {"out_scale_inv.dtype = 0x2002", "(float8_e8m0fnu)"}},
      {"a short row of scales",
       kQ,
       [](Calls *t) { t->scales.get()->stride = 1; },
       kInvalid,
       {"out_scale_inv.stride = 1", "at least 2", "200 elements in blocks of 128"}},
      {"a stride beyond memory",
       kQ,
       [](Calls *t) { t->scales.get()->stride = INT64_MAX / 8; },
       kInvalid,
       {"out_scale_inv has 40 rows", "more than memory can hold"}},
      {"no address of scales",
       kQ,
       [](Calls *t) { t->scales_t.get()->data = nullptr; },
       kInvalid,
       {"out_t_scale_inv.data", "[200, 1]"}},
      {"misaligned scales",
       kQ,
       [](Calls *t) { t->scales.get()->data = t->scales.entry(0, 0) + 1; },
       kInvalid,
       {"out_scale_inv.data", "aligned"}},
      {"codes of 16 bits",
       kQ,
       [](Calls *t) { t->quantize.out = t->half.tensor(); },
       kUnsupported,
       {"out.dtype = 0x1002", "float8_e5m2"}},
      {"two dtypes of codes",
       kQ,
       [](Calls *t) { t->quantize.out_t = t->wide.tensor(); },
       kInvalid,
       {"out_t.dtype = 0x80c", "expected 0x80a, as out"}},
      {"a narrow out",
       kQ,
       [](Calls *t) { t->quantize.out = t->narrow.tensor(); },
       kInvalid,
       {"out has shape [40, 199]", "at least [40, 200]"}},
      {"nowhere to write",
       kQ,
       [](Calls *t) { t->quantize.out = t->quantize.out_t = nullptr; },
       kInvalid,
       {"out and out_t are null"}},
      {"deepgemm with E5M2",
       kQ,
       [](Calls *t) {
         t->quantize.rule = OCTAVO_RULE_DEEPGEMM;
         t->quantize.out = nullptr;
         t->quantize.out_t = t->wide.tensor();
       },
       kUnsupported,
       {"rule = 7", "(float8_e4m3fn)"}},
      {"no format_max",
       kQ,
       [](Calls *t) { t->quantize.format_max = 0; },
       kInvalid,
       {"format_max = 0"}},
      {"a format_max with a margin, which no rule of blocks has",
       kQ,
       [](Calls *t) { t->quantize.format_max = 0.5f; },
       kInvalid,
       {"format_max = 0.5; expected 1 to 65504"}},
      {"a negative eps", kQ, [](Calls *t) { t->quantize.eps = -1.0f; }, kInvalid, {"eps = -1"}},
      {"an infinite eps",
       kQ,
       [](Calls *t) { t->quantize.eps = INFINITY; },
       kInvalid,
       {"eps = inf"}},
      {"an eps that is NaN", kQ, [](Calls *t) { t->quantize.eps = NAN; }, kInvalid, {"eps = nan"}},
      {"an unknown granularity",
       kQ,
       [](Calls *t) {
         t->one.granularity = 99;
         t->quantize.out_scale_inv = t->quantize.out_t_scale_inv = &t->one;
       },
       kUnsupported,
       {"out_scale_inv.granularity = 99", "or a block granularity"}},
      {"one scale per row beside blocks",
       kQ,
       [](Calls *t) {
         t->one.granularity = OCTAVO_PER_ROW;
         t->one.stride = 1;
         t->quantize.out_t_scale_inv = &t->one;
       },
       kInvalid,
       {"out_scale_inv.granularity = ", "expected 1 (per row), as the other output has"}},
      {"unknown flags", kQ, [](Calls *t) { t->quantize.flags = 2; }, kUnsupported, {"flags = 0x2"}},

      {"plain values with blocks",
       kD,
       [](Calls *t) { t->dequantize.in = t->in.tensor(); },
       kUnsupported,
       {"dequantize: in.dtype = 0x2002", "float8_e4m3fn"}},
      {"a short row of scales",
       kD,
       [](Calls *t) { t->a_scales.get()->stride = 0; },
       kInvalid,
       {"scale_inv.stride = 0", "at least 2"}},
      {"scales of another dtype",
       kD,
       [](Calls *t) { t->a_scales.get()->dtype = OCTAVO_BF16; },
       kUnsupported,
       {"scale_inv.dtype = 0x1004"}},
      {"an unknown granularity",
       kD,
       [](Calls *t) { t->a_scales.get()->granularity = 99; },
       kUnsupported,
       {"scale_inv.granularity = 99"}},

      {"blocks on one operand",
       kG,
       [](Calls *t) { t->gemm.b_scale_inv = nullptr; },
       kInvalid,
       {"gemm: b_scale_inv is null with a_scale_inv.granularity = 2"}},
      {"blocks on the other operand",
       kG,
       [](Calls *t) { t->gemm.a_scale_inv = nullptr; },
       kInvalid,
       {"a_scale_inv is null with b_scale_inv.granularity = 3"}},
      {"blocks beside one scale",
       kG,
       [](Calls *t) { t->gemm.a_scale_inv = &t->one; },
       kUnsupported,
       {"a_scale_inv.granularity = 0, b_scale_inv.granularity = 3"}},
      {"blocks of two lengths",
       kG,
       [](Calls *t) { t->gemm.b_scale_inv = t->b_mx.get(); },
       kUnsupported,
       {"b_scale_inv.granularity = 6", "two of 4 (1x32) and 6 (32x32)"}},
      {"one scale for 256 elements",
       kG,
       [](Calls *t) {
         t->gemm.a_scale_inv = t->gemm.b_scale_inv = &t->one;
         t->one.granularity = OCTAVO_FLAT_256;
       },
       kUnsupported,
       {"a_scale_inv.granularity = 5"}},
      {"scaled f16 with blocks",
       kG,
       [](Calls *t) { t->gemm.a = t->half.tensor(); },
       kUnsupported,
       {"a.dtype = 0x1002", "float8_e5m2"}},
      {"a short row of scales",
       kG,
       [](Calls *t) { t->b_scales.get()->stride = 1; },
       kInvalid,
       {"b_scale_inv.stride = 1"}},
      {"no scales",
       kG,
       [](Calls *t) { t->a_scales.get()->data = nullptr; },
       kInvalid,
       {"a_scale_inv.data"}},
      {"codes of another layout",
       kG,
       [](Calls *t) {
         t->gemm.a = t->out_t.tensor();
         t->gemm.layout = OCTAVO_GEMM_A_KM;
       },
       kUnsupported,
       {"layout = 1 turns a of dtype 0x80a", "K contiguous only"}},
      {"f16 of another layout with a scale for each row",
       kG,
       [](Calls *t) {
         t->gemm.a_scale_inv = nullptr;
         t->gemm.b = t->half.tensor();
         t->one.granularity = OCTAVO_PER_ROW;
         t->gemm.b_scale_inv = &t->one;
         t->gemm.layout = OCTAVO_GEMM_B_KN;
       },
       kUnsupported,
       {"layout = 2 turns b of dtype 0x1002 with scales of rows or blocks"}},
      {"an unknown layout",
       kG,
       [](Calls *t) { t->gemm.layout = 8; },
       kUnsupported,
       {"layout = 0x8", "0x7"}},
      {"plain operands of different K",
       kG,
       [](Calls *t) {
         t->gemm.a = t->in.tensor();
         t->gemm.a_scale_inv = t->gemm.b_scale_inv = nullptr;
         t->gemm.layout = OCTAVO_GEMM_A_KM;
       },
       kInvalid,
       {"b.cols = 200; expected a.rows = 40"}},
  };
}

TEST(InvalidBlocks, the_calls_that_the_cases_change_succeed) {
  Kernels kernels(0);
  Calls calls;
  for (const Verb verb : {Verb::kQuantize, Verb::kDequantize, Verb::kGemm}) {
    EXPECT_EQ(run(&kernels, verb, calls), OCTAVO_OK) << kernels.host().last_text();
  }
  EXPECT_TRUE(kernels.host().texts().empty());
}

TEST(InvalidBlocks, one_diagnostic_and_nothing_written) {
  for (const BadCall &bad : bad_calls()) {
    Kernels kernels(0);
    Calls calls;
    bad.change(&calls);
    EXPECT_EQ(run(&kernels, bad.verb, calls), bad.expected) << bad.name;
    ASSERT_EQ(kernels.host().texts().size(), 1u) << bad.name;
    EXPECT_EQ(kernels.host().codes().back(), bad.expected) << bad.name;
    for (const std::string &part : bad.parts) {
      EXPECT_THAT(kernels.host().last_text(), HasSubstr(part)) << bad.name;
    }
    calls.expect_untouched();
    if (HasFailure()) break;
  }
}

TEST(InvalidBlocks, no_rows_are_legal) {
  Kernels kernels(0);
  octavo_tensor none = {nullptr, 0, 200, 200, OCTAVO_BF16, 0};
  octavo_tensor codes = {nullptr, 0, 200, 200, OCTAVO_E4M3FN, 0};
  octavo_tensor codes_t = {nullptr, 200, 0, 0, OCTAVO_E4M3FN, 0};
  const octavo_scale scales = OCTAVO_SCALE(nullptr, 2, OCTAVO_F32, OCTAVO_BLOCK_1X128);
  const octavo_scale scales_t = OCTAVO_SCALE(nullptr, 0, OCTAVO_F32, OCTAVO_BLOCK_1X128);
  auto q = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  q.in = &none;
  q.out = &codes;
  q.out_t = &codes_t;
  q.out_scale_inv = &scales;
  q.out_t_scale_inv = &scales_t;
  q.rule = OCTAVO_RULE_POW2;
  q.format_max = kMaxE4m3;
  EXPECT_EQ(kernels.quantize(q), OCTAVO_OK) << kernels.host().last_text();
  Calls calls;
  octavo_tensor d = {nullptr, 0, 30, 30, OCTAVO_F32, 0};
  calls.gemm.a = &codes;
  calls.gemm.a_scale_inv = &scales;
  calls.gemm.d = &d;
  EXPECT_EQ(kernels.gemm(calls.gemm), OCTAVO_OK) << kernels.host().last_text();
}

}  // namespace
}  // namespace octavo::test
