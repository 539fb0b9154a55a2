// Layout of `saved` and workspaces, and the plan that states their sizes.
#include <algorithm>
#include <cstring>

#include "layout.h"

namespace octavo::te {
namespace {

uint64_t gemm_bytes(const octavo_session &s, int64_t m, int64_t n, int64_t k) {
  const octavo_tensor a{nullptr, m, k, k, OCTAVO_E4M3FN, 0};
  const octavo_tensor b{nullptr, n, k, k, OCTAVO_E4M3FN, 0};
  octavo_tensor d{nullptr, m, n, n, OCTAVO_F32, 0};
  auto call = make_call<octavo_gemm>(OCTAVO_KIND_GEMM, nullptr);
  call.a = &a;
  call.b = &b;
  call.d = &d;
  uint64_t bytes = 0;
  s.kernels().workspace_bytes(s.desc.kernels_ctx, &call, &bytes);
  return bytes;
}

uint64_t quantize_bytes(const octavo_session &s, int64_t rows, int64_t cols) {
  const octavo_tensor in{nullptr, rows, cols, cols, OCTAVO_F32, 0};
  octavo_tensor out{nullptr, rows, cols, cols, OCTAVO_E4M3FN, 0};
  auto call = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE, nullptr);
  call.in = &in;
  call.out = &out;
  call.rule = OCTAVO_RULE_QUOTIENT;
  uint64_t bytes = 0;
  s.kernels().workspace_bytes(s.desc.kernels_ctx, &call, &bytes);
  return bytes;
}

// The contract of workspace_bytes: affine over multiples of 64; of 256 here, so that the alignment
// of pieces behind a piece that depends on M is affine, too. Kernels that share one piece are
// stated as their sum: their maximum would not be affine, since another one is the largest for
// other M.
constexpr int64_t kStep = 256;

template <typename Used>
octavo_extent extent_of(Used used) {
  const uint64_t one = used(kStep);
  const uint64_t two = used(2 * kStep);
  const uint64_t slope = (two - one) / kStep;
  return {kStep, slope, one - slope * kStep};
}

}  // namespace

Shape shape_of(const octavo_session &s, uint32_t linear, int64_t m) {
  const Parameter &w = s.parameters[s.linears[linear].weight];
  const int64_t rows = std::max(kSavedRows, s.alignment());
  return {m,
          w.rows,
          w.cols,
          s.aligned(m),
          s.aligned(w.rows),
          s.aligned(w.cols),
          (m + rows - 1) / rows * rows};
}

Saved saved_of(const Shape &shape, void *saved) {
  Saved out{};
  out.x_t = {saved, shape.kp, shape.saved_m, shape.saved_m, OCTAVO_E4M3FN, 0};
  out.x_scale_inv = {static_cast<char *>(saved) + shape.kp * shape.saved_m, 0, OCTAVO_F32,
                     OCTAVO_PER_TENSOR};
  return out;
}

ForwardPieces forward_pieces(const octavo_session &s, const Shape &shape, Carver &carver) {
  ForwardPieces p{};
  const bool aligned_kernels = s.alignment() == 1;
  p.x_scale_inv = carver.scale_inv();
  if (!aligned_kernels) p.bias = carver.tensor(1, shape.np, OCTAVO_F32);
  if (!aligned_kernels) p.y = carver.tensor(shape.mp, shape.np, OCTAVO_F32);
  p.x = carver.tensor(shape.mp, shape.kp, OCTAVO_E4M3FN);
  p.kernel = carver.take(0);
  return p;
}

BackwardPieces backward_pieces(const octavo_session &s, const Shape &shape, Carver &carver) {
  BackwardPieces p{};
  const bool aligned_kernels = s.alignment() == 1;
  p.dy_scale_inv = carver.scale_inv();
  p.column_sums = carver.tensor(1, shape.n, OCTAVO_F32);
  if (!aligned_kernels) p.dw = carver.tensor(shape.np, shape.kp, OCTAVO_F32);
  if (!aligned_kernels) p.dx = carver.tensor(shape.mp, shape.kp, OCTAVO_F32);
  p.dy = carver.tensor(shape.mp, shape.np, s.recipe.gradient_dtype);
  p.dy_t = carver.tensor(shape.np, shape.mp, s.recipe.gradient_dtype);
  p.kernel = carver.take(0);
  return p;
}

octavo_status linear_plan(const octavo_session *s, uint32_t linear, octavo_linear_plan *out) {
  if (linear >= s->sealed_linears)
    return refuse(s->desc.host, OCTAVO_INVALID,
                  "linear_plan: expected a sealed linear below " +
                      std::to_string(s->sealed_linears) + ", found " + std::to_string(linear));
  const Parameter &w = s->parameters[s->linears[linear].weight];
  octavo_linear_plan plan{};
  plan.size = out->size;
  plan.kind = out->kind;
  if (s->desc.caps->flags & OCTAVO_CAPS_CAPTURE_SAFE) plan.flags |= OCTAVO_LINEAR_CAPTURE_SAFE;
  plan.gradient = w.is_frozen() ? OCTAVO_GRADIENT_NONE : OCTAVO_GRADIENT_TENSOR;
  const auto saved_rows = static_cast<uint64_t>(std::max(kSavedRows, s->alignment()));
  plan.saved = {saved_rows, static_cast<uint64_t>(s->aligned(w.cols)), sizeof(float)};
  plan.forward_workspace = extent_of([&](int64_t m) {
    const Shape shape = shape_of(*s, linear, m);
    Carver carver(nullptr);
    forward_pieces(*s, shape, carver);
    return carver.used() + gemm_bytes(*s, shape.mp, shape.np, shape.kp) +
           quantize_bytes(*s, shape.mp, shape.kp);
  });
  plan.backward_workspace = extent_of([&](int64_t m) {
    const Shape shape = shape_of(*s, linear, m);
    Carver carver(nullptr);
    backward_pieces(*s, shape, carver);
    return carver.used() + gemm_bytes(*s, shape.mp, shape.kp, shape.np) +
           gemm_bytes(*s, shape.np, shape.kp, shape.mp) + quantize_bytes(*s, shape.mp, shape.np);
  });
  plan.weight_workspace = quantize_bytes(*s, s->aligned(w.rows), s->aligned(w.cols));
  std::memcpy(out, &plan, std::min<size_t>(out->size, sizeof(plan)));
  return OCTAVO_OK;
}

}  // namespace octavo::te
