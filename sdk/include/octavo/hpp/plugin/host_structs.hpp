// octavo/hpp/plugin/host_structs.hpp: what a host passes is the struct that the verb takes.
//
// What must not go wrong: `size` and `kind` are looked at before any other field, which a shorter
// struct would not have.
#ifndef OCTAVO_HPP_PLUGIN_HOST_STRUCTS_HPP
#define OCTAVO_HPP_PLUGIN_HOST_STRUCTS_HPP

#include <type_traits>

#include "octavo/draft/gradients.h"
#include "octavo/draft/grouped.h"
#include "octavo/draft/optimizer.h"
#include "octavo/fused.h"
#include "octavo/hpp/plugin/barrier.hpp"
#include "octavo/shard.h"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

// The kind of a call struct, and its size in minor version 0, through `last`.
template <typename Call>
struct HostStruct : std::false_type {};
#define OCTAVO_AUTHOR_STRUCT(Call, last, kind_of_it)                  \
  template <>                                                         \
  struct HostStruct<Call> : std::true_type {                          \
    static constexpr const char *name = #Call;                        \
    static constexpr uint32_t size = OCTAVO_SIZE_THROUGH(Call, last); \
    static constexpr uint32_t kind = kind_of_it;                      \
  }
OCTAVO_AUTHOR_STRUCT(octavo_weight_call, workspace, OCTAVO_KIND_WEIGHT_CALL);
OCTAVO_AUTHOR_STRUCT(octavo_forward_call, workspace, OCTAVO_KIND_FORWARD_CALL);
OCTAVO_AUTHOR_STRUCT(octavo_backward_call, workspace, OCTAVO_KIND_BACKWARD_CALL);
OCTAVO_AUTHOR_STRUCT(octavo_step_call, slots, OCTAVO_KIND_STEP_CALL);
OCTAVO_AUTHOR_STRUCT(octavo_optimizer_call, workspace, OCTAVO_KIND_OPTIMIZER_CALL);
OCTAVO_AUTHOR_STRUCT(octavo_optimizer_desc, hyper, OCTAVO_KIND_OPTIMIZER_DESC);
OCTAVO_AUTHOR_STRUCT(octavo_norm_call, workspace, OCTAVO_KIND_NORM_CALL);
OCTAVO_AUTHOR_STRUCT(octavo_prepare_call, max_norm, OCTAVO_KIND_PREPARE_CALL);
OCTAVO_AUTHOR_STRUCT(octavo_parameter_call, workspace, OCTAVO_KIND_PARAMETER_CALL);
OCTAVO_AUTHOR_STRUCT(octavo_gradient_call, state, OCTAVO_KIND_GRADIENT_CALL);
OCTAVO_AUTHOR_STRUCT(octavo_prologue_call, workspace, OCTAVO_KIND_PROLOGUE_CALL);
OCTAVO_AUTHOR_STRUCT(octavo_prologue, rstd, OCTAVO_KIND_PROLOGUE);
OCTAVO_AUTHOR_STRUCT(octavo_fused_forward_call, prologue, OCTAVO_KIND_FUSED_FORWARD_CALL);
OCTAVO_AUTHOR_STRUCT(octavo_grouped_forward_call, workspace, OCTAVO_KIND_GROUPED_FORWARD_CALL);
OCTAVO_AUTHOR_STRUCT(octavo_grouped_backward_call, workspace, OCTAVO_KIND_GROUPED_BACKWARD_CALL);
OCTAVO_AUTHOR_STRUCT(octavo_shard_call, workspace, OCTAVO_KIND_SHARD_CALL);
OCTAVO_AUTHOR_STRUCT(octavo_gathered_call, workspace, OCTAVO_KIND_GATHERED_CALL);
#undef OCTAVO_AUTHOR_STRUCT

[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_struct(const char *name, uint32_t size,
                                                                 uint32_t kind, const void *given) {
  const std::string expected = "expected an " + std::string(name) + " of size " +
                               std::to_string(size) + " or more and kind " + std::to_string(kind);
  if (given == nullptr) throw Error(OCTAVO_INVALID, expected + ", found null");
  const auto *head = static_cast<const uint32_t *>(given);
  throw Error(OCTAVO_INVALID, expected + ", found size " + std::to_string(head[0]) + " and kind " +
                                  std::to_string(head[1]) + "; set both fields before the call");
}

// Throws for null and for another struct. Arguments of other types are not the host's structs.
template <typename T>
void check_struct(T given) {
  if constexpr (std::is_pointer_v<T>) {
    using Struct = HostStruct<std::remove_cv_t<std::remove_pointer_t<T>>>;
    if constexpr (Struct::value)
      if (given == nullptr || given->size < Struct::size || given->kind != Struct::kind)
        refuse_struct(Struct::name, Struct::size, Struct::kind, given);
  }
}

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
