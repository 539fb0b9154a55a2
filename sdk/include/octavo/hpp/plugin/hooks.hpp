// octavo/hpp/plugin/hooks.hpp: the members that OCTAVO_PLUGIN names are those that the class has.
//
// A hook under a misspelt name would leave a default in its place, which does nothing. The names
// are what `override` is to virtual functions: each is in both places or in none.
#ifndef OCTAVO_HPP_PLUGIN_HOOKS_HPP
#define OCTAVO_HPP_PLUGIN_HOOKS_HPP

#include <cstddef>
#include <string_view>

#include "octavo/hpp/plugin/signatures.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace author {

struct Hook {
  enum : uint32_t {
    kCheck = 1,
    kTakeDtypes = 2,
    kTakeParameter = 4,
    kTakeLinear = 8,
    kDeclare = 16,
    kCastWeight = 32,
    kForward = 64,
    kBackward = 128,
    kFinishStep = 256,
    kStep = 512,
    kWrite = 1024,
    kReduce = 2048,
    kNoHook = 4096  // a name that is none of them
  };
};

// The names behind the first comma of "Mine, declare, forward".
constexpr uint32_t hooks_of(std::string_view text) {
  constexpr std::string_view names[] = {
      "check",   "take_dtypes", "take_parameter", "take_linear", "declare", "cast_weight",
      "forward", "backward",    "finish_step",    "step",        "write",   "reduce"};
  uint32_t hooks = 0;
  for (size_t comma = text.find(','); comma != std::string_view::npos; comma = text.find(',')) {
    text.remove_prefix(text.find_first_not_of(' ', comma + 1));
    const std::string_view name = text.substr(0, text.find_first_of(" ,"));
    uint32_t bit = 1;
    for (const std::string_view known : names) {
      if (name == known) break;
      bit <<= 1;
    }
    hooks |= bit;
  }
  return hooks;
}

// What a class that derives from Backend has of its own.
template <typename T>
constexpr uint32_t own_hooks() {
  using Base = Backend<T, typename T::Options>;
  uint32_t own = Hook::kDeclare | Hook::kForward | Hook::kBackward;
  const auto add = [&own](bool is_own, uint32_t hook) { own |= is_own ? hook : 0; };
#define OCTAVO_AUTHOR_OWN(member)                                           \
  !std::is_same_v<std::integral_constant<decltype(&T::member), &T::member>, \
                  std::integral_constant<decltype(&Base::member), &Base::member>>
  add(OCTAVO_AUTHOR_OWN(check), Hook::kCheck);
  add(OCTAVO_AUTHOR_OWN(take_dtypes), Hook::kTakeDtypes);
  add(OCTAVO_AUTHOR_OWN(take_parameter), Hook::kTakeParameter);
  add(OCTAVO_AUTHOR_OWN(take_linear), Hook::kTakeLinear);
  add(OCTAVO_AUTHOR_OWN(cast_weight), Hook::kCastWeight);
  add(OCTAVO_AUTHOR_OWN(finish_step), Hook::kFinishStep);
#undef OCTAVO_AUTHOR_OWN
  add(Signatures<T>::has_step, Hook::kStep);
  add(Signatures<T>::has_write, Hook::kWrite);
  add(Signatures<T>::has_reduce, Hook::kReduce);
  return own;
}

// A class that has the verbs of the contract itself, or a mistake that signatures.hpp states, has
// no names to compare.
template <typename T, uint32_t named, typename = void>
struct Hooks {
  static constexpr bool checked = true;
};
template <typename T, uint32_t named>
struct Hooks<T, named,
             std::enable_if_t<std::is_base_of_v<Backend<T, typename T::Options>, T> &&
                              Signatures<T>::hold>> {
  static constexpr bool checked = true;
  static constexpr uint32_t own = own_hooks<T>();
  static constexpr bool missing(uint32_t hook) { return (named & ~own & hook) != 0; }
  static constexpr bool unnamed(uint32_t hook) { return named != 0 && (own & ~named & hook) != 0; }

  static_assert(named != 0,
                "name the members of the class that the base class calls, as in "
                "OCTAVO_PLUGIN(Mine, declare, cast_weight, forward, backward)");
  static_assert(!missing(Hook::kNoHook),
                "OCTAVO_PLUGIN names a member that the base class never calls; it calls check, "
                "take_dtypes, take_parameter, take_linear, declare, cast_weight, forward, "
                "backward, finish_step, step, write and reduce");
#define OCTAVO_AUTHOR_HOOK(hook, name)                                                     \
  static_assert(!missing(hook), "OCTAVO_PLUGIN names " name                                \
                                ", which the class does not have; is it misspelt there?"); \
  static_assert(!unnamed(hook), "the class has " name                                      \
                                ", which OCTAVO_PLUGIN does not name; "                    \
                                "add it to the names")
  OCTAVO_AUTHOR_HOOK(Hook::kCheck, "check");
  OCTAVO_AUTHOR_HOOK(Hook::kTakeDtypes, "take_dtypes");
  OCTAVO_AUTHOR_HOOK(Hook::kTakeParameter, "take_parameter");
  OCTAVO_AUTHOR_HOOK(Hook::kTakeLinear, "take_linear");
  OCTAVO_AUTHOR_HOOK(Hook::kDeclare, "declare");
  OCTAVO_AUTHOR_HOOK(Hook::kCastWeight, "cast_weight");
  OCTAVO_AUTHOR_HOOK(Hook::kForward, "forward");
  OCTAVO_AUTHOR_HOOK(Hook::kBackward, "backward");
  OCTAVO_AUTHOR_HOOK(Hook::kFinishStep, "finish_step");
  OCTAVO_AUTHOR_HOOK(Hook::kStep, "step");
  OCTAVO_AUTHOR_HOOK(Hook::kWrite, "write");
  OCTAVO_AUTHOR_HOOK(Hook::kReduce, "reduce");
#undef OCTAVO_AUTHOR_HOOK
};

}  // namespace author
}  // namespace octavo
#pragma GCC visibility pop

#endif
