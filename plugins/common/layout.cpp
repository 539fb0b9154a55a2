// Sizes of `saved` and of what the kernels need beside it.
#include "layout.h"

#include <algorithm>

namespace octavo::plugin {
namespace {

int64_t saved_rows(const Device &device) {
  return std::max(kSavedRows, device.alignment());
}

}  // namespace

Shape shape_of(const Device &device, int64_t m, int64_t n, int64_t k) {
  const int64_t rows = saved_rows(device);
  return {m,
          n,
          k,
          device.aligned(m),
          device.aligned(n),
          device.aligned(k),
          (m + rows - 1) / rows * rows};
}

Saved saved_of(const Shape &shape, void *saved) {
  Saved out{};
  out.x_t = {saved, shape.kp, shape.saved_m, shape.saved_m, OCTAVO_E4M3FN, 0};
  out.x_scale_inv = {static_cast<char *>(saved) + shape.kp * shape.saved_m, 0, OCTAVO_F32,
                     OCTAVO_PER_TENSOR};
  return out;
}

octavo_extent saved_extent(const Device &device, int64_t k) {
  return {static_cast<uint64_t>(saved_rows(device)), static_cast<uint64_t>(device.aligned(k)),
          sizeof(float)};
}

uint64_t gemm_bytes(const Device &device, int64_t m, int64_t n, int64_t k) {
  const octavo_tensor a{nullptr, m, k, k, OCTAVO_E4M3FN, 0};
  const octavo_tensor b{nullptr, n, k, k, OCTAVO_E4M3FN, 0};
  octavo_tensor d{nullptr, m, n, n, OCTAVO_F32, 0};
  auto call = make_call<octavo_gemm>(OCTAVO_KIND_GEMM, nullptr);
  call.a = &a;
  call.b = &b;
  call.d = &d;
  uint64_t bytes = 0;
  device.kernels().workspace_bytes(device.ctx(), &call, &bytes);
  return bytes;
}

uint64_t quantize_bytes(const Device &device, int64_t rows, int64_t cols) {
  const octavo_tensor in{nullptr, rows, cols, cols, OCTAVO_F32, 0};
  octavo_tensor out{nullptr, rows, cols, cols, OCTAVO_E4M3FN, 0};
  auto call = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE, nullptr);
  call.in = &in;
  call.out = &out;
  call.rule = OCTAVO_RULE_QUOTIENT;
  uint64_t bytes = 0;
  device.kernels().workspace_bytes(device.ctx(), &call, &bytes);
  return bytes;
}

}  // namespace octavo::plugin
