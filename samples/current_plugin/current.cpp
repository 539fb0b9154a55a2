// current.cpp: FP8 linear layers with current scaling, E4M3 forward and E5M2 backward, in C++.
//
// It says what memory it needs and which casts and products make a layer; octavo/plugin.hpp does
// the rest: options, verdicts, seal, sizes, padding, tables and the exception barrier.
#include "octavo/plugin.hpp"

namespace {

using namespace octavo::plugin;

// [options]
struct Options {
  bool weight_cache = true;

  static void list(OptionList<Options> &l) {
    l.add("weight_cache", &Options::weight_cache,
          "keeps FP8 codes of the weights between steps; false: casts them in every call");
  }
};
// [/options]

class Current : public Backend<Current, Options> {
 public:
  // [declare]
  void declare(Slots &s) {
    s.nonfinite();
    if (options().weight_cache) {
      weight_ = s.native_weight({OCTAVO_VERB_QUANTIZE_WEIGHT});
      cache_ = s.weight_codes("weight_cache", OCTAVO_E4M3FN, kBothDirections);
    } else {
      weight_ = s.native_weight({OCTAVO_VERB_FORWARD, OCTAVO_VERB_BACKWARD});
    }
  }
  // [/declare]

  // [verbs]
  void cast_weight(Pass &p, const WeightCall &c) const {
    if (!options().weight_cache) return;
    Codes w = c[cache_];
    p.cast(c[weight_], w);
  }

  // y = x w^T + bias
  void forward(Pass &p, const ForwardCall &c) const {
    Codes x = c.keeps() ? p.saved_columns(c.k(), OCTAVO_E4M3FN) : Codes();
    p.add_rows(x, c.m(), c.k(), OCTAVO_E4M3FN);
    p.cast(c.x(), x);
    const Codes w = weight(p, c, c.n(), c.k(), kRows);
    p.multiply(x.by_rows(), w.by_rows(), c.y(), c.bias());
  }

  // dx = dy w, dw += dy^T x, db += column sums of dy
  void backward(Pass &p, const BackwardCall &c) const {
    Codes dy = p.codes(c.m(), c.n(), OCTAVO_E5M2, c.wants_dw() ? kBothDirections : kRows);
    p.cast(c.dy(), dy);
    if (c.wants_dx()) {
      const Codes w = weight(p, c, c.n(), c.k(), kColumns);
      p.multiply(dy.by_rows(), w.by_columns(), c.dx());
    }
    if (c.wants_dw()) {
      const Codes x = p.saved_columns(c.k(), OCTAVO_E4M3FN);
      p.multiply(dy.by_columns(), x.by_columns(), c.dw(), nullptr, c.accumulates());
    }
    if (c.wants_db()) p.add_column_sums(c.dy(), c.db(), c.accumulates());
  }
  // [/verbs]

 private:
  // The cached codes, or codes of this call's own.
  Codes weight(Pass &p, const Addresses &c, int64_t n, int64_t k, Directions directions) const {
    if (options().weight_cache) return c[cache_];
    Codes w = p.codes(n, k, OCTAVO_E4M3FN, directions);
    p.cast(c[weight_], w);
    return w;
  }

  MatrixSlot weight_;
  CodesSlot cache_;
};

}  // namespace

// [plugin]
OCTAVO_PLUGIN(Current, declare, cast_weight, forward, backward)
// [/plugin]
