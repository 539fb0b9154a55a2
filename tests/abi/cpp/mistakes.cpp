// Backends with one mistake each. The compiler answers with one error for each line "expect:", and
// with nothing else; mistakes.sh compares. Not part of the build.
#include "octavo/plugin.hpp"

namespace {

using namespace octavo::author;

// What a backend needs at least.
template <typename Self>
struct Least : Backend<Self> {
  void declare(Slots &) {}
  void forward(Pass &, const ForwardCall &) const {}
  void backward(Pass &, const BackwardCall &) const {}
};

struct Correct : Least<Correct> {};

// expect: expected void forward(Pass &, const ForwardCall &) const
struct Misspelt : Backend<Misspelt> {
  void declare(Slots &) {}
  void forwrd(Pass &, const ForwardCall &) const {}
  void backward(Pass &, const BackwardCall &) const {}
};

// expect: expected void backward(Pass &, const BackwardCall &) const
struct NotConst : Least<NotConst> {
  void backward(Pass &, const BackwardCall &) {}
};

// expect: expected void cast_weight(Pass &, const WeightCall &) const
struct OtherArgument : Least<OtherArgument> {
  void cast_weight(Pass &, const ForwardCall &) const {}
};

// expect: expected void finish_step(Pass &, const StepCall &) const
struct FewerArguments : Least<FewerArguments> {
  void finish_step(Pass &) const {}
};

// expect: expected Verdict take_linear(const Linear &, const Parameter &) const
struct OtherResult : Least<OtherResult> {
  bool take_linear(const Linear &, const Parameter &) const { return true; }
};

// expect: expected static void check(const Device &, const Options &, Verdicts &)
struct OtherOptions : Least<OtherOptions> {
  static void check(const Device &, int, Verdicts &) {}
};

// expect: expected void declare(Slots &)
class Private : public Least<Private> {
  void declare(Slots &) {}
};

// With both optional interfaces that have stages.
template <typename Self>
struct Owning : Least<Self>, Optimizer<Self>, Gradients<Self> {
  void step(Pass &, const StepGroup &) const {}
  void write(Pass &, const WriteCall &) const {}
  void reduce(Reduction &) const {}
};

struct CorrectOwning : Owning<CorrectOwning> {};

// expect: expected void step(Pass &, const StepGroup &) const
struct NoStep : Least<NoStep>, Optimizer<NoStep> {
  void setp(Pass &, const StepGroup &) const {}
  void write(Pass &, const WriteCall &) const {}
};

// expect: expected void write(Pass &, const WriteCall &) const
struct OtherWrite : Owning<OtherWrite> {
  octavo_status write(Pass &, const WriteCall &) const { return OCTAVO_OK; }
};

// expect: expected void reduce(Reduction &) const
struct OtherReduce : Owning<OtherReduce> {
  void reduce(Reduction &) {}
};

// expect: expected a backend with step() or write() to be an author::Optimizer
struct NoOptimizer : Least<NoOptimizer> {
  void step(Pass &, const StepGroup &) const {}
};

// expect: expected a backend with reduce() to be an author::Gradients
struct NoGradients : Least<NoGradients> {
  void reduce(Reduction &) const {}
};

}  // namespace

template <typename T>
constexpr auto kUse = &Tables<T>::get_interface;
const void *use(octavo_str id) {
  kUse<CorrectOwning>(id), kUse<NoStep>(id), kUse<OtherWrite>(id), kUse<OtherReduce>(id);
  kUse<NoOptimizer>(id), kUse<NoGradients>(id);
  kUse<Correct>(id), kUse<Misspelt>(id), kUse<NotConst>(id), kUse<OtherArgument>(id);
  return kUse<FewerArguments>(id), kUse<OtherResult>(id), kUse<OtherOptions>(id), kUse<Private>(id);
}
