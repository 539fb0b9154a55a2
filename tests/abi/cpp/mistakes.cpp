// Backends with one mistake each. The compiler answers with one error for each line "expect:", and
// with nothing else; mistakes.sh compares. Not part of the build.
#include "octavo/plugin.hpp"

namespace {

using namespace octavo::plugin;

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
  Algorithm algorithm() const { return kAdamW; }
  void step(Pass &, const StepGroup &) const {}
  void write(Pass &, const WriteCall &) const {}
  void reduce(Reduction &) const {}
};

struct CorrectOwning : Owning<CorrectOwning> {};

// expect: expected Algorithm algorithm() const, which names the optimizer and its hyperparameters
struct NoAlgorithm : Least<NoAlgorithm>, Optimizer<NoAlgorithm> {
  void step(Pass &, const StepGroup &) const {}
  void write(Pass &, const WriteCall &) const {}
};

// expect: expected void step(Pass &, const StepGroup &) const
struct NoStep : Least<NoStep>, Optimizer<NoStep> {
  Algorithm algorithm() const { return kAdamW; }
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

// expect: expected a backend with step() or write() to be an plugin::Optimizer
struct NoOptimizer : Least<NoOptimizer> {
  void step(Pass &, const StepGroup &) const {}
};

// expect: expected a backend with reduce() to be an plugin::Gradients
struct NoGradients : Least<NoGradients> {
  void reduce(Reduction &) const {}
};

// expect: expected WeightCast weight_cast(const WeightCall &) const
struct OtherWeightCast : Least<OtherWeightCast>, Shards<OtherWeightCast> {
  WeightCast weight_cast(const Parameter &) const { return {}; }
};

// expect: expected a backend with weight_cast() to be an plugin::Shards
struct NoShards : Least<NoShards> {
  WeightCast weight_cast(const WeightCall &) const { return {}; }
};

// expect: end_step is the verb of the base class; the member that it calls is finish_step(
struct VerbForHook : Least<VerbForHook> {
  void end_step(Pass &, const StepCall &) const {}
};

// expect: quantize_weight is the verb of the base class; the member that it calls is cast_weight(
struct OtherVerbForHook : Least<OtherVerbForHook> {
  void quantize_weight(Pass &, const WeightCall &) const {}
};

// The names of OCTAVO_PLUGIN.
struct CorrectNames : Owning<CorrectNames> {
  static void check(const Device &, const NoOptions &, Verdicts &) {}
  void cast_weight(Pass &, const WeightCall &) const {}
};

// expect: OCTAVO_PLUGIN names finish_step, which the class does not have; is it misspelt there?
struct MisspeltHook : Least<MisspeltHook> {
  void finish_steps(Pass &, const StepCall &) const {}
};

// expect: OCTAVO_PLUGIN names check, which the class does not have; is it misspelt there?
struct MisspeltStatic : Least<MisspeltStatic> {
  static void chek(const Device &, const NoOptions &, Verdicts &) {}
};

// expect: OCTAVO_PLUGIN names a member that the base class never calls; it calls check
struct MisspeltTwice : Least<MisspeltTwice> {
  Verdict take_paramter(const Parameter &) const { return accept(); }
};

// expect: the class has take_linear, which OCTAVO_PLUGIN does not name; add it to the names
struct Unnamed : Least<Unnamed> {
  Verdict take_linear(const Linear &, const Parameter &) const { return accept(); }
};

// expect: the class has check, which OCTAVO_PLUGIN does not name; add it to the names
struct UnnamedStatic : Least<UnnamedStatic> {
  static void check(const Device &, const NoOptions &, Verdicts &) {}
};

// expect: the class has reduce, which OCTAVO_PLUGIN does not name; add it to the names
struct UnnamedStage : Owning<UnnamedStage> {};

// expect: name the members of the class that the base class calls, as in OCTAVO_PLUGIN(Mine
struct WithoutNames : Least<WithoutNames> {
  void cast_weight(Pass &, const WeightCall &) const {}
};

}  // namespace

// As OCTAVO_PLUGIN does; it can be written once in a file.
#define NAMES(...) Hooks<OCTAVO_AUTHOR_FIRST(__VA_ARGS__, ), hooks_of(#__VA_ARGS__)>::checked
static_assert(NAMES(CorrectNames, check, declare, cast_weight, forward, backward, step, write,
                    reduce));
static_assert(NAMES(MisspeltHook, declare, forward, backward, finish_step));
static_assert(NAMES(MisspeltStatic, check, declare, forward, backward));
static_assert(NAMES(MisspeltTwice, declare, take_paramter, forward, backward));
static_assert(NAMES(Unnamed, declare, forward, backward));
static_assert(NAMES(UnnamedStatic, declare, forward, backward));
static_assert(NAMES(UnnamedStage, declare, forward, backward, step, write));
static_assert(NAMES(WithoutNames));

template <typename T>
constexpr auto kUse = &Tables<T>::get_interface;
const void *use(octavo_str id) {
  kUse<CorrectOwning>(id), kUse<NoStep>(id), kUse<OtherWrite>(id), kUse<OtherReduce>(id);
  kUse<NoAlgorithm>(id);
  kUse<NoOptimizer>(id), kUse<NoGradients>(id), kUse<VerbForHook>(id);
  kUse<OtherVerbForHook>(id), kUse<OtherWeightCast>(id), kUse<NoShards>(id);
  kUse<Correct>(id), kUse<Misspelt>(id), kUse<NotConst>(id), kUse<OtherArgument>(id);
  return kUse<FewerArguments>(id), kUse<OtherResult>(id), kUse<OtherOptions>(id), kUse<Private>(id);
}
