// --fused: apply and yes are the same arithmetic, no is the same function in other roundings.
#include <gmock/gmock.h>

#include <cmath>

#include "host_adapters/standalone/simd.h"
#include "octavo/kernels.h"
#include "tests/samples/tiny_training.h"
#include "tests/support/param_name.h"

namespace gpt {
namespace {

Options tiny_with(Fused fused) {
  Options options = tiny();
  options.steps = 12;
  options.fused = fused;
  return options;
}

class EveryFusedRun : public testing::TestWithParam<const char *> {};

TEST_P(EveryFusedRun, apply_and_yes_give_equal_numbers) {
  const RunResult apply = train_once(tiny_with(Fused::kApply), GetParam(), 1);
  const RunResult yes = train_once(tiny_with(Fused::kYes), GetParam(), 2);
  ASSERT_EQ(apply.steps.size(), 12u);
  EXPECT_EQ(numbers(yes), numbers(apply));
  for (const Placement &p : yes.placements) EXPECT_EQ(p.where, "te") << p.layer;
}

// An FP8 cast turns a difference of one rounding into one of a code, 2^-4 of a value, in few of the
// elements; over 12 steps from equal weights the losses stay within a percent.
TEST_P(EveryFusedRun, learns_as_with_the_loops_of_the_program) {
  const RunResult no = train_once(tiny_with(Fused::kNo), GetParam(), 2);
  const RunResult yes = train_once(tiny_with(Fused::kYes), GetParam(), 2);
  EXPECT_NE(numbers(yes), numbers(no)) << "the option changed nothing";
  for (size_t i = 0; i < no.steps.size(); ++i) {
    EXPECT_NEAR(yes.steps[i].loss, no.steps[i].loss, 0.01 * no.steps[i].loss) << "step " << i + 1;
  }
  EXPECT_LT(yes.steps.back().loss, yes.steps.front().loss - 1.0);
}

INSTANTIATE_TEST_SUITE_P(Fused, EveryFusedRun,
                         testing::Values("te:recipe=delayed", "te:recipe=current",
                                         "te:recipe=block", "te:recipe=mx",
                                         "te:recipe=current,override_linear_precision=wgrad",
                                         "te:recipe=block,backward_override=dequantized"),
                         octavo::test::kNameOfValue);

TEST(Fused, runs_without_the_interface_keep_the_loops_of_the_program) {
  for (const char *run : {"fp32", "reference", "msamp"}) {
    EXPECT_EQ(numbers(train_once(tiny_with(Fused::kYes), run, 1)),
              numbers(train_once(tiny_with(Fused::kNo), run, 1)))
        << run;
  }
}

// An open run of te whose apply the tests below compare with the program's own loops.
class FusedForms : public testing::Test {
 protected:
  std::vector<float> apply(const octavo_prologue &prologue, int64_t rows, int64_t cols) {
    std::vector<float> out(static_cast<size_t>(rows * cols));
    octavo_tensor tensor = octavo::view(out.data(), rows, cols);
    octavo_prologue_call call = {};
    call.size = sizeof call;
    call.kind = OCTAVO_KIND_PROLOGUE_CALL;
    call.prologue = &prologue;
    call.out = &tensor;
    const octavo_session_desc &desc = *octavo_run_session_desc(run_.get());
    host_.require(desc.kernels->prologue(desc.kernels_ctx, &call), "prologue");
    return out;
  }

  const Threads threads_{1};
  OctavoHost host_{threads_};
  OctavoRun run_{parse_run("te"), "", host_, Fused::kApply};
};

TEST_F(FusedForms, gelu_is_the_form_that_backward_differentiates) {
  std::vector<float> x;
  for (int i = -600; i <= 600; ++i) x.push_back(static_cast<float>(i) / 100.0f);
  const auto count = static_cast<int64_t>(x.size());
  const octavo_tensor in = octavo::view(x.data(), 1, count);
  octavo_prologue gelu = {};
  gelu.size = sizeof gelu;
  gelu.kind = OCTAVO_KIND_PROLOGUE;
  gelu.op = OCTAVO_PROLOGUE_GELU_TANH;
  gelu.in = &in;
  std::vector<float> own(x.size());
  simd().gelu_forward(x.data(), own.data(), count);
  const std::vector<float> found = apply(gelu, 1, count);
  // The erf form is up to 4.7e-4 away; both of these are right to a few roundings.
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(found[i], own[i], 2e-6) << x[i];
}

TEST_F(FusedForms, a_norm_gives_the_backward_pass_what_its_own_forward_would) {
  constexpr int64_t kRows = 5;
  constexpr int64_t kWidth = 37;
  LayerNorm own("own", kWidth, threads_);
  LayerNorm other("other", kWidth, threads_);
  std::vector<float> x;
  std::vector<float> dy;
  for (int64_t i = 0; i < kRows * kWidth; ++i) {
    x.push_back(std::sin(static_cast<float>(i)) * 3.0f + 1.0f);
    dy.push_back(std::cos(static_cast<float>(3 * i)));
  }
  for (int64_t j = 0; j < kWidth; ++j) {
    for (LayerNorm *norm : {&own, &other}) {
      norm->gain().value[static_cast<size_t>(j)] = 0.5f + static_cast<float>(j) / 10.0f;
      norm->bias().value[static_cast<size_t>(j)] = static_cast<float>(j) - 3.0f;
    }
  }
  std::vector<float> y(x.size());
  own.forward(x.data(), kRows, y.data());
  const std::vector<float> found = apply(other.prologue(x.data(), kRows), kRows, kWidth);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(found[i], y[i], 1e-4) << i;
  std::vector<float> dx_own(x.size());
  std::vector<float> dx_other(x.size());
  own.backward(dy.data(), kRows, dx_own.data());
  other.backward(dy.data(), kRows, dx_other.data());
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(dx_other[i], dx_own[i], 1e-5) << i;
  for (size_t j = 0; j < kWidth; ++j) {
    EXPECT_NEAR(other.gain().grad[j], own.gain().grad[j], 1e-4) << j;
    EXPECT_EQ(other.bias().grad[j], own.bias().grad[j]) << j;
  }
}

}  // namespace
}  // namespace gpt
