// Layout of `saved` and workspaces, and the plan that states their sizes.
#include <algorithm>
#include <cstring>

#include "layout.h"

namespace octavo::te {

using plugin::extent_of;
using plugin::gemm_bytes;
using plugin::quantize_bytes;

Shape shape_of(const octavo_session &s, uint32_t linear, int64_t m) {
  const Parameter &w = s.parameters[s.linears[linear].weight];
  return plugin::shape_of(s.device, m, w.rows, w.cols);
}

ForwardPieces forward_pieces(const octavo_session &s, const Shape &shape, Carver &carver) {
  ForwardPieces p{};
  p.x_scale_inv = carver.scale_inv();
  if (s.device.pads()) p.bias = carver.tensor(1, shape.np, OCTAVO_F32);
  if (s.device.pads()) p.y = carver.tensor(shape.mp, shape.np, OCTAVO_F32);
  p.x = carver.tensor(shape.mp, shape.kp, OCTAVO_E4M3FN);
  p.kernel = carver.take(0);
  return p;
}

BackwardPieces backward_pieces(const octavo_session &s, const Shape &shape, Carver &carver) {
  BackwardPieces p{};
  p.dy_scale_inv = carver.scale_inv();
  p.column_sums = carver.tensor(1, shape.n, OCTAVO_F32);
  if (s.device.pads()) p.dw = carver.tensor(shape.np, shape.kp, OCTAVO_F32);
  if (s.device.pads()) p.dx = carver.tensor(shape.mp, shape.kp, OCTAVO_F32);
  p.dy = carver.tensor(shape.mp, shape.np, s.recipe.gradient_dtype);
  p.dy_t = carver.tensor(shape.np, shape.mp, s.recipe.gradient_dtype);
  p.kernel = carver.take(0);
  return p;
}

octavo_status linear_plan(const octavo_session *s, uint32_t linear, octavo_linear_plan *out) {
  if (linear >= s->sealed_linears)
    return refuse(*s, OCTAVO_INVALID,
                  "linear_plan: expected a sealed linear below " +
                      std::to_string(s->sealed_linears) + ", found " + std::to_string(linear));
  const Parameter &w = s->parameters[s->linears[linear].weight];
  octavo_linear_plan plan{};
  plan.size = out->size;
  plan.kind = out->kind;
  if (s->device.has(OCTAVO_CAPS_CAPTURE_SAFE)) plan.flags |= OCTAVO_LINEAR_CAPTURE_SAFE;
  plan.gradient = w.is_frozen() ? OCTAVO_GRADIENT_NONE : OCTAVO_GRADIENT_TENSOR;
  plan.saved = plugin::saved_extent(s->device, w.cols);
  plan.forward_workspace = extent_of([&](int64_t m) {
    const Shape shape = shape_of(*s, linear, m);
    Carver carver(nullptr);
    forward_pieces(*s, shape, carver);
    return carver.used() + gemm_bytes(s->device, shape.mp, shape.np, shape.kp) +
           quantize_bytes(s->device, shape.mp, shape.kp);
  });
  plan.backward_workspace = extent_of([&](int64_t m) {
    const Shape shape = shape_of(*s, linear, m);
    Carver carver(nullptr);
    backward_pieces(*s, shape, carver);
    return carver.used() + gemm_bytes(s->device, shape.mp, shape.kp, shape.np) +
           gemm_bytes(s->device, shape.np, shape.kp, shape.mp) +
           quantize_bytes(s->device, shape.mp, shape.np);
  });
  plan.weight_workspace =
      quantize_bytes(s->device, s->device.aligned(w.rows), s->device.aligned(w.cols));
  std::memcpy(out, &plan, std::min<size_t>(out->size, sizeof(plan)));
  return OCTAVO_OK;
}

}  // namespace octavo::te
