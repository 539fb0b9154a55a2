// A backend that takes x, y, dy and dx of one dtype only, as kernels of a device may.
#include "octavo/plugin.hpp"

namespace {

using namespace octavo::plugin;

enum class Dtype { kFloat32, kBfloat16, kFloat16 };

struct Options {
  Dtype takes = Dtype::kBfloat16;

  static void list(OptionList<Options> &l) {
    l.add("takes", &Options::takes, "the dtype of x, y, dy and dx")
        .choices({"float32", "bfloat16", "float16"});
  }
};

class Narrow : public Backend<Narrow, Options> {
 public:
  void declare(Slots &s) {
    s.nonfinite();
    weight_ = s.native_weight({OCTAVO_VERB_FORWARD, OCTAVO_VERB_BACKWARD});
    if (options().takes != Dtype::kFloat32) decline_dtypes({OCTAVO_F32});
    if (options().takes != Dtype::kBfloat16) decline_dtypes({OCTAVO_BF16});
    if (options().takes != Dtype::kFloat16) decline_dtypes({OCTAVO_F16});
  }

  void cast_weight(Pass &, const WeightCall &) const {}

  void forward(Pass &p, const ForwardCall &c) const {
    Codes x = c.keeps() ? p.saved_columns(c.k(), OCTAVO_E4M3FN) : Codes();
    p.add_rows(x, c.m(), c.k(), OCTAVO_E4M3FN);
    p.cast(c.x(), x);
    Codes w = p.codes(c.n(), c.k(), OCTAVO_E4M3FN, kRows);
    p.cast(c[weight_], w);
    p.multiply(x.by_rows(), w.by_rows(), c.y(), c.bias());
  }

  void backward(Pass &p, const BackwardCall &c) const {
    Codes dy = p.codes(c.m(), c.n(), OCTAVO_E5M2, c.wants_dw() ? kBothDirections : kRows);
    p.cast(c.dy(), dy);
    if (c.wants_dx()) {
      Codes w = p.codes(c.n(), c.k(), OCTAVO_E4M3FN, kColumns);
      p.cast(c[weight_], w);
      p.multiply(dy.by_rows(), w.by_columns(), c.dx());
    }
    if (c.wants_dw()) {
      const Codes x = p.saved_columns(c.k(), OCTAVO_E4M3FN);
      p.multiply(dy.by_columns(), x.by_columns(), c.dw(), nullptr, c.accumulates());
    }
    if (c.wants_db()) p.add_column_sums(c.dy(), c.db(), c.accumulates());
  }

 private:
  MatrixSlot weight_;
};

}  // namespace

OCTAVO_PLUGIN(Narrow, declare, cast_weight, forward, backward)
