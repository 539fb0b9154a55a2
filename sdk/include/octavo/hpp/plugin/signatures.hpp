// octavo/hpp/plugin/signatures.hpp: whether a backend has the members that Backend calls, with the
// signatures that it calls them by. What is misspelt or typed otherwise is one line at compile time
// instead of pages of templates, or of a default that runs in silence.
#ifndef OCTAVO_HPP_PLUGIN_SIGNATURES_HPP
#define OCTAVO_HPP_PLUGIN_SIGNATURES_HPP

#include <type_traits>

#include "octavo/hpp/plugin/backend.hpp"
#include "octavo/hpp/plugin/gradients.hpp"
#include "octavo/hpp/plugin/optimizer.hpp"
#include "octavo/hpp/plugin/shard.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

// Whether a pointer to a member, or to a static one, can be called as `Signature`.
template <typename Pointer, typename Signature>
struct IsConstVerb : std::false_type {};
template <typename Class, typename Result, typename... Arguments>
struct IsConstVerb<Result (Class::*)(Arguments...) const, Result(Arguments...)> : std::true_type {};
template <typename Class, typename Result, typename... Arguments>
struct IsConstVerb<Result (Class::*)(Arguments...) const noexcept, Result(Arguments...)>
    : std::true_type {};
template <typename Result, typename... Arguments>
struct IsConstVerb<Result (*)(Arguments...), Result(Arguments...)> : std::true_type {};
template <typename Result, typename... Arguments>
struct IsConstVerb<Result (*)(Arguments...) noexcept, Result(Arguments...)> : std::true_type {};

template <typename Pointer, typename Signature>
struct IsVerb : IsConstVerb<Pointer, Signature> {};
template <typename Class, typename Result, typename... Arguments>
struct IsVerb<Result (Class::*)(Arguments...), Result(Arguments...)> : std::true_type {};
template <typename Class, typename Result, typename... Arguments>
struct IsVerb<Result (Class::*)(Arguments...) noexcept, Result(Arguments...)> : std::true_type {};

// Absent, private and overloaded members have no such pointer.
#define OCTAVO_AUTHOR_SIGNATURE(Name, member, Is)              \
  template <typename T, typename Signature, typename = void>   \
  struct Name : std::false_type {};                            \
  template <typename T, typename Signature>                    \
  struct Name<T, Signature, std::void_t<decltype(&T::member)>> \
      : Is<decltype(&T::member), Signature> {}
OCTAVO_AUTHOR_SIGNATURE(HasCheck, check, IsConstVerb);
OCTAVO_AUTHOR_SIGNATURE(HasTakeDtypes, take_dtypes, IsConstVerb);
OCTAVO_AUTHOR_SIGNATURE(HasTakeParameter, take_parameter, IsConstVerb);
OCTAVO_AUTHOR_SIGNATURE(HasTakeLinear, take_linear, IsConstVerb);
OCTAVO_AUTHOR_SIGNATURE(HasDeclare, declare, IsVerb);
OCTAVO_AUTHOR_SIGNATURE(HasCastWeight, cast_weight, IsConstVerb);
OCTAVO_AUTHOR_SIGNATURE(HasForward, forward, IsConstVerb);
OCTAVO_AUTHOR_SIGNATURE(HasBackward, backward, IsConstVerb);
OCTAVO_AUTHOR_SIGNATURE(HasFinishStep, finish_step, IsConstVerb);
OCTAVO_AUTHOR_SIGNATURE(HasAlgorithm, algorithm, IsConstVerb);
OCTAVO_AUTHOR_SIGNATURE(HasStep, step, IsConstVerb);
OCTAVO_AUTHOR_SIGNATURE(HasWrite, write, IsConstVerb);
OCTAVO_AUTHOR_SIGNATURE(HasReduce, reduce, IsConstVerb);
OCTAVO_AUTHOR_SIGNATURE(HasWeightCast, weight_cast, IsConstVerb);
OCTAVO_AUTHOR_SIGNATURE(HasQuantizeWeight, quantize_weight, IsConstVerb);
OCTAVO_AUTHOR_SIGNATURE(HasEndStep, end_step, IsConstVerb);
#undef OCTAVO_AUTHOR_SIGNATURE

// A class that has the verbs of the contract itself is left alone.
template <typename T, typename = void>
struct Signatures {
  static constexpr bool hold = true;
};
template <typename T>
struct Signatures<T, std::enable_if_t<std::is_base_of<Backend<T, typename T::Options>, T>::value>> {
  using Options = typename T::Options;
  static constexpr bool check = HasCheck<T, void(const Device &, const Options &, Verdicts &)>();
  static constexpr bool take_dtypes = HasTakeDtypes<T, Verdict(const Parameter &)>();
  static constexpr bool take_parameter = HasTakeParameter<T, Verdict(const Parameter &)>();
  static constexpr bool take_linear =
      HasTakeLinear<T, Verdict(const Linear &, const Parameter &)>();
  static constexpr bool declare = HasDeclare<T, void(Slots &)>();
  static constexpr bool cast_weight = HasCastWeight<T, void(Pass &, const WeightCall &)>();
  static constexpr bool forward = HasForward<T, void(Pass &, const ForwardCall &)>();
  static constexpr bool backward = HasBackward<T, void(Pass &, const BackwardCall &)>();
  // The verbs of the contract that call the two hooks with a default.
  static constexpr bool quantize_weight =
      HasQuantizeWeight<T, octavo_status(const octavo_weight_call *)>();
  static constexpr bool end_step = HasEndStep<T, octavo_status(const octavo_step_call *)>();
  static constexpr bool finish_step = HasFinishStep<T, void(Pass &, const StepCall &)>();
  // The stages of an optional interface are there when the class derives from it, and only then.
  static constexpr bool is_optimizer = std::is_base_of<Optimizer<T>, T>::value;
  static constexpr bool has_step = HasStep<T, void(Pass &, const StepGroup &)>();
  static constexpr bool has_write = HasWrite<T, void(Pass &, const WriteCall &)>();
  static constexpr bool algorithm = !is_optimizer || HasAlgorithm<T, Algorithm()>();
  static constexpr bool step = !is_optimizer || has_step;
  static constexpr bool write = !is_optimizer || has_write;
  static constexpr bool optimizer = is_optimizer || !(has_step || has_write);
  static constexpr bool is_reducing = std::is_base_of<Gradients<T>, T>::value;
  static constexpr bool has_reduce = HasReduce<T, void(Reduction &)>();
  static constexpr bool reduce = !is_reducing || has_reduce;
  static constexpr bool gradients = is_reducing || !has_reduce;
  static constexpr bool is_sharding = std::is_base_of<Shards<T>, T>::value;
  static constexpr bool has_weight_cast = HasWeightCast<T, WeightCast(const WeightCall &)>();
  static constexpr bool weight_cast = !is_sharding || has_weight_cast;
  static constexpr bool shards = is_sharding || !has_weight_cast;
  static constexpr bool hold = check && take_dtypes && take_parameter && take_linear && declare &&
                               cast_weight && forward && backward && finish_step && algorithm &&
                               step && write && optimizer && reduce && gradients && weight_cast &&
                               shards && quantize_weight && end_step;

  // "expected": in the class, public, with this name and signature, once.
  static_assert(check, "expected static void check(const Device &, const Options &, Verdicts &)");
  static_assert(take_dtypes, "expected Verdict take_dtypes(const Parameter &) const");
  static_assert(take_parameter, "expected Verdict take_parameter(const Parameter &) const");
  static_assert(take_linear,
                "expected Verdict take_linear(const Linear &, const Parameter &) const");
  static_assert(declare, "expected void declare(Slots &)");
  static_assert(cast_weight, "expected void cast_weight(Pass &, const WeightCall &) const");
  static_assert(forward, "expected void forward(Pass &, const ForwardCall &) const");
  static_assert(backward, "expected void backward(Pass &, const BackwardCall &) const");
  static_assert(finish_step, "expected void finish_step(Pass &, const StepCall &) const");
  static_assert(quantize_weight,
                "quantize_weight is the verb of the base class; the member that it calls is "
                "cast_weight(Pass &, const WeightCall &) const");
  static_assert(end_step,
                "end_step is the verb of the base class; the member that it calls is "
                "finish_step(Pass &, const StepCall &) const");
  static_assert(algorithm,
                "expected Algorithm algorithm() const, which names the optimizer and its "
                "hyperparameters");
  static_assert(step, "expected void step(Pass &, const StepGroup &) const");
  static_assert(write, "expected void write(Pass &, const WriteCall &) const");
  static_assert(optimizer, "expected a backend with step() or write() to be an plugin::Optimizer");
  static_assert(reduce, "expected void reduce(Reduction &) const");
  static_assert(gradients, "expected a backend with reduce() to be an plugin::Gradients");
  static_assert(weight_cast, "expected WeightCast weight_cast(const WeightCall &) const");
  static_assert(shards, "expected a backend with weight_cast() to be an plugin::Shards");
};

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
