// Layout of workspaces, and the plan that states their sizes.
#include <algorithm>
#include <cstring>

#include "linear.h"

namespace octavo::msamp {

using plugin::extent_of;
using plugin::gemm_bytes;
using plugin::quantize_bytes;

Shape shape_of(const octavo_session &s, uint32_t linear, int64_t m) {
  const Parameter &w = weight_of(s, linear);
  return plugin::shape_of(s.device, m, w.rows, w.cols);
}

ForwardPieces forward_pieces(const octavo_session &s, uint32_t linear, const Shape &shape,
                             Carver &carver) {
  const Linear &l = s.linears[linear];
  const bool direct = l.w.dtype == OCTAVO_E4M3FN && shape.np == shape.n && shape.kp == shape.k;
  ForwardPieces p{};
  p.x_scale_inv = carver.scale_inv();
  if (s.device.pads()) {
    p.bias = carver.tensor(1, shape.np, OCTAVO_F32);
    p.y = carver.tensor(shape.mp, shape.np, OCTAVO_F32);
  }
  if (l.cache.position == OCTAVO_NONE && !direct) {
    p.w.scale_inv = carver.scale_inv();
    p.w.codes = carver.tensor(shape.np, shape.kp, OCTAVO_E4M3FN);
  }
  p.x = carver.tensor(shape.mp, shape.kp, OCTAVO_E4M3FN);
  p.kernel = carver.take(0);
  return p;
}

BackwardPieces backward_pieces(const octavo_session &s, uint32_t linear, const Shape &shape,
                               Carver &carver) {
  const Linear &l = s.linears[linear];
  BackwardPieces p{};
  p.dy_scale_inv = carver.scale_inv();
  p.column_sums = carver.tensor(1, shape.n, OCTAVO_F32);
  if (l.gradient.exists() && (s.device.pads() || l.gradient.dtype != OCTAVO_F32))
    p.dw = carver.tensor(shape.np, shape.kp, OCTAVO_F32);
  if (l.cache_t.position == OCTAVO_NONE) {
    p.w_t.scale_inv = carver.scale_inv();
    p.w_t.codes = carver.tensor(shape.kp, shape.np, OCTAVO_E4M3FN);
  }
  if (s.device.pads()) p.dx = carver.tensor(shape.mp, shape.kp, OCTAVO_F32);
  p.dy = carver.tensor(shape.mp, shape.np, OCTAVO_E5M2);
  p.dy_t = carver.tensor(shape.np, shape.mp, OCTAVO_E5M2);
  p.kernel = carver.take(0);
  return p;
}

octavo_status linear_plan(const octavo_session *s, uint32_t linear, octavo_linear_plan *out) {
  if (linear >= s->sealed_linears)
    return refuse(*s, OCTAVO_INVALID,
                  "linear_plan: expected a sealed linear below " +
                      std::to_string(s->sealed_linears) + ", found " + std::to_string(linear));
  const Parameter &w = weight_of(*s, linear);
  const plugin::Device &device = s->device;
  const int64_t np = device.aligned(w.rows);
  const int64_t kp = device.aligned(w.cols);
  octavo_linear_plan plan{};
  plan.size = out->size;
  plan.kind = out->kind;
  if (device.has(OCTAVO_CAPS_CAPTURE_SAFE)) plan.flags |= OCTAVO_LINEAR_CAPTURE_SAFE;
  plan.gradient = w.is_frozen() ? OCTAVO_GRADIENT_NONE : OCTAVO_GRADIENT_SLOT;
  plan.saved = plugin::saved_extent(device, w.cols);
  const uint64_t cast_weight = quantize_bytes(device, np, kp);
  plan.forward_workspace = extent_of([&](int64_t m) {
    const Shape shape = shape_of(*s, linear, m);
    Carver carver(nullptr);
    forward_pieces(*s, linear, shape, carver);
    return carver.used() + gemm_bytes(device, shape.mp, np, kp) +
           quantize_bytes(device, shape.mp, kp) + cast_weight;
  });
  plan.backward_workspace = extent_of([&](int64_t m) {
    const Shape shape = shape_of(*s, linear, m);
    Carver carver(nullptr);
    backward_pieces(*s, linear, shape, carver);
    return carver.used() + gemm_bytes(device, shape.mp, kp, np) +
           gemm_bytes(device, np, kp, shape.mp) + quantize_bytes(device, shape.mp, np) +
           2 * cast_weight;
  });
  if (s->recipe.weight_cache) plan.weight_workspace = 256 + cast_weight;
  std::memcpy(out, &plan, std::min<size_t>(out->size, sizeof(plan)));
  return OCTAVO_OK;
}

}  // namespace octavo::msamp
