// linear_plan: the sizes of `saved` and workspaces.
//
// The kernels are asked with calls like those of the verbs, without data. Their answers are added
// and not compared: the largest of several need not be affine in M.
#include <algorithm>
#include <cstring>

#include "cast.h"

namespace octavo::te {

using plugin::extent_of;

namespace {

uint64_t kernel_bytes(const octavo_session &s, const void *call) {
  uint64_t bytes = 0;
  s.device.kernels().workspace_bytes(s.device.ctx(), call, &bytes);
  return bytes;
}

// One cast of [rows, cols] and the statistics of it.
uint64_t cast_bytes(const octavo_session &s, uint32_t granularity, uint32_t dtype, int64_t rows,
                    int64_t cols) {
  const octavo_tensor in{nullptr, rows, cols, cols, OCTAVO_F32, 0};
  octavo_tensor codes{nullptr, rows, cols, cols, dtype, 0};
  octavo_tensor codes_t{nullptr, cols, rows, rows, dtype, 0};
  const octavo_scale scale_inv = scale_of(granularity, cols, nullptr);
  const octavo_scale scale_inv_t = scale_of(granularity, rows, nullptr);
  Cast cast;
  cast.in = &in;
  cast.rows = {&codes, &scale_inv};
  cast.columns = {&codes_t, &scale_inv_t};
  cast.dtype = dtype;
  const octavo_quantize q = cast_call(s, nullptr, nullptr, Observed(), cast);
  uint64_t bytes = kernel_bytes(s, &q);
  if (s.recipe.telemetry) {
    auto stats = make_call<octavo_quantize_stats>(OCTAVO_KIND_QUANTIZE_STATS, nullptr);
    stats.in = &in;
    stats.codes = &codes;
    stats.scale_inv = &scale_inv;
    bytes += kernel_bytes(s, &stats);
  }
  return bytes;
}

// d[m, n] = a[m, k] b[n, k]^T
struct Sizes {
  int64_t m, n, k;
};

uint64_t product_bytes(const octavo_session &s, const octavo_tensor &a, const octavo_scale *a_scale,
                       const octavo_tensor &b, const octavo_scale *b_scale, const Sizes &size,
                       uint32_t layout) {
  octavo_tensor d{nullptr, size.m, size.n, size.n, OCTAVO_F32, 0};
  auto g = make_call<octavo_gemm>(OCTAVO_KIND_GEMM, nullptr);
  g.a = &a;
  g.b = &b;
  g.d = &d;
  g.a_scale_inv = a_scale;
  g.b_scale_inv = b_scale;
  g.layout = layout;
  return kernel_bytes(s, &g);
}

uint64_t fp8_bytes(const octavo_session &s, uint32_t a_dtype, uint32_t b_granularity,
                   const Sizes &size, uint32_t layout = 0) {
  const octavo_scale a_scale = scale_of(s.recipe.operand_granularity, size.k, nullptr);
  const octavo_scale b_scale = scale_of(b_granularity, size.k, nullptr);
  const octavo_tensor a{nullptr, size.m, size.k, size.k, a_dtype, 0};
  const octavo_tensor b{nullptr, size.n, size.k, size.k, OCTAVO_E4M3FN, 0};
  return product_bytes(s, a, &a_scale, b, &b_scale, size, layout);
}

uint64_t plain_bytes(const octavo_session &s, const Sizes &size, uint32_t layout) {
  const auto operand = [&](int64_t rows, bool transposed) {
    return transposed ? octavo_tensor{nullptr, size.k, rows, rows, OCTAVO_F32, 0}
                      : octavo_tensor{nullptr, rows, size.k, size.k, OCTAVO_F32, 0};
  };
  return product_bytes(s, operand(size.m, (layout & OCTAVO_GEMM_A_KM) != 0), nullptr,
                       operand(size.n, (layout & OCTAVO_GEMM_B_KN) != 0), nullptr, size, layout);
}

uint64_t backward_bytes(const octavo_session &s, uint32_t linear, int64_t m) {
  const Recipe &r = s.recipe;
  const Shape shape = shape_of(s, linear, m);
  Carver carver(nullptr);
  backward_pieces(s, linear, shape, carver);
  uint64_t bytes = carver.used();
  if (r.casts_dy())
    bytes += cast_bytes(s, r.operand_granularity, r.gradient_dtype, shape.mp, shape.np);
  bytes +=
      r.dgrad == Operands::kFp8
          ? fp8_bytes(s, r.gradient_dtype, r.weight_granularity, {shape.mp, shape.kp, shape.np})
          : plain_bytes(s, {shape.m, shape.k, shape.n}, OCTAVO_GEMM_B_KN);
  if (s.weight_of(linear).is_frozen()) return bytes;
  if (r.wgrad == Operands::kFp8)
    bytes += fp8_bytes(s, r.gradient_dtype, r.operand_granularity, {shape.np, shape.kp, shape.mp});
  return bytes + plain_bytes(s, {shape.n, shape.k, r.wgrad == Operands::kFp8 ? 0 : shape.m},
                             OCTAVO_GEMM_A_KM | OCTAVO_GEMM_B_KN);
}

}  // namespace

uint64_t forward_bytes(const octavo_session &s, uint32_t linear, int64_t m) {
  const Recipe &r = s.recipe;
  const Shape shape = shape_of(s, linear, m);
  Carver carver(nullptr);
  forward_pieces(s, shape, carver);
  uint64_t bytes = carver.used();
  if (r.casts_x()) bytes += cast_bytes(s, r.operand_granularity, OCTAVO_E4M3FN, shape.mp, shape.kp);
  if (r.fprop == Operands::kFp8)
    bytes += fp8_bytes(s, OCTAVO_E4M3FN, r.weight_granularity, {shape.mp, shape.np, shape.kp},
                       octavo_session::fprop_layout(s.weight_of(linear)));
  if (r.forward_reads_weight()) bytes += plain_bytes(s, {shape.m, shape.n, shape.k}, 0);
  return bytes;
}

octavo_status linear_plan(const octavo_session *s, uint32_t linear, octavo_linear_plan *out) {
  if (linear >= s->sealed_linears)
    return refuse(*s, OCTAVO_INVALID,
                  "linear_plan: expected a sealed linear below " +
                      std::to_string(s->sealed_linears) + ", found " + std::to_string(linear));
  const Parameter &w = s->weight_of(linear);
  octavo_linear_plan plan{};
  plan.size = out->size;
  plan.kind = out->kind;
  if (s->device.has(OCTAVO_CAPS_CAPTURE_SAFE)) plan.flags |= OCTAVO_LINEAR_CAPTURE_SAFE;
  if (s->recipe.wgrad == Operands::kPlain && !w.is_frozen()) plan.flags |= OCTAVO_LINEAR_NEEDS_X;
  plan.gradient = w.is_frozen() ? OCTAVO_GRADIENT_NONE : OCTAVO_GRADIENT_TENSOR;
  plan.saved = saved_extent(*s, linear);
  plan.forward_workspace = extent_of([&](int64_t m) { return forward_bytes(*s, linear, m); });
  plan.backward_workspace = extent_of([&](int64_t m) { return backward_bytes(*s, linear, m); });
  if (s->recipe.casts_weight()) {
    Carver carver(nullptr);
    weight_pieces(*s, w, carver);
    plan.weight_workspace =
        carver.used() + cast_bytes(*s, s->recipe.weight_granularity, OCTAVO_E4M3FN,
                                   s->device.aligned(w.rows), s->device.aligned(w.cols));
  }
  std::memcpy(out, &plan, std::min<size_t>(out->size, sizeof(plan)));
  return OCTAVO_OK;
}

}  // namespace octavo::te
