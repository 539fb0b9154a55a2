// Completes tables: after this no call through a table is a null call, however old the table is.
#include <tuple>
#include <type_traits>

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

template <typename Table, typename F>
struct Must {
  const char *name;
  F Table::*member;
};
template <typename Table, typename F>
Must(const char *, F Table::*) -> Must<Table, F>;
template <typename Table, typename F>
struct May {
  F Table::*member;
};
template <typename Table, typename F>
May(F Table::*) -> May<Table, F>;

// What each table has; the comment of the table in the headers says which of them must be there.
#define MUST(name)  \
  Must {            \
#name, &T::name \
  }
#define MAY(name) \
  May {           \
    &T::name      \
  }

constexpr auto functions(const octavo_backend *) {
  using T = octavo_backend;
  return std::tuple(MUST(list_options), MUST(check_session), MUST(open_session),
                    MUST(add_parameter), MUST(add_linear), MUST(seal), MUST(linear_plan),
                    MAY(quantize_weight), MUST(linear_forward), MUST(linear_backward),
                    MAY(end_step), MUST(close_session));
}

constexpr auto functions(const octavo_optimizer *) {
  using T = octavo_optimizer;
  return std::tuple(MUST(describe), MUST(workspace_bytes), MUST(optimizer_step),
                    MUST(sum_of_squares), MAY(prepare_step), MUST(read_parameter),
                    MUST(write_parameter));
}

constexpr auto functions(const octavo_gradients *) {
  using T = octavo_gradients;
  return std::tuple(MUST(plan_reduction), MUST(run_stage));
}

constexpr auto functions(const octavo_fused *) {
  using T = octavo_fused;
  return std::tuple(MUST(workspace), MUST(linear_forward));
}

constexpr auto functions(const octavo_grouped *) {
  using T = octavo_grouped;
  return std::tuple(MUST(plan), MUST(forward), MUST(backward));
}

constexpr auto functions(const octavo_shard *) {
  using T = octavo_shard;
  return std::tuple(MUST(plan), MUST(measure), MUST(cast), MUST(place));
}

constexpr auto functions(const octavo_kernels *) {
  using T = octavo_kernels;
  return std::tuple(MUST(probe_device), MUST(open_device), MUST(close_device), MUST(describe),
                    MUST(ability), MUST(workspace_bytes), MAY(quantize), MAY(dequantize),
                    MAY(compute_amax), MAY(scale_from_amax), MAY(delayed_scale_update), MAY(gemm),
                    MAY(sum_rows), MAY(copy), MAY(quantize_stats), MAY(prologue),
                    MAY(prologue_quantize), MAY(pack), MAY(get_extension));
}

constexpr auto functions(const octavo_memory *) {
  using T = octavo_memory;
  return std::tuple(MUST(allocate), MUST(release), MUST(copy), MUST(synchronize));
}

constexpr auto functions(const octavo_layer *) {
  using T = octavo_layer;
  return std::tuple(MUST(open_layer), MAY(close_layer), MUST(calls));
}
#undef MAY
#undef MUST

// A function that is null, or that the table's size does not contain, refuses.
template <typename F>
void fill(F &function) {
  if constexpr (std::is_function_v<std::remove_pointer_t<F>>)
    if (function == nullptr) function = &Stub<F>::call;
}

}  // namespace

template <typename Table>
std::vector<std::string> missing_functions(const Table &given) {
  std::vector<std::string> names;
  const auto look = [&](const auto &function) {
    if constexpr (requires { function.name; })
      if (!has(given, function.member)) names.emplace_back(function.name);
  };
  std::apply([&](const auto &...all) { (look(all), ...); }, functions(&given));
  return names;
}

template <typename Table>
Table complete(const Table &given) {
  return std::apply(
      [&](const auto &...all) {
        Table own = copy_known_fields(given, all.member...);
        (fill(own.*all.member), ...);
        own.size = sizeof(own);
        return own;
      },
      functions(&given));
}

#define TABLE(type)                                                  \
  template std::vector<std::string> missing_functions(const type &); \
  template type complete(const type &);
TABLE(octavo_backend)
TABLE(octavo_optimizer)
TABLE(octavo_gradients)
TABLE(octavo_fused)
TABLE(octavo_grouped)
TABLE(octavo_shard)
TABLE(octavo_kernels)
TABLE(octavo_memory)
TABLE(octavo_layer)
#undef TABLE

}  // namespace octavo
