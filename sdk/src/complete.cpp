// Completes tables: after this no call through a table can be a null call, however old its maker
// is.
#include <algorithm>
#include <cstring>

#include "loader.h"

namespace octavo {
namespace {

template <typename F>
struct Stub;
template <typename... A>
struct Stub<octavo_status (*)(A...)> {
  static octavo_status call(A...) { return OCTAVO_UNSUPPORTED; }
};
template <typename... A>
struct Stub<void (*)(A...)> {
  static void call(A...) {}
};

template <typename F>
void fill(F &slot) {
  if (slot == nullptr) slot = &Stub<F>::call;
}

template <typename Table>
Table head_of(const Table &given) {
  Table own{};
  std::memcpy(&own, &given, std::min<size_t>(given.size, sizeof(own)));
  own.size = sizeof(own);
  return own;
}

}  // namespace

octavo_backend complete(const octavo_backend &given) {
  octavo_backend t = head_of(given);
  fill(t.list_options);
  fill(t.check_session);
  fill(t.open_session);
  fill(t.add_parameter);
  fill(t.add_linear);
  fill(t.seal);
  fill(t.linear_plan);
  fill(t.quantize_weight);
  fill(t.linear_forward);
  fill(t.linear_backward);
  fill(t.end_step);
  fill(t.close_session);
  return t;
}

octavo_optimizer complete(const octavo_optimizer &given) {
  octavo_optimizer t = head_of(given);
  fill(t.workspace_bytes);
  fill(t.optimizer_step);
  fill(t.sum_of_squares);
  fill(t.prepare_step);
  fill(t.read_parameter);
  fill(t.write_parameter);
  return t;
}

octavo_memory complete(const octavo_memory &given) {
  octavo_memory t = head_of(given);
  fill(t.allocate);
  fill(t.release);
  fill(t.copy);
  fill(t.synchronize);
  return t;
}

octavo_kernels complete(const octavo_kernels &given) {
  octavo_kernels t = head_of(given);
  fill(t.probe_device);
  fill(t.open_device);
  fill(t.close_device);
  fill(t.describe);
  fill(t.workspace_bytes);
  fill(t.quantize);
  fill(t.dequantize);
  fill(t.compute_amax);
  fill(t.scale_from_amax);
  fill(t.delayed_scale_update);
  fill(t.gemm);
  fill(t.adam_step);
  fill(t.sum_quantized);
  fill(t.sum_rows);
  fill(t.sum_of_squares);
  fill(t.copy);
  fill(t.scale_values);
  fill(t.prescale_update);
  fill(t.quantize_stats);
  fill(t.prologue);
  fill(t.prologue_quantize);
  fill(t.gradient_scale);
  fill(t.pack);
  return t;
}

octavo_fused complete(const octavo_fused &given) {
  octavo_fused t = head_of(given);
  fill(t.workspace);
  fill(t.linear_forward);
  fill(t.apply);
  return t;
}

octavo_gradients complete(const octavo_gradients &given) {
  octavo_gradients t = head_of(given);
  fill(t.plan_reduction);
  fill(t.run_stage);
  return t;
}

}  // namespace octavo
