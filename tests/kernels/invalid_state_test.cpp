/* Malformed calls with states in blocks: the status and a text that names the field.
 *
 * Nothing may be written by a refused call; each case checks the codes and the step count.
 */
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "octavo/draft/optimizer.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/support/param_name.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

class InvalidState : public testing::TestWithParam<uint32_t> {
 protected:
  InvalidState() {
    in_.fill(1);
    scale_ = OCTAVO_SCALE(scales_.data(), 0, OCTAVO_F32, GetParam());
    write_.in = in_.tensor();
    write_.out = codes_.tensor();
    write_.out_scale_inv = &scale_;
    read_.in = codes_.tensor();
    read_.scale_inv = &scale_;
    read_.out = in_.tensor();
    item_.weight = item_.gradient = *in_.tensor();
    item_.exp_avg = item_.exp_avg_sq = *codes_.tensor();
    item_.exp_avg_scale_inv = item_.exp_avg_sq_scale_inv = scales_.data();
    item_.step = &step_;
    item_.hyper = hyper_;
    adam_.items = &item_;
    adam_.count = 1;
    adam_.state_granularity = GetParam();
  }

  void expect_refused(octavo_status found, octavo_status expected,
                      const std::vector<std::string> &parts) {
    EXPECT_EQ(found, expected);
    ASSERT_EQ(kernels_.host().texts().size(), ++texts_);
    for (const std::string &part : parts) {
      EXPECT_THAT(kernels_.host().last_text(), HasSubstr(part));
    }
    EXPECT_EQ(codes_.data(), std::vector<uint8_t>(codes_.data().size(), Matrix::kFiller));
    EXPECT_EQ(scales_, std::vector<float>(8, 1.0f));
    EXPECT_EQ(step_, 3);
  }

  Kernels kernels_{0};
  Matrix in_{OCTAVO_F32, 4, 8};
  Matrix codes_{OCTAVO_E4M3FN, 4, 8};
  std::vector<float> scales_ = std::vector<float>(8, 1.0f);
  octavo_scale scale_ = {};
  octavo_quantize write_ = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  octavo_dequantize read_ = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
  octavo_adam_item item_ = {};
  octavo_adam_step adam_ = make_call<octavo_adam_step>(OCTAVO_KIND_ADAM_STEP);
  int32_t step_ = 3;
  const float hyper_[OCTAVO_HYPER_COUNT] = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.0f, 1.0f};
  size_t texts_ = 0;
};

TEST_P(InvalidState, quantize) {
  Matrix other(OCTAVO_E4M3FN, 8, 4);
  write_.out_t = other.tensor();
  expect_refused(kernels_.quantize(write_), OCTAVO_INVALID, {"quantize: out_t is not null"});
  write_.out_t = nullptr;
  float value = 1.0f;
  write_.scale = &value;
  expect_refused(kernels_.quantize(write_), OCTAVO_INVALID, {"quantize: scale is not null"});
  write_.scale = nullptr;
  write_.counter = &value;
  expect_refused(kernels_.quantize(write_), OCTAVO_INVALID, {"quantize: counter is not null"});
  write_.counter = nullptr;
  write_.out = other.tensor();
  expect_refused(kernels_.quantize(write_), OCTAVO_INVALID, {"out has shape [8, 4]", "[4, 8]"});
  octavo_tensor bad = *codes_.tensor();
  bad.dtype = OCTAVO_E5M2;
  write_.out = &bad;
  expect_refused(kernels_.quantize(write_), OCTAVO_UNSUPPORTED, {"out.dtype", "float8_e4m3fn"});
  write_.out = nullptr;
  expect_refused(kernels_.quantize(write_), OCTAVO_INVALID, {"out is null"});
  Matrix wide(OCTAVO_F32, 4, 8, 1);
  write_.out = codes_.tensor();
  write_.in = wide.tensor();
  expect_refused(kernels_.quantize(write_), OCTAVO_INVALID,
                 {"in.stride = 9; expected in.cols = 8"});
}

TEST_P(InvalidState, dequantize) {
  octavo_tensor bad = *codes_.tensor();
  bad.dtype = OCTAVO_E5M2;
  read_.in = &bad;
  expect_refused(kernels_.dequantize(read_), OCTAVO_UNSUPPORTED, {"dequantize: in.dtype"});
  read_.in = codes_.tensor();
  Matrix wide(OCTAVO_F32, 4, 8, 1);
  read_.out = wide.tensor();
  expect_refused(kernels_.dequantize(read_), OCTAVO_INVALID, {"out.stride = 9"});
  Matrix other(OCTAVO_F32, 8, 4);
  read_.out = other.tensor();
  expect_refused(kernels_.dequantize(read_), OCTAVO_INVALID, {"out has shape [8, 4]"});
}

TEST_P(InvalidState, scales) {
  scale_.dtype = OCTAVO_E8M0FNU;
  expect_refused(kernels_.quantize(write_), OCTAVO_UNSUPPORTED, {"out_scale_inv.dtype = 0x80e"});
  scale_.dtype = OCTAVO_F32;
  scale_.stride = 2;
  expect_refused(kernels_.dequantize(read_), OCTAVO_UNSUPPORTED, {"scale_inv.stride = 2"});
  scale_.stride = 0;
  scale_.data = nullptr;
  expect_refused(kernels_.quantize(write_), OCTAVO_INVALID,
                 {"out_scale_inv.data = ", "expected the address"});
  scale_.data = reinterpret_cast<char *>(scales_.data()) + 1;
  expect_refused(kernels_.dequantize(read_), OCTAVO_INVALID, {"dequantize: scale_inv.data = "});
}

TEST_P(InvalidState, other_verbs_want_one_scale) {
  float value = 0.0f;
  auto amax = make_call<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX);
  amax.in = codes_.tensor();
  amax.in_scale_inv = &scale_;
  amax.amax = &value;
  expect_refused(kernels_.table->compute_amax(kernels_.ctx(), &amax), OCTAVO_UNSUPPORTED,
                 {"in_scale_inv.granularity = ", "expected 0"});
}

TEST_P(InvalidState, adam_step) {
  item_.exp_avg.dtype = OCTAVO_E5M2;
  expect_refused(kernels_.adam_step(adam_), OCTAVO_UNSUPPORTED, {"exp_avg.dtype", "e4m3fn"});
  item_.exp_avg.dtype = OCTAVO_E4M3FN;
  item_.exp_avg_sq.dtype = OCTAVO_F32;
  expect_refused(kernels_.adam_step(adam_), OCTAVO_UNSUPPORTED, {"exp_avg_sq.dtype"});
  item_.exp_avg_sq.dtype = OCTAVO_E4M3FN;
  Matrix wide(OCTAVO_F32, 4, 8, 3);
  item_.gradient = *wide.tensor();
  expect_refused(kernels_.adam_step(adam_), OCTAVO_INVALID,
                 {"gradient.stride = 11; expected gradient.cols = 8"});
  item_.gradient = *in_.tensor();
  item_.weight = *wide.tensor();
  expect_refused(kernels_.adam_step(adam_), OCTAVO_INVALID, {"weight.stride = 11"});
}

INSTANTIATE_TEST_SUITE_P(Granularities, InvalidState,
                         testing::Values(uint32_t{OCTAVO_FLAT_256}, uint32_t{OCTAVO_EXPANDED_128}),
                         octavo::test::kNameOfValue);

}  // namespace
}  // namespace octavo::test
