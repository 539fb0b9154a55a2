// The fused forward is the forward of linear.cpp with another cast of x: prologue_quantize of the
// kernels in the place of quantize, with the same scale, rule and targets.
//
// The values between the two may lie in the kernels' part of the workspace, since the product that
// uses it begins when the cast is done. A call in which a product or telemetry reads x itself has x
// at the start of the workspace, and the forward of linear.cpp works behind it.
#include "fused.h"

#include <algorithm>

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

octavo_status forward_with_x(const octavo_session &s, const octavo_fused_forward_call &c) {
  octavo_forward_call forward;
  OCTAVO_TAKE(forward, c.forward);
  Carver carver(forward.workspace);
  octavo_tensor x = carver.tensor(forward.x->rows, forward.x->cols, forward.x->dtype);
  forward.x = &x;
  forward.workspace = carver.take(0);
  auto call = make_call<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL, forward.stream);
  call.prologue = c.prologue;
  call.out = &x;
  const octavo_status status = fused_apply(&s, &call);
  return status == OCTAVO_OK ? linear_forward(&s, &forward) : status;
}

}  // namespace

octavo_status fused_workspace(const octavo_session *s, uint32_t linear, octavo_extent *out) {
  if (linear >= s->sealed_linears)
    return refuse(*s, OCTAVO_INVALID, "fused workspace: expected a sealed linear");
  if (!can_fuse(*s, linear)) return OCTAVO_UNSUPPORTED;
  const int64_t k = s->weight_of(linear).cols;
  octavo_status status = OCTAVO_OK;
  const octavo_extent values = plugin::extent_of([&](int64_t m) {
    uint64_t bytes = 0;
    const octavo_status answer = prologue_bytes(*s, m, k, &bytes);
    if (answer != OCTAVO_OK) status = answer;
    return bytes;
  });
  if (status != OCTAVO_OK) return status;
  octavo_extent extent = plugin::extent_of([&](int64_t m) { return forward_bytes(*s, linear, m); });
  // Either what prologue_quantize needs, or x, whose end is moved to a piece's alignment.
  extent.bytes_per_row += std::max(values.bytes_per_row, static_cast<uint64_t>(k) * sizeof(float));
  extent.fixed_bytes += std::max(values.fixed_bytes, uint64_t{256});
  *out = extent;
  return OCTAVO_OK;
}

octavo_status fused_linear_forward(const octavo_session *s, const octavo_fused_forward_call *c) {
  const octavo_forward_call &forward = *c->forward;
  ForwardOperands operands;
  octavo_status status = prepare_forward(*s, forward, &operands);
  if (status != OCTAVO_OK) return status;
  if (!can_fuse(*s, forward.linear))
    return refuse(*s, OCTAVO_UNSUPPORTED,
                  "fused linear_forward: expected a linear whose backward does not ask for x, but "
                  "its plan says OCTAVO_LINEAR_NEEDS_X; call apply, then linear_forward");
  if (operands.reads_x) return forward_with_x(*s, *c);
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
