/* kernels/check for another device than the CPU: who is named as the origin of a text, and what the
 * limits of a device change. The texts themselves are tested through the CPU's table.
 */
#include "kernels/check/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/check/verbs.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

/* A host that keeps what it is told, and limits that a test may change. */
class CheckOfADevice : public testing::Test {
 protected:
  CheckOfADevice() {
    host_.size = sizeof(host_);
    host_.kind = OCTAVO_KIND_HOST;
    host_.ctx = this;
    host_.diagnose = [](void *ctx, const octavo_diagnostic *d) {
      auto *self = static_cast<CheckOfADevice *>(ctx);
      self->domains_.emplace_back(d->domain.data, d->domain.size);
      self->texts_.emplace_back(d->text.data, d->text.size);
    };
    gemm_.a = a_.tensor();
    gemm_.b = b_.tensor();
    gemm_.d = d_.tensor();
    pack_.in = a_.tensor();
    prologue_.op = OCTAVO_PROLOGUE_GELU;
    prologue_.in = values_.tensor();
    quantize_.in = &shape_;
    quantize_.out = codes_.tensor();
    quantize_.out_scale_inv = &scale_inv_;
    call_.prologue = &prologue_;
    call_.quantize = &quantize_;
  }

  std::string last_text() const { return texts_.empty() ? std::string() : texts_.back(); }

  octavo_host host_ = {};
  const Caller caller_ = {&host_, "octavo.kernels.other"};
  uint64_t workspace_ = 0; /* what the device below asks for */
  DeviceLimits limits_ = {"other.sm_0",
                          0,
                          false,
                          &workspace_,
                          [](const void *device, const octavo_gemm &, uint64_t *bytes) {
                            *bytes = *static_cast<const uint64_t *>(device);
                            return *bytes != UINT64_MAX;
                          },
                          [](const void *device, const octavo_prologue_call &) {
                            return *static_cast<const uint64_t *>(device);
                          }};
  std::vector<std::string> domains_;
  std::vector<std::string> texts_;

  Matrix a_{OCTAVO_E4M3FN, 10, 16};
  Matrix b_{OCTAVO_E4M3FN, 8, 16};
  Matrix d_{OCTAVO_F32, 10, 8};
  Matrix values_{OCTAVO_F32, 4, 8};
  Matrix codes_{OCTAVO_E4M3FN, 4, 8};
  octavo_tensor shape_ = {nullptr, 4, 8, 8, OCTAVO_F32, 0};
  float value_ = 1.0f;
  octavo_scale scale_inv_ = per_tensor(&value_);
  octavo_prologue prologue_ = make_call<octavo_prologue>(OCTAVO_KIND_PROLOGUE);
  octavo_gemm gemm_ = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
  octavo_pack pack_ = make_call<octavo_pack>(OCTAVO_KIND_PACK);
  octavo_quantize quantize_ = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  octavo_prologue_call call_ = make_call<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);
};

TEST_F(CheckOfADevice, a_diagnostic_names_the_domain_of_its_caller) {
  EXPECT_EQ(check_quantize(caller_, nullptr, limits_), OCTAVO_INVALID);
  EXPECT_EQ(domains_, std::vector<std::string>{"octavo.kernels.other"});
  EXPECT_EQ(texts_, std::vector<std::string>{"quantize: the call struct is null"});
}

TEST_F(CheckOfADevice, only_the_first_failure_of_a_call_is_told) {
  Check check(caller_, "verb");
  check.not_null(nullptr, "first");
  check.not_null(nullptr, "second");
  check.format_max(0.0f);
  EXPECT_EQ(check.status(), OCTAVO_INVALID);
  EXPECT_EQ(texts_, std::vector<std::string>{"verb: first is null; expected an address"});
}

TEST_F(CheckOfADevice, a_device_without_a_panel_order_names_itself) {
  gemm_.layout = OCTAVO_GEMM_B_PACKED;
  EXPECT_EQ(check_gemm(caller_, &gemm_, limits_), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(last_text(), HasSubstr("but other.sm_0 has no panel order"));
  Matrix out(OCTAVO_E4M3FN, 16, 16);
  pack_.out = out.tensor();
  EXPECT_EQ(check_pack(caller_, &pack_, limits_), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(last_text(), HasSubstr("pack: other.sm_0 has no panel order"));
}

TEST_F(CheckOfADevice, packed_codes_have_whole_panels_of_the_device) {
  limits_.pack_rows = 8;
  Matrix whole(OCTAVO_E4M3FN, 16, 16);
  pack_.out = whole.tensor();
  EXPECT_EQ(check_pack(caller_, &pack_, limits_), OCTAVO_OK) << last_text();
  limits_.pack_rows = 32;
  EXPECT_EQ(check_pack(caller_, &pack_, limits_), OCTAVO_INVALID);
  EXPECT_THAT(last_text(),
              HasSubstr("out.rows = 16; expected in.rows rounded up to pack_rows = 32"));
}

TEST_F(CheckOfADevice, gemm_needs_the_workspace_that_the_device_states) {
  EXPECT_EQ(check_gemm(caller_, &gemm_, limits_), OCTAVO_OK) << last_text();
  workspace_ = 4096;
  uint64_t bytes = 0;
  EXPECT_EQ(check_gemm_workspace(caller_, &gemm_, limits_, &bytes), OCTAVO_OK);
  EXPECT_EQ(bytes, 4096u);
  EXPECT_EQ(check_gemm(caller_, &gemm_, limits_), OCTAVO_INVALID);
  EXPECT_THAT(last_text(), HasSubstr("workspace is null; expected 4096 bytes"));
  workspace_ = UINT64_MAX;
  EXPECT_EQ(check_gemm(caller_, &gemm_, limits_), OCTAVO_INVALID);
  EXPECT_THAT(last_text(), HasSubstr("M = 10, N = 8, K = 16 exceeds 2^63 bytes"));
}

TEST_F(CheckOfADevice, prologue_quantize_needs_memory_only_where_the_device_keeps_values_there) {
  EXPECT_EQ(check_prologue_quantize(caller_, &call_, limits_), OCTAVO_OK) << last_text();
  workspace_ = 128;
  uint64_t bytes = 0;
  EXPECT_EQ(check_prologue_workspace(caller_, &call_, limits_, &bytes), OCTAVO_OK);
  EXPECT_EQ(bytes, 128u);
  EXPECT_EQ(check_prologue_quantize(caller_, &call_, limits_), OCTAVO_INVALID);
  EXPECT_THAT(last_text(), HasSubstr("prologue_quantize: workspace is null"));
  /* What quantize refuses is refused here, too, with or without a workspace. */
  workspace_ = 0;
  quantize_.out_scale_inv = nullptr;
  EXPECT_EQ(check_prologue_quantize(caller_, &call_, limits_), OCTAVO_INVALID);
  EXPECT_THAT(last_text(), HasSubstr("quantize: out_scale_inv is null"));
}

TEST_F(CheckOfADevice, workspace_bytes_knows_the_kinds_of_calls) {
  uint64_t bytes = 1;
  EXPECT_EQ(check_workspace_bytes(caller_, &gemm_, limits_, &bytes), OCTAVO_OK);
  EXPECT_EQ(bytes, 0u);
  EXPECT_EQ(check_workspace_bytes(caller_, &host_, limits_, &bytes), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(last_text(), HasSubstr("expected the kind of a call struct"));
}

TEST_F(CheckOfADevice, codes_of_four_bits_are_for_kernels_that_take_them) {
  auto fp4 = make_call<octavo_quantize_fp4>(OCTAVO_KIND_QUANTIZE_FP4);
  auto q = make_call<octavo_ability>(OCTAVO_KIND_ABILITY);
  scale_inv_.granularity = OCTAVO_BLOCK_1X16;
  for (const bool takes : {false, true}) {
    limits_.takes_fp4 = takes;
    uint64_t bytes = 1;
    EXPECT_EQ(check_workspace_bytes(caller_, &fp4, limits_, &bytes),
              takes ? OCTAVO_OK : OCTAVO_UNSUPPORTED);
    for (const uint32_t call : {OCTAVO_KIND_QUANTIZE + 0u, OCTAVO_KIND_GEMM + 0u,
                                OCTAVO_KIND_DEQUANTIZE + 0u, OCTAVO_KIND_QUANTIZE_FP4}) {
      q.call = call;
      q.dtype = q.b_dtype = OCTAVO_E2M1;
      q.granularity = q.b_granularity = OCTAVO_BLOCK_1X16;
      EXPECT_EQ(begin_ability(caller_, limits_, &q), OCTAVO_OK);
      EXPECT_EQ(q.decision, takes ? uint32_t{OCTAVO_ACCEPT} : uint32_t{OCTAVO_DECLINE}) << call;
    }
    quantize_.in = values_.tensor();
    EXPECT_NE(check_quantize(caller_, &quantize_, limits_), OCTAVO_OK);
    EXPECT_THAT(last_text(),
                HasSubstr(takes ? "rule = 0 with blocks of 16" : "granularity = 32769"));
  }
}

/* kernels.h: the head on nulls and sizes, octavo_quantize on RULE_GIVEN, octavo_tensor.reserved. */
TEST_F(CheckOfADevice, fields_without_a_meaning_are_ignored_or_zero) {
  quantize_.in = values_.tensor();
  quantize_.rule = OCTAVO_RULE_GIVEN;
  const auto *odd = reinterpret_cast<const float *>(uintptr_t{1});
  quantize_.counter = odd;
  EXPECT_EQ(check_quantize(caller_, &quantize_, limits_), OCTAVO_OK) << last_text();
  quantize_.rule = OCTAVO_RULE_QUOTIENT;
  quantize_.format_max = 448.0f;
  EXPECT_EQ(check_quantize(caller_, &quantize_, limits_), OCTAVO_INVALID);
  quantize_.counter = nullptr;
  quantize_.in = &shape_;
  EXPECT_EQ(check_prologue_quantize(caller_, &call_, limits_), OCTAVO_OK) << last_text();
  shape_.reserved = 1;
  EXPECT_EQ(check_prologue_quantize(caller_, &call_, limits_), OCTAVO_UNSUPPORTED);

  Matrix none(OCTAVO_E4M3FN, 0, 8), plain(OCTAVO_F32, 0, 8);
  octavo_scale groups = {nullptr, 0, OCTAVO_F32, OCTAVO_FLAT_256, nullptr, 0, 0};
  auto back = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
  back.in = none.tensor();
  back.scale_inv = &groups;
  back.out = plain.tensor();
  EXPECT_EQ(check_dequantize(caller_, &back, limits_), OCTAVO_OK) << last_text();
  back.in = codes_.tensor();
  back.out = values_.tensor();
  EXPECT_EQ(check_dequantize(caller_, &back, limits_), OCTAVO_INVALID);
}

TEST_F(CheckOfADevice, a_struct_that_ends_before_its_last_field_is_refused) {
  auto sum = make_call<octavo_sum>(OCTAVO_KIND_SUM);
  float out[8] = {};
  sum.in = values_.tensor();
  sum.out = out;
  EXPECT_EQ(check_sum_rows(caller_, &sum), OCTAVO_OK) << last_text();
  sum.size = offsetof(octavo_sum, workspace);
  EXPECT_EQ(check_sum_rows(caller_, &sum), OCTAVO_INVALID);
}

}  // namespace
}  // namespace octavo::test
