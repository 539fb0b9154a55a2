// Where a call of kernels writes: visit(address, bytes) for every output of its struct, of scales
// and sums for the first. Calls of which this has no function are not looked at.
#pragma once

#include "octavo/kernels.h"

namespace octavo::conformance {

template <typename Visit>
void visit_rows(const octavo_tensor *t, const Visit &visit) {
  if (t == nullptr || t->data == nullptr || t->cols <= 0) return;
  const uint64_t bits = OCTAVO_DTYPE_BITS(t->dtype);
  auto *row = static_cast<const uint8_t *>(t->data);
  for (int64_t i = 0; i < t->rows; ++i, row += static_cast<uint64_t>(t->stride) * bits / 8)
    visit(row, (static_cast<uint64_t>(t->cols) * bits + 7) / 8);
}
template <typename Visit>
void visit_values(const void *values, uint64_t bytes, const Visit &visit) {
  if (values != nullptr && bytes != 0) visit(static_cast<const uint8_t *>(values), bytes);
}
template <typename Visit>
void visit_scale(const octavo_scale *s, const octavo_tensor *codes, const Visit &visit) {
  if (s == nullptr || (codes != nullptr && (codes->rows == 0 || codes->cols == 0))) return;
  visit_values(s->data, 1, visit);
}

template <typename Call, typename Visit>
void visit_outputs(const Call &, const Visit &) {}
template <typename Visit>
void visit_outputs(const octavo_quantize &c, const Visit &visit) {
  visit_rows(c.out, visit);
  visit_rows(c.out_t, visit);
  visit_scale(c.out_scale_inv, c.out, visit);
  visit_scale(c.out_t_scale_inv, c.out_t, visit);
  visit_values(c.amax, sizeof(float), visit);
  visit_values(c.nonfinite, sizeof(float), visit);
}
template <typename Visit>
void visit_outputs(const octavo_dequantize &c, const Visit &visit) {
  visit_rows(c.out, visit);
}
template <typename Visit>
void visit_outputs(const octavo_compute_amax &c, const Visit &visit) {
  visit_values(c.amax, sizeof(float), visit);
  visit_values(c.nonfinite, sizeof(float), visit);
}
template <typename Visit>
void visit_outputs(const octavo_scale_from_amax &c, const Visit &visit) {
  visit_values(c.scale, c.n * sizeof(float), visit);
  visit_values(c.scale_inv, c.n * sizeof(float), visit);
}
template <typename Visit>
void visit_outputs(const octavo_delayed_scale_update &c, const Visit &visit) {
  visit_values(c.amax, c.n * sizeof(float), visit);
  visit_values(c.history, c.length * c.n * sizeof(float), visit);
  visit_values(c.scale, c.n * sizeof(float), visit);
  visit_values(c.counter, c.n * sizeof(float), visit);
}
template <typename Visit>
void visit_outputs(const octavo_gemm &c, const Visit &visit) {
  visit_rows(c.d, visit);
}
template <typename Visit>
void visit_outputs(const octavo_sum &c, const Visit &visit) {
  visit_values(c.out, sizeof(float), visit);  // the first of them
}
template <typename Visit>
void visit_outputs(const octavo_copy &c, const Visit &visit) {
  visit_values(c.out, c.bytes, visit);
}
template <typename Visit>
void visit_outputs(const octavo_quantize_stats &c, const Visit &visit) {
  for (const float *sum : {c.saturated, c.underflow, c.signal, c.noise})
    visit_values(sum, sizeof(float), visit);
}
template <typename Visit>
void visit_outputs(const octavo_pack &c, const Visit &visit) {
  visit_rows(c.out, visit);
}

}  // namespace octavo::conformance
