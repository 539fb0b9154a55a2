// octavo.fused/1 of the subject: the prologue into its workspace, then the forward of every call.
#include <cstring>

#include "subject_session.h"

namespace octavo::selftest {
namespace {

octavo_extent workspace_extent(const octavo_session *s, uint32_t linear) {
  octavo_linear_plan plan{};
  subject_plan(s, linear, &plan);
  octavo_extent extent = plan.forward_workspace;
  const octavo_parameter_desc &w = s->parameters[s->linears[linear].weight].desc;
  extent.bytes_per_row += static_cast<uint64_t>(w.cols) * sizeof(float);
  extent.fixed_bytes += sizeof(float);  // x is a multiple of its width away from the start
  return extent;
}

octavo_status workspace(const octavo_session *s, uint32_t linear, octavo_extent *out) {
  if (s->fault == kFusedWritesExtent) *out = {};
  if (linear >= s->sealed_linears) return subject_refuse(s);
  if (s->fault == kFusedReports) subject_report(s->host, OCTAVO_OK);
  if (s->fault == kFusedRefused) return OCTAVO_UNSUPPORTED;
  *out = workspace_extent(s, linear);
  if (s->fault == kFusedTooLittle) --out->bytes_per_row;
  if (s->fault == kFusedNoRows) out->row_multiple = 0;
  return OCTAVO_OK;
}

octavo_status apply(const octavo_session *s, const octavo_prologue_call *c) {
  octavo_prologue prologue = *c->prologue;
  if (s->fault == kFusedAnyOp && prologue.op > OCTAVO_PROLOGUE_SWIGLU) {
    prologue.op = OCTAVO_PROLOGUE_GELU;
    prologue.eps = 0;
    prologue.gamma = prologue.beta = nullptr;
  }
  octavo_prologue_call call = *c;
  call.prologue = &prologue;
  return s->kernels->prologue(s->ctx, &call);
}

octavo_status linear_forward(const octavo_session *s, const octavo_fused_forward_call *c) {
  octavo_forward_call forward = *c->forward;
  if (forward.linear >= s->sealed_linears) return OCTAVO_INVALID;
  octavo_tensor x = *forward.x;
  if (s->fault == kFusedReadsStride && x.stride < x.cols) return OCTAVO_INVALID;
  const octavo_extent extent = workspace_extent(s, forward.linear);
  const auto rows = static_cast<uint64_t>(x.rows);
  const auto stated = static_cast<uint64_t>(round_up(x.rows, s->alignment));
  const auto width = static_cast<uint64_t>(x.cols) * sizeof(float);
  const uint64_t end =
      (stated * extent.bytes_per_row + extent.fixed_bytes) / sizeof(float) * sizeof(float);
  x.data = static_cast<uint8_t *>(forward.workspace) + end - rows * width;
  x.stride = x.cols;
  if (s->fault == kFusedInF32) x.dtype = OCTAVO_F32;
  octavo_prologue prologue = *c->prologue;
  if (s->fault == kFusedForgetsRstd) prologue.rstd = nullptr;
  if (s->fault == kFusedClearsOnHost && prologue.mean != nullptr)
    std::memset(prologue.mean, 0, sizeof(float));
  octavo_prologue_call call{};
  call.size = sizeof call;
  call.kind = OCTAVO_KIND_PROLOGUE_CALL;
  call.stream = forward.stream;
  call.prologue = &prologue;
  call.out = &x;
  const octavo_status status = apply(s, &call);
  if (status != OCTAVO_OK) return status;
  std::vector<void *> slots(forward.slots, forward.slots + kCacheInv + 1);
  if (s->fault == kFusedRecordsNothing) slots[kXAmax] = nullptr;
  forward.slots = slots.data();
  forward.x = &x;
  return subject_forward(s, &forward);
}

}  // namespace

const octavo_fused *subject_fused(Fault fault) {
  static const octavo_fused kTable = {sizeof(octavo_fused), OCTAVO_KIND_FUSED, workspace,
                                      linear_forward};
  static const octavo_fused kNoKind = {sizeof(octavo_fused), 0, workspace, linear_forward};
  static const octavo_fused kLacking = {sizeof(octavo_fused), OCTAVO_KIND_FUSED, workspace,
                                        nullptr};
  return fault == kFusedOfNoKind ? &kNoKind : fault == kFusedLacksFunction ? &kLacking : &kTable;
}

}  // namespace octavo::selftest
