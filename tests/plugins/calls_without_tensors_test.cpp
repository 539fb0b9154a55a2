// Calls whose tensors are missing, have another shape, or a number of rows that no memory holds:
// refused before a size is computed from them. A step before the first seal has no slots and does
// nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/environment.h"
#include "tests/support/model.h"

namespace octavo::test {
namespace {

class CallsWithoutTensors : public testing::TestWithParam<const char *> {
 protected:
  void SetUp() override {
    request.set("fp8.backend", GetParam()).set("plugins.trust", "dev");
    ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
    ASSERT_EQ(add_weight(run.get(), "w", 4, 8).id, 0u);
    ASSERT_EQ(add_linear(run.get(), "l", 0).id, 0u);
    ASSERT_EQ(octavo_seal(run.get()), OCTAVO_OK) << request.host.error();
    forward.size = sizeof(forward);
    forward.kind = OCTAVO_KIND_FORWARD_CALL;
    backward.size = sizeof(backward);
    backward.kind = OCTAVO_KIND_BACKWARD_CALL;
  }
  octavo_status go_forward(const octavo_tensor *x, octavo_tensor *y) {
    forward.x = x;
    forward.y = y;
    return octavo_run_backend(run.get())->linear_forward(octavo_run_session(run.get()), &forward);
  }
  octavo_status go_backward(const octavo_tensor *dy) {
    backward.dy = dy;
    return octavo_run_backend(run.get())->linear_backward(octavo_run_session(run.get()), &backward);
  }
  std::string last_error() const { return request.host.error(); }

  Environment environment;
  Request request;
  RunPtr run;
  octavo_forward_call forward{};
  octavo_backward_call backward{};
};

octavo_tensor rows_of(int64_t rows, int64_t cols) {
  return {nullptr, rows, cols, cols, OCTAVO_F32, 0};
}

TEST_P(CallsWithoutTensors, forward) {
  const auto refuses = testing::MatchesRegex("linear_forward: expected x .+ with M from 0 to .+");
  octavo_tensor x = rows_of(2, 8), y = rows_of(2, 4);
  EXPECT_EQ(go_forward(nullptr, &y), OCTAVO_INVALID);
  EXPECT_THAT(last_error(), refuses);
  EXPECT_EQ(go_forward(&x, nullptr), OCTAVO_INVALID);
  for (const int64_t rows : {int64_t{-1}, (int64_t{1} << 40) + 1, INT64_MAX}) {
    x.rows = y.rows = rows;
    EXPECT_EQ(go_forward(&x, &y), OCTAVO_INVALID) << rows;
    EXPECT_THAT(last_error(), refuses) << rows;
  }
}

TEST_P(CallsWithoutTensors, backward) {
  const auto refuses = testing::MatchesRegex("linear_backward: expected dy .+ with M from 0 to .+");
  EXPECT_EQ(go_backward(nullptr), OCTAVO_INVALID);
  EXPECT_THAT(last_error(), refuses);
  for (const int64_t rows : {int64_t{-1}, INT64_MAX}) {
    const octavo_tensor dy = rows_of(rows, 4);
    EXPECT_EQ(go_backward(&dy), OCTAVO_INVALID) << rows;
    EXPECT_THAT(last_error(), refuses) << rows;
  }
}

TEST_P(CallsWithoutTensors, gradient_of_another_shape) {
  const octavo_tensor dy = rows_of(2, 4);
  for (octavo_tensor dw : {rows_of(INT64_MAX, 8), rows_of(4, INT64_MAX), rows_of(3, 8)}) {
    backward.dw = &dw;
    EXPECT_EQ(go_backward(&dy), OCTAVO_INVALID) << dw.rows << " x " << dw.cols;
    // The reference backend misses its slots first.
    EXPECT_THAT(last_error(), testing::AnyOf(testing::HasSubstr("expected dw "),
                                             testing::HasSubstr("and slots")));
  }
}

TEST_P(CallsWithoutTensors, unknown_linears) {
  forward.linear = backward.linear = 1;
  octavo_tensor x = rows_of(2, 8), y = rows_of(2, 4);
  EXPECT_EQ(go_forward(&x, &y), OCTAVO_INVALID);
  EXPECT_EQ(last_error(), "linear_forward: expected a sealed linear");
  EXPECT_EQ(go_backward(&y), OCTAVO_INVALID);
  EXPECT_EQ(last_error(), "linear_backward: expected a sealed linear");
}

TEST_P(CallsWithoutTensors, parameters_beyond_any_memory) {
  for (const int64_t huge : {INT64_MAX, (int64_t{1} << 40) + 1})
    EXPECT_EQ(add_weight(run.get(), "huge", 1, huge).status, OCTAVO_INVALID) << huge;
  EXPECT_THAT(last_error(), testing::HasSubstr("at most 2^40 rows and col"));
}

TEST_P(CallsWithoutTensors, a_step_before_the_first_seal) {
  RunPtr unsealed;
  ASSERT_EQ(request.open(unsealed), OCTAVO_OK) << request.host.error();
  void *nothing[1] = {nullptr};
  octavo_step_call step{};
  step.size = sizeof(step);
  step.kind = OCTAVO_KIND_STEP_CALL;
  step.slots = nothing;
  EXPECT_EQ(octavo_run_backend(unsealed.get())->end_step(octavo_run_session(unsealed.get()), &step),
            OCTAVO_OK);
}

INSTANTIATE_TEST_SUITE_P(All, CallsWithoutTensors, testing::Values("te", "msamp", "reference"),
                         [](const auto &tested) { return std::string(tested.param); });

}  // namespace
}  // namespace octavo::test
