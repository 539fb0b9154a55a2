// A product in the shape that the kernels need, cut back to the shape that the host asked for.
#include "product.h"

namespace octavo::plugin {
namespace {

// The bias, widened to f32 and to the padded number of columns.
octavo_status pad_bias(const Device &device, void *stream, const Product &p) {
  const octavo_status status = clear(device, stream, p.padded_bias->data,
                                     static_cast<uint64_t>(p.padded_bias->cols) * sizeof(float));
  octavo_tensor front = *p.padded_bias;
  front.cols = p.bias->cols;
  return status != OCTAVO_OK ? status : dequantize(device, stream, *p.bias, nullptr, &front, false);
}

}  // namespace

octavo_status multiply(const Device &device, void *stream, const Product &p) {
  const int64_t m = (p.layout & OCTAVO_GEMM_A_KM) != 0 ? p.a.cols : p.a.rows;
  const int64_t n = (p.layout & OCTAVO_GEMM_B_KN) != 0 ? p.b.cols : p.b.rows;
  const bool padded = m != p.d->rows || n != p.d->cols;
  octavo_tensor scratch = padded ? *p.padded : *p.d;
  // The kernel rounds to the host's dtype, once or, with bias_after, twice; the copy then rounds
  // nothing. A sum is rounded after the addition, so it comes from f32.
  if (!p.accumulate) scratch.dtype = p.d->dtype;
  auto g = make_call<octavo_gemm>(OCTAVO_KIND_GEMM, stream);
  g.a = &p.a;
  g.b = &p.b;
  g.a_scale_inv = p.a_scale_inv;
  g.b_scale_inv = p.b_scale_inv;
  g.d = padded ? &scratch : p.d;
  g.bias = padded && p.bias != nullptr ? p.padded_bias : p.bias;
  g.bias_after = p.bias_after && p.bias != nullptr ? 1 : 0;
  g.workspace = p.workspace;
  g.accumulate = p.accumulate && !padded ? 1 : 0;
  g.fast_accumulation = p.fast_accumulation ? 1 : 0;
  g.layout = p.layout;
  octavo_status status = OCTAVO_OK;
  if (padded && p.bias != nullptr) status = pad_bias(device, stream, p);
  if (status == OCTAVO_OK) status = device.kernels().gemm(device.ctx(), &g);
  if (status != OCTAVO_OK || !padded) return status;
  octavo_tensor real = scratch;
  real.rows = p.d->rows;
  real.cols = p.d->cols;
  return dequantize(device, stream, real, nullptr, p.d, p.accumulate);
}

octavo_status dequantize(const Device &device, void *stream, const octavo_tensor &in,
                         const octavo_scale *scale_inv, octavo_tensor *out, bool accumulate) {
  auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE, stream);
  c.in = &in;
  c.scale_inv = scale_inv;
  c.out = out;
  c.accumulate = accumulate ? 1 : 0;
  return device.kernels().dequantize(device.ctx(), &c);
}

octavo_status bias_gradient(const Device &device, void *stream, const octavo_tensor &dy,
                            const octavo_tensor &sums, octavo_tensor *db, bool accumulate) {
  auto sum = make_call<octavo_sum>(OCTAVO_KIND_SUM, stream);
  sum.in = &dy;
  sum.out = sums.data;
  const octavo_status status = device.kernels().sum_rows(device.ctx(), &sum);
  return status != OCTAVO_OK ? status : dequantize(device, stream, sums, nullptr, db, accumulate);
}

octavo_status clear(const Device &device, void *stream, void *out, uint64_t bytes) {
  auto fill = make_call<octavo_copy>(OCTAVO_KIND_COPY, stream);
  fill.out = out;
  fill.bytes = bytes;
  return device.kernels().copy(device.ctx(), &fill);
}

}  // namespace octavo::plugin
