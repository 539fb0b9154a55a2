// octavo/plugin.hpp: a backend as a C++17 class. Header only, over octavo/plugin.h.
//
//   struct Options { ... };                                   options.hpp: stated once
//   class Mine : public octavo::plugin::Backend<Mine, Options> {
//    public:
//     void declare(octavo::plugin::Slots &s);                 slots.hpp: memory, by handle
//     void cast_weight(Pass &p, const WeightCall &c) const;   optional: a weight cache
//     void forward(Pass &p, const ForwardCall &c) const;      pass.hpp: workspace and kernels
//     void backward(Pass &p, const BackwardCall &c) const;
//   };
//   OCTAVO_PLUGIN(Mine, declare, cast_weight, forward, backward)
//
// OCTAVO_PLUGIN names every member that replaces one of the base class, so that one under a
// misspelt name is an error of the compiler and not a default that does nothing.
//
// What must not go wrong: the three verbs never read an address, which may be a GPU's, and
// depend on nothing but the call and the options: they run without memory, too, to find the sizes.
//
// Id and version come from the build: octavo_add_plugin() defines OCTAVO_PLUGIN_ID and
// OCTAVO_PLUGIN_VERSION and writes the same two into the manifest.
#ifndef OCTAVO_PLUGIN_HPP
#define OCTAVO_PLUGIN_HPP

#if __cplusplus < 201703L
#error "octavo/plugin.hpp needs C++17: compile with -std=c++17 or later"
// There is no such file: compilers stop here, before a page of what follows from it.
#include "octavo/hpp/plugin/needs_cpp17.hpp"
#else

#include "octavo/hpp/plugin/fused.hpp"
#include "octavo/hpp/plugin/hooks.hpp"
#include "octavo/hpp/plugin/scaling.hpp"
#include "octavo/hpp/plugin/tables.hpp"

// The plugin's one symbol: OCTAVO_PLUGIN(Mine, <members>...) for a class that derives from
// octavo::plugin::Backend, OCTAVO_PLUGIN(Mine) for one that has the verbs of the contract itself.
// Once, at global scope.
#define OCTAVO_AUTHOR_FIRST(first, ...) first
#if defined(OCTAVO_PLUGIN_ID) && defined(OCTAVO_PLUGIN_VERSION)
#define OCTAVO_PLUGIN(...)                                                                  \
  octavo_status octavo_plugin_query_1(const octavo_host *host, const octavo_plugin **out) { \
    using Type = OCTAVO_AUTHOR_FIRST(__VA_ARGS__, );                                        \
    constexpr uint32_t named = ::octavo::plugin::hooks_of(#__VA_ARGS__);                    \
    static_assert(::octavo::plugin::Hooks<Type, named>::checked, "");                       \
    static const octavo_plugin plugin = {sizeof(octavo_plugin),                             \
                                         OCTAVO_KIND_PLUGIN,                                \
                                         OCTAVO_ABI_MAJOR,                                  \
                                         OCTAVO_TARGET_MINOR,                               \
                                         OCTAVO_STR(OCTAVO_PLUGIN_ID),                      \
                                         OCTAVO_STR(OCTAVO_PLUGIN_VERSION),                 \
                                         ::octavo::plugin::Tables<Type>::get_interface};    \
    return ::octavo::plugin::answer_query(host, &plugin, out);                              \
  }
#else
#define OCTAVO_PLUGIN(...)                                                        \
  static_assert(sizeof(OCTAVO_AUTHOR_FIRST(__VA_ARGS__, )) == 0,                  \
                "build with octavo_add_plugin(), or define OCTAVO_PLUGIN_ID and " \
                "OCTAVO_PLUGIN_VERSION as the texts that the manifest has")
#endif

#endif  // C++17
#endif
