// octavo/hpp/plugin/tables.hpp: the tables of the contract, filled from a class with its verbs.
//
// Every function goes through the exception barrier. An optional interface is present when the
// class has its verbs: every Backend has octavo.grouped/1, and one that derives from Optimizer,
// Gradients, FusedBackend or Shards has theirs.
#ifndef OCTAVO_HPP_PLUGIN_TABLES_HPP
#define OCTAVO_HPP_PLUGIN_TABLES_HPP

#include <memory>
#include <type_traits>

#include "octavo/hpp/plugin/host_structs.hpp"
#include "octavo/hpp/plugin/signatures.hpp"
#include "octavo/plugin.h"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

// octavo_session is opaque to everybody; for these tables it is a T.
template <typename T>
T *session_of(octavo_session *s) {
  return reinterpret_cast<T *>(s);
}
template <typename T>
const T *session_of(const octavo_session *s) {
  return reinterpret_cast<const T *>(s);
}

OCTAVO_AUTHOR_DETECT(HasFused, fused_forward);
OCTAVO_AUTHOR_DETECT(HasGrouped, grouped_forward);
OCTAVO_AUTHOR_DETECT(HasShard, shard_place);
#undef OCTAVO_AUTHOR_DETECT

// T::method as a function of a table: the session in front, the barrier around it, and a check that
// the host's struct is the one of the verb.
template <typename T, const char *name, auto method>
struct Verb;
template <typename T, const char *name, typename Class, typename... Arguments,
          octavo_status (Class::*method)(Arguments...)>
struct Verb<T, name, method> {
  static octavo_status call(octavo_session *s, Arguments... arguments) noexcept {
    T *self = session_of<T>(s);
    return guarded(self->device().host(), name, [&] {
      (check_struct(arguments), ...);
      return (self->*method)(arguments...);
    });
  }
};
template <typename T, const char *name, typename Class, typename... Arguments,
          octavo_status (Class::*method)(Arguments...) const>
struct Verb<T, name, method> {
  static octavo_status call(const octavo_session *s, Arguments... arguments) noexcept {
    const T *self = session_of<T>(s);
    return guarded(self->device().host(), name, [&] {
      (check_struct(arguments), ...);
      return (self->*method)(arguments...);
    });
  }
};

// The same for what a host calls in every layer and step, with all that it calls compiled into it:
// what a Pass holds stays in registers, and no branch is left that only measuring takes.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wrestrict"  // of std::string's operator+ (GCC bug 105651)
#endif
template <typename T, const char *name, auto method, typename Call>
[[gnu::flatten]] octavo_status hot_verb(const octavo_session *s, const Call *c) noexcept {
  return Verb<T, name, method>::call(s, c);
}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

// The names of the verbs, as diagnostics give them.
namespace verbs {
inline constexpr char add_parameter[] = "add_parameter";
inline constexpr char add_linear[] = "add_linear";
inline constexpr char seal[] = "seal";
inline constexpr char linear_plan[] = "linear_plan";
inline constexpr char quantize_weight[] = "quantize_weight";
inline constexpr char linear_forward[] = "linear_forward";
inline constexpr char linear_backward[] = "linear_backward";
inline constexpr char end_step[] = "end_step";
inline constexpr char describe_optimizer[] = "describe of the optimizer";
inline constexpr char optimizer_workspace[] = "workspace_bytes";
inline constexpr char optimizer_step[] = "optimizer_step";
inline constexpr char sum_of_squares[] = "sum_of_squares";
inline constexpr char prepare_step[] = "prepare_step";
inline constexpr char read_parameter[] = "read_parameter";
inline constexpr char write_parameter[] = "write_parameter";
inline constexpr char plan_reduction[] = "plan_reduction";
inline constexpr char run_stage[] = "run_stage";
inline constexpr char fused_workspace[] = "fused workspace";
inline constexpr char fused_forward[] = "fused linear_forward";
inline constexpr char grouped_plan[] = "grouped plan";
inline constexpr char grouped_forward[] = "grouped forward";
inline constexpr char grouped_backward[] = "grouped backward";
inline constexpr char shard_plan[] = "shard plan";
inline constexpr char shard_measure[] = "shard measure";
inline constexpr char shard_cast[] = "shard cast";
inline constexpr char shard_place[] = "shard place";
}  // namespace verbs

#define OCTAVO_AUTHOR_VERB(verb) Verb<T, verbs::verb, &T::verb>::call
#define OCTAVO_AUTHOR_HOT_VERB(verb) hot_verb<T, verbs::verb, &T::verb>
template <typename T, bool well_formed = Signatures<T>::hold>
struct Tables {
  static octavo_status list_options(const octavo_option_sink *sink) noexcept {
    return guarded(this_plugin.host.load(), "list_options", [&] { return T::list_options(sink); });
  }
  static octavo_status check_session(const octavo_session_desc *d,
                                     const octavo_verdict_sink *sink) noexcept {
    return guarded(d->host, "check_session", [&] { return T::check_session(d, sink); });
  }
  static octavo_status open_session(const octavo_session_desc *d, octavo_session **out) noexcept {
    return guarded(d->host, "open_session", [&] {
      auto session = std::make_unique<T>();
      session->open(*d);
      *out = reinterpret_cast<octavo_session *>(session.release());
      return octavo_status{OCTAVO_OK};
    });
  }
  static void close_session(octavo_session *s) noexcept { delete session_of<T>(s); }

  static const octavo_backend *backend() {
    static constexpr octavo_backend table = {sizeof(octavo_backend),
                                             OCTAVO_KIND_BACKEND,
                                             list_options,
                                             check_session,
                                             open_session,
                                             OCTAVO_AUTHOR_VERB(add_parameter),
                                             OCTAVO_AUTHOR_VERB(add_linear),
                                             OCTAVO_AUTHOR_VERB(seal),
                                             OCTAVO_AUTHOR_VERB(linear_plan),
                                             OCTAVO_AUTHOR_HOT_VERB(quantize_weight),
                                             OCTAVO_AUTHOR_HOT_VERB(linear_forward),
                                             OCTAVO_AUTHOR_HOT_VERB(linear_backward),
                                             OCTAVO_AUTHOR_HOT_VERB(end_step),
                                             close_session};
    return &table;
  }

  static const octavo_optimizer *optimizer() {
    if constexpr (HasOptimizer<T>::value) {
      static constexpr octavo_optimizer table = {sizeof(octavo_optimizer),
                                                 OCTAVO_KIND_OPTIMIZER,
                                                 OCTAVO_AUTHOR_VERB(describe_optimizer),
                                                 OCTAVO_AUTHOR_VERB(optimizer_workspace),
                                                 OCTAVO_AUTHOR_HOT_VERB(optimizer_step),
                                                 OCTAVO_AUTHOR_VERB(sum_of_squares),
                                                 OCTAVO_AUTHOR_VERB(prepare_step),
                                                 OCTAVO_AUTHOR_VERB(read_parameter),
                                                 OCTAVO_AUTHOR_VERB(write_parameter)};
      return &table;
    } else {
      return nullptr;
    }
  }

  static const octavo_gradients *gradients() {
    if constexpr (HasGradients<T>::value) {
      static constexpr octavo_gradients table = {sizeof(octavo_gradients), OCTAVO_KIND_GRADIENTS,
                                                 OCTAVO_AUTHOR_VERB(plan_reduction),
                                                 OCTAVO_AUTHOR_VERB(run_stage)};
      return &table;
    } else {
      return nullptr;
    }
  }

  static const octavo_fused *fused() {
    if constexpr (HasFused<T>::value) {
      static constexpr octavo_fused table = {sizeof(octavo_fused), OCTAVO_KIND_FUSED,
                                             OCTAVO_AUTHOR_VERB(fused_workspace),
                                             OCTAVO_AUTHOR_VERB(fused_forward)};
      return &table;
    } else {
      return nullptr;
    }
  }

  static const octavo_grouped *grouped() {
    if constexpr (HasGrouped<T>::value) {
      static constexpr octavo_grouped table = {
          sizeof(octavo_grouped), OCTAVO_KIND_GROUPED, OCTAVO_AUTHOR_VERB(grouped_plan),
          OCTAVO_AUTHOR_VERB(grouped_forward), OCTAVO_AUTHOR_VERB(grouped_backward)};
      return &table;
    } else {
      return nullptr;
    }
  }

  static const octavo_shard *shard() {
    if constexpr (HasShard<T>::value) {
      static constexpr octavo_shard table = {
          sizeof(octavo_shard),           OCTAVO_KIND_SHARD,
          OCTAVO_AUTHOR_VERB(shard_plan), OCTAVO_AUTHOR_VERB(shard_measure),
          OCTAVO_AUTHOR_VERB(shard_cast), OCTAVO_AUTHOR_VERB(shard_place)};
      return &table;
    } else {
      return nullptr;
    }
  }

  static const void *get_interface(octavo_str id) noexcept {
    if (view(id) == OCTAVO_BACKEND_ID) return backend();
    if (view(id) == OCTAVO_OPTIMIZER_ID) return optimizer();
    if (view(id) == OCTAVO_GRADIENTS_ID) return gradients();
    if (view(id) == OCTAVO_FUSED_ID) return fused();
    if (view(id) == OCTAVO_GROUPED_ID) return grouped();
    if (view(id) == OCTAVO_SHARD_ID) return shard();
    return nullptr;
  }
};
#undef OCTAVO_AUTHOR_HOT_VERB
#undef OCTAVO_AUTHOR_VERB

// After a line of signatures.hpp there is no more to say.
template <typename T>
struct Tables<T, false> {
  static const void *get_interface(octavo_str) noexcept { return nullptr; }
};

inline octavo_status answer_query(const octavo_host *host, const octavo_plugin *plugin,
                                  const octavo_plugin **out) noexcept {
  if (!OCTAVO_HOST_FITS(host)) return OCTAVO_INCOMPATIBLE;
  this_plugin.host = host;
  this_plugin.id = plugin->id.data;
  *out = plugin;
  return OCTAVO_OK;
}

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
