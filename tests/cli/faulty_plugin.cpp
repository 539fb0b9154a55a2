// A backend that trains, with an option that makes it wrong: current scaling, as in
// samples/current_plugin. What octavo plugin try must find.
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "octavo/plugin.hpp"

namespace {

using namespace octavo::plugin;

enum class Fault {
  kNone,
  kForwardNothing,
  kForwardTwice,  // y is twice the product
  kNoBias,
  kBackwardNothing,
  kDxTwice,
  kDwOverwrites,
  kDbNever,
  kStaleWeights,  // the cache keeps the weights of the first step
  // Between the sizes of the probe and the ones of linear_plan.
  kCrashes,
  kExits,
  kHangs
};

struct Options {
  Fault fault = Fault::kNone;

  static void list(OptionList<Options> &l) {
    l.add("fault", &Options::fault, "what is wrong")
        .choices({"none", "forward_nothing", "forward_twice", "no_bias", "backward_nothing",
                  "dx_twice", "dw_overwrites", "db_never", "stale_weights", "crashes", "exits",
                  "hangs"});
  }
};

class Faulty : public Backend<Faulty, Options> {
 public:
  void declare(Slots &s) {
    nonfinite_ = s.nonfinite();
    weight_ = s.native_weight({OCTAVO_VERB_QUANTIZE_WEIGHT});
    cache_ = s.weight_codes("weight_cache", OCTAVO_E4M3FN, kBothDirections);
  }
  void cast_weight(Pass &p, const WeightCall &c) const {
    static std::atomic<int> calls{0};
    if (is(Fault::kStaleWeights) && !p.measuring() && ++calls > 40) return;
    Codes w = c[cache_];
    p.cast(c[weight_], w);
  }
  void forward(Pass &p, const ForwardCall &c) const {
    const bool between = !p.measuring() && c.m() > 16 && c.m() < 256;
    if (is(Fault::kCrashes) && between) std::abort();
    if (is(Fault::kExits) && between) std::exit(0);
    while (is(Fault::kHangs) && between) pause();
    Codes x = p.codes(c.m(), c.k(), OCTAVO_E4M3FN, kRows);
    p.cast(c.x(), x);
    if (is(Fault::kForwardNothing) && !p.measuring()) return;
    const octavo_tensor *bias = is(Fault::kNoBias) ? nullptr : c.bias();
    p.multiply(x.by_rows(), c[cache_].by_rows(), c.y(), bias);
    if (is(Fault::kForwardTwice))
      p.multiply(x.by_rows(), c[cache_].by_rows(), c.y(), nullptr, kAccumulate);
  }
  void backward(Pass &p, const BackwardCall &c) const {
    Codes dy = p.codes(c.m(), c.n(), OCTAVO_E5M2, kBothDirections);
    p.cast(c.dy(), dy, {c[nonfinite_]});
    if (is(Fault::kBackwardNothing) && !p.measuring()) return;
    if (c.wants_dx()) {
      p.multiply(dy.by_rows(), c[cache_].by_columns(), c.dx());
      if (is(Fault::kDxTwice))
        p.multiply(dy.by_rows(), c[cache_].by_columns(), c.dx(), nullptr, kAccumulate);
    }
    Codes x = p.codes(c.m(), c.k(), OCTAVO_E4M3FN, kColumns);
    p.cast(c.x(), x);
    if (c.wants_dw())
      p.multiply(dy.by_columns(), x.by_columns(), c.dw(), nullptr,
                 c.accumulates() && !is(Fault::kDwOverwrites));
    if (c.wants_db() && !is(Fault::kDbNever)) p.add_column_sums(c.dy(), c.db(), c.accumulates());
  }

 private:
  bool is(Fault fault) const { return options().fault == fault; }

  FloatSlot nonfinite_;
  MatrixSlot weight_;
  CodesSlot cache_;
};

}  // namespace

OCTAVO_PLUGIN(Faulty, declare, cast_weight, forward, backward)
