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
namespace plugin {

// Every member that the base class calls.
#define OCTAVO_AUTHOR_EACH_HOOK(hook)                                                         \
  hook(check) hook(take_dtypes) hook(take_parameter) hook(take_linear) hook(declare)          \
      hook(cast_weight) hook(forward) hook(backward) hook(finish_step) hook(step) hook(write) \
          hook(reduce) hook(weight_cast)

// The number of a hook; the masks below have bit 1 << number.
struct Hook {
#define OCTAVO_AUTHOR_NUMBER(hook) hook,
  enum : uint32_t { OCTAVO_AUTHOR_EACH_HOOK(OCTAVO_AUTHOR_NUMBER) no_hook };
#undef OCTAVO_AUTHOR_NUMBER
};

// The names behind the first comma of "Mine, declare, forward".
constexpr uint32_t hooks_of(std::string_view text) {
#define OCTAVO_AUTHOR_NAME(hook) #hook,
  constexpr std::string_view names[] = {OCTAVO_AUTHOR_EACH_HOOK(OCTAVO_AUTHOR_NAME)};
#undef OCTAVO_AUTHOR_NAME
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
  uint32_t own = 1u << Hook::declare | 1u << Hook::forward | 1u << Hook::backward;
  const auto add = [&own](bool is_own, uint32_t hook) { own |= is_own ? 1u << hook : 0u; };
#define OCTAVO_AUTHOR_OWN(member)                                           \
  !std::is_same_v<std::integral_constant<decltype(&T::member), &T::member>, \
                  std::integral_constant<decltype(&Base::member), &Base::member>>
  add(OCTAVO_AUTHOR_OWN(check), Hook::check);
  add(OCTAVO_AUTHOR_OWN(take_dtypes), Hook::take_dtypes);
  add(OCTAVO_AUTHOR_OWN(take_parameter), Hook::take_parameter);
  add(OCTAVO_AUTHOR_OWN(take_linear), Hook::take_linear);
  add(OCTAVO_AUTHOR_OWN(cast_weight), Hook::cast_weight);
  add(OCTAVO_AUTHOR_OWN(finish_step), Hook::finish_step);
#undef OCTAVO_AUTHOR_OWN
  add(Signatures<T>::has_step, Hook::step);
  add(Signatures<T>::has_write, Hook::write);
  add(Signatures<T>::has_reduce, Hook::reduce);
  add(Signatures<T>::has_weight_cast, Hook::weight_cast);
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
  static constexpr bool missing(uint32_t hook) { return (named & ~own & 1u << hook) != 0; }
  static constexpr bool unnamed(uint32_t hook) {
    return named != 0 && (own & ~named & 1u << hook) != 0;
  }

  static_assert(named != 0,
                "name the members of the class that the base class calls, as in "
                "OCTAVO_PLUGIN(Mine, declare, cast_weight, forward, backward)");
  static_assert(!missing(Hook::no_hook),
                "OCTAVO_PLUGIN names a member that the base class never calls; it calls check, "
                "take_dtypes, take_parameter, take_linear, declare, cast_weight, forward, "
                "backward, finish_step, step, write, reduce and weight_cast");
#define OCTAVO_AUTHOR_COMPARE(hook)                                                              \
  static_assert(!missing(Hook::hook), "OCTAVO_PLUGIN names " #hook                               \
                                      ", which the class does not have; is it misspelt there?"); \
  static_assert(!unnamed(Hook::hook), "the class has " #hook                                     \
                                      ", which OCTAVO_PLUGIN does not name; "                    \
                                      "add it to the names");
  OCTAVO_AUTHOR_EACH_HOOK(OCTAVO_AUTHOR_COMPARE)
#undef OCTAVO_AUTHOR_COMPARE
};

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
