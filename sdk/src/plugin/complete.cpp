// Completes tables: after this no call through a table is a null call, however old the table is.
#include "sdk/src/base/sized.h"
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
struct Stub<const void *(*)(A...)> {
  static const void *call(A...) { return nullptr; }
};
template <typename... A>
struct Stub<void (*)(A...)> {
  static void call(A...) {}
};

// The table with every function: those that are null, or that its size does not contain, refuse.
template <typename Table, typename... F>
Table filled(const Table &given, F Table::*...functions) {
  Table own = copy_known_fields(given, functions...);
  ((own.*functions == nullptr ? void(own.*functions = &Stub<F>::call) : void()), ...);
  own.size = sizeof(own);
  return own;
}

template <typename Table, typename F>
struct Named {
  const char *name;
  F Table::*function;
};
template <typename Table, typename F>
Named(const char *, F Table::*) -> Named<Table, F>;

template <typename Table, typename... F>
std::vector<std::string> missing(const Table &given, Named<Table, F>... required) {
  std::vector<std::string> names;
  ((has(given, required.function) ? void() : void(names.emplace_back(required.name))), ...);
  return names;
}

}  // namespace

#define FN(name)    \
  Named {           \
#name, &T::name \
  }

std::vector<std::string> missing_functions(const octavo_backend &given) {
  using T = octavo_backend;
  return missing(given, FN(list_options), FN(check_session), FN(open_session), FN(add_parameter),
                 FN(add_linear), FN(seal), FN(linear_plan), FN(linear_forward), FN(linear_backward),
                 FN(close_session));
}

std::vector<std::string> missing_functions(const octavo_optimizer &given) {
  using T = octavo_optimizer;
  return missing(given, FN(describe), FN(workspace_bytes), FN(optimizer_step), FN(sum_of_squares),
                 FN(read_parameter), FN(write_parameter));
}

std::vector<std::string> missing_functions(const octavo_gradients &given) {
  using T = octavo_gradients;
  return missing(given, FN(plan_reduction), FN(run_stage));
}

std::vector<std::string> missing_functions(const octavo_fused &given) {
  using T = octavo_fused;
  return missing(given, FN(workspace), FN(linear_forward));
}

std::vector<std::string> missing_functions(const octavo_grouped &given) {
  using T = octavo_grouped;
  return missing(given, FN(plan), FN(forward), FN(backward));
}

std::vector<std::string> missing_functions(const octavo_shard &given) {
  using T = octavo_shard;
  return missing(given, FN(plan), FN(measure), FN(cast), FN(place));
}

std::vector<std::string> missing_functions(const octavo_kernels &given) {
  using T = octavo_kernels;
  return missing(given, FN(probe_device), FN(open_device), FN(close_device), FN(describe),
                 FN(ability), FN(workspace_bytes));
}

std::vector<std::string> missing_functions(const octavo_memory &given) {
  using T = octavo_memory;
  return missing(given, FN(allocate), FN(release), FN(copy), FN(synchronize));
}

std::vector<std::string> missing_functions(const octavo_layer &given) {
  using T = octavo_layer;
  return missing(given, FN(open_layer), FN(calls));
}
#undef FN

octavo_backend complete(const octavo_backend &given) {
  using T = octavo_backend;
  return filled(given, &T::list_options, &T::check_session, &T::open_session, &T::add_parameter,
                &T::add_linear, &T::seal, &T::linear_plan, &T::quantize_weight, &T::linear_forward,
                &T::linear_backward, &T::end_step, &T::close_session);
}

octavo_optimizer complete(const octavo_optimizer &given) {
  using T = octavo_optimizer;
  return filled(given, &T::describe, &T::workspace_bytes, &T::optimizer_step, &T::sum_of_squares,
                &T::prepare_step, &T::read_parameter, &T::write_parameter);
}

octavo_memory complete(const octavo_memory &given) {
  using T = octavo_memory;
  return filled(given, &T::allocate, &T::release, &T::copy, &T::synchronize);
}

octavo_layer complete(const octavo_layer &given) {
  using T = octavo_layer;
  return filled(given, &T::open_layer, &T::close_layer);
}

octavo_kernels complete(const octavo_kernels &given) {
  using T = octavo_kernels;
  return filled(given, &T::probe_device, &T::open_device, &T::close_device, &T::describe,
                &T::ability, &T::workspace_bytes, &T::quantize, &T::dequantize, &T::compute_amax,
                &T::scale_from_amax, &T::delayed_scale_update, &T::gemm, &T::sum_rows, &T::copy,
                &T::quantize_stats, &T::prologue, &T::prologue_quantize, &T::pack,
                &T::get_extension);
}

octavo_fused complete(const octavo_fused &given) {
  using T = octavo_fused;
  return filled(given, &T::workspace, &T::linear_forward);
}

octavo_grouped complete(const octavo_grouped &given) {
  using T = octavo_grouped;
  return filled(given, &T::plan, &T::forward, &T::backward);
}

octavo_shard complete(const octavo_shard &given) {
  using T = octavo_shard;
  return filled(given, &T::plan, &T::measure, &T::cast, &T::place);
}

octavo_gradients complete(const octavo_gradients &given) {
  using T = octavo_gradients;
  return filled(given, &T::plan_reduction, &T::run_stage);
}

}  // namespace octavo
