// The fused forward is the forward of linear.cpp with another cast of x: prologue_quantize of the
// kernels in the place of quantize, with the same scale, rule and targets.
//
// The values between the two may lie in the kernels' part of the workspace, since the product that
// uses it begins when the cast is done.
#include "fused.h"

#include "linear.h"

namespace octavo::te {
namespace {

// Bytes that the kernels need for m rows of x in any plain dtype.
octavo_status prologue_bytes(const octavo_session &s, int64_t m, int64_t k, uint64_t *bytes) {
  const octavo_tensor x{nullptr, m, k, k, OCTAVO_F32, 0};
  auto quantize = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE, nullptr);
  quantize.in = &x;
  auto call = make_call<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL, nullptr);
  call.quantize = &quantize;
  return s.device.kernels().workspace_bytes(s.device.ctx(), &call, bytes);
}

}  // namespace

octavo_status fused_workspace(const octavo_session *s, uint32_t linear, octavo_extent *out) {
  if (linear >= s->sealed_linears)
    return refuse(*s, OCTAVO_INVALID, "fused workspace: expected a sealed linear");
  if (!can_fuse(*s, linear)) return OCTAVO_UNSUPPORTED;
  const int64_t k = s->weight_of(linear).cols;
  octavo_status status = OCTAVO_OK;
  const octavo_extent extent = plugin::extent_of([&](int64_t m) {
    uint64_t bytes = 0;
    const octavo_status answer = prologue_bytes(*s, m, k, &bytes);
    if (answer != OCTAVO_OK) status = answer;
    return forward_bytes(*s, linear, m) + bytes;
  });
  if (status == OCTAVO_OK) *out = extent;
  return status;
}

octavo_status fused_linear_forward(const octavo_session *s, const octavo_fused_forward_call *c) {
  const octavo_forward_call &forward = *c->forward;
  ForwardOperands operands;
  octavo_status status = prepare_forward(*s, forward, &operands);
  if (status != OCTAVO_OK) return status;
  if (!can_fuse(*s, forward.linear))
    return refuse(*s, OCTAVO_UNSUPPORTED,
                  "fused linear_forward: this linear runs on plain operands, or telemetry looks at "
                  "x; call apply, then linear_forward");
  if ((forward.flags & OCTAVO_FORWARD_EVALUATION) != 0 && !s->recipe.evaluates_in_fp8)
    return refuse(*s, OCTAVO_UNSUPPORTED,
                  "fused linear_forward: an evaluation runs on plain operands; call apply, then "
                  "linear_forward, or set use_autocast_during_eval = true");
  auto call = make_call<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL, forward.stream);
  call.prologue = c->prologue;
  call.quantize = &operands.cast;
  call.workspace = operands.pieces.kernel;
  status = s->device.kernels().prologue_quantize(s->device.ctx(), &call);
  return status == OCTAVO_OK ? forward_product(*s, forward, operands) : status;
}

octavo_status fused_apply(const octavo_session *s, const octavo_prologue_call *c) {
  return s->device.kernels().prologue(s->device.ctx(), c);
}

}  // namespace octavo::te
