// Calls whose struct is another one, whose tensors are missing, have another shape, or a number of
// rows that no memory holds: refused before a size is computed from them. A step before the first
// seal has no slots and does nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/draft/gradients.h"
#include "octavo/draft/grouped.h"
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

// No struct of these verbs may be shorter, nor have another kind, nor be null.
TEST_P(CallsWithoutTensors, structs_of_another_size_or_kind) {
  const octavo_session *s = octavo_run_session(run.get());
  int verbs = 0;
  const auto refuses = [&](auto verb, auto call, uint32_t kind) {
    ++verbs;
    const auto refused = [&](const auto *given, const char *word) {
      EXPECT_EQ(verb(s, given), OCTAVO_INVALID) << kind << " " << word;
      EXPECT_THAT(last_error(), testing::ContainsRegex("expected an octavo_.*kind")) << kind;
    };
    call = {};
    call.kind = kind;
    for (const uint32_t size :
         {uint32_t{0}, uint32_t{4}, uint32_t{8}, uint32_t{sizeof(call)} - 8}) {
      call.size = size;
      refused(&call, "size");
    }
    call.size = sizeof(call);
    for (const uint32_t other : {uint32_t{0}, kind + 1, uint32_t{OCTAVO_KIND_DIAGNOSTIC}}) {
      call.kind = other;
      refused(&call, "kind");
    }
    call.size = UINT32_MAX;
    refused(&call, "both");
    refused(static_cast<const decltype(call) *>(nullptr), "null");
  };
  const octavo_backend *b = octavo_run_backend(run.get());
  refuses(b->quantize_weight, octavo_weight_call{}, OCTAVO_KIND_WEIGHT_CALL);
  refuses(b->linear_forward, octavo_forward_call{}, OCTAVO_KIND_FORWARD_CALL);
  refuses(b->linear_backward, octavo_backward_call{}, OCTAVO_KIND_BACKWARD_CALL);
  refuses(b->end_step, octavo_step_call{}, OCTAVO_KIND_STEP_CALL);
  if (const octavo_optimizer *o = static_cast<const octavo_optimizer *>(
          octavo_run_interface(run.get(), OCTAVO_STR(OCTAVO_OPTIMIZER_ID)))) {
    refuses(o->optimizer_step, octavo_optimizer_call{}, OCTAVO_KIND_OPTIMIZER_CALL);
    refuses(o->sum_of_squares, octavo_norm_call{}, OCTAVO_KIND_NORM_CALL);
    refuses(o->prepare_step, octavo_prepare_call{}, OCTAVO_KIND_PREPARE_CALL);
    refuses(o->read_parameter, octavo_parameter_call{}, OCTAVO_KIND_PARAMETER_CALL);
    refuses(o->write_parameter, octavo_parameter_call{}, OCTAVO_KIND_PARAMETER_CALL);
  }
  if (const octavo_gradients *g = static_cast<const octavo_gradients *>(
          octavo_run_interface(run.get(), OCTAVO_STR(OCTAVO_GRADIENTS_ID))))
    refuses(g->run_stage, octavo_gradient_call{}, OCTAVO_KIND_GRADIENT_CALL);
  if (const octavo_fused *f = static_cast<const octavo_fused *>(
          octavo_run_interface(run.get(), OCTAVO_STR(OCTAVO_FUSED_ID)))) {
    refuses(f->linear_forward, octavo_fused_forward_call{}, OCTAVO_KIND_FUSED_FORWARD_CALL);
    // The two structs inside of it.
    octavo_prologue prologue{};
    auto inside = [&](const octavo_session *session, const auto *given) {
      octavo_fused_forward_call call{sizeof(call), OCTAVO_KIND_FUSED_FORWARD_CALL, &forward,
                                     &prologue};
      if constexpr (std::is_same_v<decltype(given), const octavo_prologue *>)
        call.prologue = given;
      else
        call.forward = given;
      return f->linear_forward(session, &call);
    };
    refuses(inside, octavo_forward_call{}, OCTAVO_KIND_FORWARD_CALL);
    refuses(inside, octavo_prologue{}, OCTAVO_KIND_PROLOGUE);
  }
  if (const octavo_grouped *g = static_cast<const octavo_grouped *>(
          octavo_run_interface(run.get(), OCTAVO_STR(OCTAVO_GROUPED_ID)))) {
    refuses(g->forward, octavo_grouped_forward_call{}, OCTAVO_KIND_GROUPED_FORWARD_CALL);
    refuses(g->backward, octavo_grouped_backward_call{}, OCTAVO_KIND_GROUPED_BACKWARD_CALL);
  }
  if (const octavo_shard *d = static_cast<const octavo_shard *>(
          octavo_run_interface(run.get(), OCTAVO_STR(OCTAVO_SHARD_ID)))) {
    refuses(d->measure, octavo_shard_call{}, OCTAVO_KIND_SHARD_CALL);
    refuses(d->cast, octavo_shard_call{}, OCTAVO_KIND_SHARD_CALL);
    refuses(d->place, octavo_gathered_call{}, OCTAVO_KIND_GATHERED_CALL);
  }
  EXPECT_GE(verbs, 4);
}

INSTANTIATE_TEST_SUITE_P(All, CallsWithoutTensors, testing::Values("te", "msamp", "reference"),
                         [](const auto &tested) { return std::string(tested.param); });

}  // namespace
}  // namespace octavo::test
