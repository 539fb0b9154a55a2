// Completes tables: after this no call through a table is a null call, however old the table is.
#include <algorithm>
#include <cstring>

#include "sdk/src/plugin/loader.h"

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

// The functions that the size of `given` covers whole.
template <typename Table>
Table table_head_of(const Table &given) {
  Table own{};
  const size_t size = std::min<size_t>(given.size, sizeof(own));
  std::memcpy(&own, &given, size - size % sizeof(void *));
  own.size = sizeof(own);
  return own;
}

template <typename F>
void fill_one(F &function) {
  if (function == nullptr) function = &Stub<F>::call;
}

template <typename... F>
void fill(F &...functions) {
  (fill_one(functions), ...);
}

}  // namespace

octavo_backend complete(const octavo_backend &given) {
  octavo_backend t = table_head_of(given);
  fill(t.list_options, t.check_session, t.open_session, t.add_parameter, t.add_linear, t.seal,
       t.linear_plan, t.quantize_weight, t.linear_forward, t.linear_backward, t.end_step,
       t.close_session);
  return t;
}

octavo_optimizer complete(const octavo_optimizer &given) {
  octavo_optimizer t = table_head_of(given);
  fill(t.workspace_bytes, t.optimizer_step, t.sum_of_squares, t.prepare_step, t.read_parameter,
       t.write_parameter);
  return t;
}

octavo_memory complete(const octavo_memory &given) {
  octavo_memory t = table_head_of(given);
  fill(t.allocate, t.release, t.copy, t.synchronize);
  return t;
}

octavo_kernels complete(const octavo_kernels &given) {
  octavo_kernels t = table_head_of(given);
  fill(t.probe_device, t.open_device, t.close_device, t.describe, t.workspace_bytes, t.quantize,
       t.dequantize, t.compute_amax, t.scale_from_amax, t.delayed_scale_update, t.gemm, t.adam_step,
       t.sum_quantized, t.sum_rows, t.sum_of_squares, t.copy, t.scale_values, t.prescale_update,
       t.quantize_stats, t.prologue, t.prologue_quantize, t.gradient_scale, t.pack);
  return t;
}

octavo_fused complete(const octavo_fused &given) {
  octavo_fused t = table_head_of(given);
  fill(t.workspace, t.linear_forward, t.apply);
  return t;
}

octavo_gradients complete(const octavo_gradients &given) {
  octavo_gradients t = table_head_of(given);
  fill(t.plan_reduction, t.run_stage);
  return t;
}

}  // namespace octavo
