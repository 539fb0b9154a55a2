/* Malformed calls: the status, and that the text names the field, what was found and expected.
 *
 * Nothing may be written by a refused call; each case checks its own output.
 */
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "octavo/draft/optimizer.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/support/draft_calls.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

class InvalidInput : public testing::Test {
 protected:
  InvalidInput() {
    quantize_.in = in_.tensor();
    quantize_.out = out_.tensor();
    quantize_.out_scale_inv = &scale_;
    quantize_.scale = &value_;
    gemm_.a = in_.tensor();
    gemm_.b = b_.tensor();
    gemm_.d = d_.tensor();
    gemm_.workspace = workspace_.data();
  }

  /* Exactly one diagnostic, with this status and all of these parts. */
  void expect_refused(octavo_status found, octavo_status expected,
                      const std::vector<std::string> &parts) {
    EXPECT_EQ(found, expected);
    ASSERT_EQ(kernels_.host().texts().size(), before_ + 1);
    EXPECT_EQ(kernels_.host().codes().back(), expected);
    for (const std::string &part : parts) {
      EXPECT_THAT(kernels_.host().last_text(), HasSubstr(part));
    }
    before_ = kernels_.host().texts().size();
    EXPECT_EQ(out_.data(), std::vector<uint8_t>(out_.data().size(), Matrix::kFiller));
    EXPECT_EQ(d_.data(), std::vector<uint8_t>(d_.data().size(), Matrix::kFiller));
  }

  Kernels kernels_{0};
  Matrix in_{OCTAVO_F32, 4, 8};
  Matrix out_{OCTAVO_E4M3FN, 4, 8};
  Matrix b_{OCTAVO_F32, 3, 8};
  Matrix d_{OCTAVO_F32, 4, 3};
  float value_ = 1.0f;
  octavo_scale scale_ = per_tensor(&value_);
  std::vector<float> workspace_ = std::vector<float>(1024);
  octavo_quantize quantize_ = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  octavo_gemm gemm_ = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
  size_t before_ = 0;
};

TEST_F(InvalidInput, quantize_shapes_and_pointers) {
  octavo_tensor bad = *in_.tensor();
  quantize_.in = &bad;
  bad.rows = -1;
  expect_refused(kernels_.quantize(quantize_), OCTAVO_INVALID, {"quantize: in", "[-1, 8]"});
  bad.rows = 5;
  expect_refused(kernels_.quantize(quantize_), OCTAVO_INVALID, {"out.rows = 4", "in.rows = 5"});
  bad.rows = 4;
  bad.stride = 7;
  expect_refused(kernels_.quantize(quantize_), OCTAVO_INVALID, {"in.stride = 7", "in.cols = 8"});
  bad.stride = INT64_MAX / 2;
  expect_refused(kernels_.quantize(quantize_), OCTAVO_INVALID, {"more than memory can hold"});
  bad.stride = 8;
  bad.data = nullptr;
  expect_refused(kernels_.quantize(quantize_), OCTAVO_INVALID, {"in.data is null", "[4, 8]"});
  bad.data = in_.at(0, 0) + 1;
  expect_refused(kernels_.quantize(quantize_), OCTAVO_INVALID, {"in.data", "not aligned"});
  quantize_.in = nullptr;
  expect_refused(kernels_.quantize(quantize_), OCTAVO_INVALID, {"in is null"});
  quantize_.in = in_.tensor();
  quantize_.scale = nullptr;
  quantize_.counter = &value_;
  quantize_.rule = OCTAVO_RULE_MSAMP;
  quantize_.format_max = 448;
  expect_refused(kernels_.quantize(quantize_), OCTAVO_INVALID, {"scale is null"});
  quantize_.scale = &value_;
  quantize_.counter = nullptr;
  quantize_.rule = OCTAVO_RULE_GIVEN;
  quantize_.out_scale_inv = nullptr;
  expect_refused(kernels_.quantize(quantize_), OCTAVO_INVALID, {"out_scale_inv is null"});
  quantize_.out_scale_inv = &scale_;
  quantize_.size = 16;
  expect_refused(kernels_.quantize(quantize_), OCTAVO_INVALID,
                 {"has 16 bytes", std::to_string(sizeof(octavo_quantize))});
}

TEST_F(InvalidInput, quantize_values_that_are_not_implemented) {
  octavo_scale rows = scale_;
  rows.granularity = 99;
  quantize_.out_scale_inv = &rows;
  expect_refused(kernels_.quantize(quantize_), OCTAVO_UNSUPPORTED,
                 {"out_scale_inv.granularity = 99", "expected 0"});
  rows = scale_;
  rows.dtype = OCTAVO_E8M0FNU;
  expect_refused(kernels_.quantize(quantize_), OCTAVO_UNSUPPORTED, {"out_scale_inv.dtype = 0x80e"});
  quantize_.out_scale_inv = &scale_;
  quantize_.rule = 99;
  quantize_.format_max = 448;
  expect_refused(kernels_.quantize(quantize_), OCTAVO_UNSUPPORTED,
                 {"rule = 99", "3 (reciprocal), 4 (msamp) or 32768 (msamp04)"});
  quantize_.rule = OCTAVO_RULE_QUOTIENT;
  for (const float m : {0.0f, -448.0f, 0x1p-127f, 65536.0f, INFINITY, NAN}) {
    quantize_.format_max = m;
    expect_refused(
        kernels_.quantize(quantize_), OCTAVO_INVALID,
        {"format_max = ", "expected 1.17549e-38 to 65504", "448, 57344 or 65504", "2^margin"});
  }
  quantize_.rule = OCTAVO_RULE_GIVEN;
  octavo_tensor bad = *in_.tensor();
  bad.dtype = OCTAVO_I32;
  quantize_.in = &bad;
  expect_refused(kernels_.quantize(quantize_), OCTAVO_UNSUPPORTED, {"in.dtype = 0x2000", "f32"});
  quantize_.in = in_.tensor();
  octavo_tensor plain = *out_.tensor();
  plain.dtype = OCTAVO_BF16;
  quantize_.out = &plain;
  expect_refused(kernels_.quantize(quantize_), OCTAVO_UNSUPPORTED, {"out.dtype", "float8_e4m3fn"});
}

TEST_F(InvalidInput, gemm) {
  octavo_tensor bad = *b_.tensor();
  bad.cols = 7;
  gemm_.b = &bad;
  expect_refused(kernels_.table->gemm(kernels_.ctx(), &gemm_), OCTAVO_INVALID,
                 {"gemm: b.cols = 7; expected a.cols = 8"});
  gemm_.b = b_.tensor();
  octavo_tensor wide = *d_.tensor();
  wide.cols = 2;
  gemm_.d = &wide;
  expect_refused(kernels_.table->gemm(kernels_.ctx(), &gemm_), OCTAVO_INVALID,
                 {"d.cols = 2; expected b.rows = 3"});
  gemm_.d = d_.tensor();
  gemm_.bias = b_.tensor();
  expect_refused(kernels_.table->gemm(kernels_.ctx(), &gemm_), OCTAVO_INVALID, {"bias.rows = 3"});
  gemm_.bias = nullptr;
  octavo_scale rows = scale_;
  rows.granularity = OCTAVO_FLAT_256;
  gemm_.b_scale_inv = &rows;
  expect_refused(kernels_.table->gemm(kernels_.ctx(), &gemm_), OCTAVO_UNSUPPORTED,
                 {"b_scale_inv.granularity = 5", "1 (one per row)"});
  gemm_.b_scale_inv = nullptr;
  gemm_.workspace = nullptr;
  uint64_t bytes = 0;
  ASSERT_EQ(kernels_.table->workspace_bytes(kernels_.ctx(), &gemm_, &bytes), OCTAVO_OK);
  expect_refused(kernels_.table->gemm(kernels_.ctx(), &gemm_), OCTAVO_INVALID,
                 {"workspace is null", std::to_string(bytes)});
  expect_refused(kernels_.table->gemm(kernels_.ctx(), nullptr), OCTAVO_INVALID,
                 {"call struct is null"});
}

TEST_F(InvalidInput, workspace_bytes) {
  uint64_t bytes = 0;
  auto other = make_call<octavo_copy>(OCTAVO_KIND_SLOT);
  expect_refused(kernels_.table->workspace_bytes(kernels_.ctx(), &other, &bytes),
                 OCTAVO_UNSUPPORTED, {"workspace_bytes: kind = 7"});
  expect_refused(kernels_.table->workspace_bytes(kernels_.ctx(), nullptr, &bytes), OCTAVO_INVALID,
                 {"call is null"});
  expect_refused(kernels_.table->workspace_bytes(kernels_.ctx(), &other, nullptr), OCTAVO_INVALID,
                 {"bytes is null"});
}

TEST_F(InvalidInput, scales) {
  auto c = make_call<octavo_delayed_scale_update>(OCTAVO_KIND_DELAYED_SCALE_UPDATE);
  c.amax = c.history = c.scale = &value_;
  c.n = 1;
  c.format_max = 448;
  c.rule = OCTAVO_RULE_QUOTIENT;
  const auto update = [&] { return kernels_.table->delayed_scale_update(kernels_.ctx(), &c); };
  expect_refused(update(), OCTAVO_INVALID, {"length = 0; expected at least 1"});
  c.length = 1;
  c.rule = OCTAVO_RULE_GIVEN;
  expect_refused(update(), OCTAVO_UNSUPPORTED, {"delayed_scale_update: rule = 0"});
  c.rule = OCTAVO_RULE_POW2;
  c.history_flags = 16;
  expect_refused(update(), OCTAVO_UNSUPPORTED, {"history_flags = 0x10; expected bits of 0xf"});
  c.history_flags = 0;
  for (const int32_t margin : {-1, 31, 200, INT32_MIN, INT32_MAX}) {
    c.margin = margin;
    expect_refused(update(), OCTAVO_INVALID,
                   {"margin = " + std::to_string(margin) + "; expected 0 to 30"});
  }
  c.margin = 30;
  c.n = UINT64_MAX;
  expect_refused(update(), OCTAVO_INVALID, {"n = 18446744073709551615; expected at most 2^40"});
  c.n = 1;
  c.history = nullptr;
  expect_refused(update(), OCTAVO_INVALID, {"history is null"});

  auto from = make_call<octavo_scale_from_amax>(OCTAVO_KIND_SCALE_FROM_AMAX);
  from.amax = &value_;
  from.n = 1;
  from.format_max = 448;
  from.rule = OCTAVO_RULE_QUOTIENT;
  expect_refused(kernels_.table->scale_from_amax(kernels_.ctx(), &from), OCTAVO_INVALID,
                 {"divide_by = 0", "1 for none"});
  from.divide_by = 1;
  from.n = (uint64_t{1} << 40) + 1;
  expect_refused(kernels_.table->scale_from_amax(kernels_.ctx(), &from), OCTAVO_INVALID,
                 {"n = 1099511627777; expected at most 2^40"});
  auto amax = make_call<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX);
  amax.in = in_.tensor();
  expect_refused(kernels_.table->compute_amax(kernels_.ctx(), &amax), OCTAVO_INVALID,
                 {"compute_amax: amax is null"});
}

/* A later minor may give them a meaning, which these kernels would not know. */
TEST_F(InvalidInput, fields_and_values_without_a_meaning) {
  const auto expect_reserved = [&](uint32_t *field, const char *text, auto &&call) {
    *field = 2;
    expect_refused(call(), OCTAVO_UNSUPPORTED, {text});
    *field = 0;
  };
  const octavo_kernels &table = *kernels_.table;
  const auto quantize = [&] { return kernels_.quantize(quantize_); };
  octavo_tensor in = *in_.tensor();
  quantize_.in = &in;
  expect_reserved(&in.reserved, "in.reserved = 2", quantize);
  expect_reserved(&scale_.reserved, "out_scale_inv.reserved = 2", quantize);
  scale_.stride = 2;
  expect_refused(quantize(), OCTAVO_UNSUPPORTED, {"out_scale_inv.stride = 2; expected 0 or 1"});
  scale_.stride = 0;

  auto plain = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
  plain.in = out_.tensor();
  plain.out = in_.tensor();
  const auto dequantize = [&] { return kernels_.dequantize(plain); };
  expect_reserved(&plain.accumulate, "accumulate = 0x2; expected bits of 0x1", dequantize);
  expect_reserved(&plain.reserved, "the call struct.reserved = 2", dequantize);

  const auto gemm = [&] { return table.gemm(kernels_.ctx(), &gemm_); };
  expect_reserved(&gemm_.accumulate, "accumulate = 0x2", gemm);
  expect_reserved(&gemm_.fast_accumulation, "fast_accumulation = 0x2", gemm);
  expect_reserved(&gemm_.bias_after, "bias_after = 0x2", gemm);

  auto rows = make_call<octavo_sum>(OCTAVO_KIND_SUM);
  rows.in = in_.tensor();
  rows.out = &value_;
  const auto sum_rows = [&] { return table.sum_rows(kernels_.ctx(), &rows); };
  expect_reserved(&rows.accumulate, "accumulate = 0x2", sum_rows);
  expect_reserved(&rows.reserved, "the call struct.reserved = 2", sum_rows);

  auto update = make_call<octavo_delayed_scale_update>(OCTAVO_KIND_DELAYED_SCALE_UPDATE);
  update.rule = OCTAVO_RULE_QUOTIENT;
  update.format_max = 448;
  update.length = 1;
  const auto delayed = [&] { return table.delayed_scale_update(kernels_.ctx(), &update); };
  expect_reserved(&update.use_max, "use_max = 0x2", delayed);
  expect_reserved(&update.reserved, "the call struct.reserved = 2", delayed);

  auto from = make_call<octavo_scale_from_amax>(OCTAVO_KIND_SCALE_FROM_AMAX);
  from.rule = OCTAVO_RULE_QUOTIENT;
  from.format_max = 448;
  from.divide_by = 1;
  expect_reserved(&from.reserved, "the call struct.reserved = 2",
                  [&] { return table.scale_from_amax(kernels_.ctx(), &from); });
  auto scale = make_call<octavo_scale_values>(OCTAVO_KIND_SCALE_VALUES);
  expect_reserved(&scale.reserved, "the call struct.reserved = 2",
                  [&] { return draft_call(kernels_.table, kernels_.ctx(), &scale); });
}

TEST_F(InvalidInput, sums_and_copies) {
  auto quantized = make_call<octavo_sum_quantized>(OCTAVO_KIND_SUM_QUANTIZED);
  quantized.codes = in_.tensor()->data;
  quantized.out = out_.tensor()->data;
  quantized.count = 8;
  quantized.shards = 2;
  quantized.shard_stride = 7;
  quantized.dtype = OCTAVO_E4M3FN;
  const auto sum = [&] { return draft_call(kernels_.table, kernels_.ctx(), &quantized); };
  expect_refused(sum(), OCTAVO_INVALID, {"shard_stride = 7", "count = 8"});
  quantized.dtype = OCTAVO_F16;
  expect_refused(sum(), OCTAVO_UNSUPPORTED, {"dtype = 0x1002"});
  auto rows = make_call<octavo_sum>(OCTAVO_KIND_SUM);
  rows.in = in_.tensor();
  expect_refused(kernels_.table->sum_rows(kernels_.ctx(), &rows), OCTAVO_INVALID,
                 {"sum_rows: out is null"});
  expect_refused(kernels_.sum_of_squares(rows), OCTAVO_INVALID, {"sum_of_squares: out is null"});
  auto copy = make_call<octavo_copy>(OCTAVO_KIND_COPY);
  copy.bytes = 1;
  expect_refused(kernels_.table->copy(kernels_.ctx(), &copy), OCTAVO_INVALID,
                 {"copy: out is null"});
  auto scale = make_call<octavo_scale_values>(OCTAVO_KIND_SCALE_VALUES);
  scale.n = 1;
  scale.out = &value_;
  expect_refused(draft_call(kernels_.table, kernels_.ctx(), &scale), OCTAVO_INVALID,
                 {"scale_values: in is null"});
  auto plain = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
  plain.in = out_.tensor();
  plain.out = d_.tensor();
  expect_refused(kernels_.dequantize(plain), OCTAVO_INVALID,
                 {"dequantize: out has shape [4, 3]", "[4, 8]"});
}

TEST_F(InvalidInput, adam_step) {
  int32_t step = 0;
  const float hyper[OCTAVO_HYPER_COUNT] = {};
  octavo_adam_item item = {};
  item.weight = item.gradient = item.exp_avg = item.exp_avg_sq = *in_.tensor();
  item.step = &step;
  auto c = make_call<octavo_adam_step>(OCTAVO_KIND_ADAM_STEP);
  c.items = &item;
  c.count = 1;
  expect_refused(kernels_.adam_step(c), OCTAVO_INVALID, {"adam_step: hyper is null"});
  item.hyper = hyper;
  item.gradient.rows = 3;
  expect_refused(kernels_.adam_step(c), OCTAVO_INVALID,
                 {"gradient has shape [3, 8]", "weight, [4, 8]"});
  item.gradient.rows = 4;
  item.weight_scale_inv = &value_;
  expect_refused(kernels_.adam_step(c), OCTAVO_UNSUPPORTED, {"weight.dtype", "f16"});
  item.weight_scale_inv = nullptr;
  c.decay_mode = 3;
  expect_refused(kernels_.adam_step(c), OCTAVO_UNSUPPORTED,
                 {"decay_mode = 3", "32768 (L2 of MS-AMP"});
  c.decay_mode = OCTAVO_DECAY_L2_MSAMP04;
  c.state_granularity = OCTAVO_FLAT_256;
  expect_refused(kernels_.adam_step(c), OCTAVO_UNSUPPORTED,
                 {"decay_mode = 32768", "state_granularity = 5"});
  c.decay_mode = OCTAVO_DECAY_L2;
  c.state_granularity = OCTAVO_PER_ROW;
  expect_refused(kernels_.adam_step(c), OCTAVO_UNSUPPORTED,
                 {"state_granularity = 1", "5 (flat 256) or 32768 (expanded 128)"});
  c.state_granularity = OCTAVO_PER_TENSOR;
  c.flags = 6;
  expect_refused(kernels_.adam_step(c), OCTAVO_UNSUPPORTED, {"flags = 0x6", "0x1"});
  EXPECT_EQ(step, 0);
}

TEST_F(InvalidInput, rows_of_0_with_null_data_are_legal_everywhere) {
  octavo_tensor none = {nullptr, 0, 8, 8, OCTAVO_F32, 0};
  octavo_tensor no_codes = {nullptr, 0, 8, 8, OCTAVO_E4M3FN, 0};
  octavo_tensor no_codes_t = {nullptr, 8, 0, 0, OCTAVO_E4M3FN, 0};
  quantize_.in = &none;
  quantize_.out = &no_codes;
  quantize_.out_t = &no_codes_t;
  quantize_.rule = OCTAVO_RULE_QUOTIENT;
  quantize_.format_max = 448;
  EXPECT_EQ(kernels_.quantize(quantize_), OCTAVO_OK) << kernels_.host().last_text();
  EXPECT_EQ(value_, 1.0f);
  auto plain = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
  plain.in = &no_codes;
  plain.out = &none;
  EXPECT_EQ(kernels_.dequantize(plain), OCTAVO_OK);
  auto amax = make_call<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX);
  amax.in = &none;
  amax.amax = &value_;
  EXPECT_EQ(kernels_.table->compute_amax(kernels_.ctx(), &amax), OCTAVO_OK);
  EXPECT_EQ(value_, 1.0f);
  octavo_tensor no_result = {nullptr, 0, 3, 3, OCTAVO_F32, 0};
  gemm_.a = &none;
  gemm_.d = &no_result;
  EXPECT_EQ(kernels_.table->gemm(kernels_.ctx(), &gemm_), OCTAVO_OK);
  float sums[8] = {5, 5, 5, 5, 5, 5, 5, 5};
  auto sum = make_call<octavo_sum>(OCTAVO_KIND_SUM);
  sum.in = &none;
  sum.out = sums;
  EXPECT_EQ(kernels_.table->sum_rows(kernels_.ctx(), &sum), OCTAVO_OK);
  for (const float value : sums) EXPECT_EQ(value, 0.0f);
  EXPECT_EQ(kernels_.sum_of_squares(sum), OCTAVO_OK);
  EXPECT_EQ(kernels_.host().texts().size(), 0u) << kernels_.host().last_text();
}

}  // namespace
}  // namespace octavo::test
