// rowwise.cpp: torchao's recipe "rowwise_with_gw_hp": float8_e4m3fn with scales of rows, and the
// gradient of the weight in the host's own precision.
//
// The numerics, and where torchao's revision 36027d8 states them:
//   y  = x w^T   x: a scale for each row; w [N, K]: one for each row; may accumulate in less than
//                fp32 (config.py: from_recipe_name, gemm_config_output)
//   dx = dy w    dy: a scale for each row; w: one for all of it (cast_config_weight_for_grad_input)
//   dw = dy^T x  not cast (cast_config_input_for_grad_weight: disabled)
//   scale        448 / max(amax, 1e-12), rounded down to a power of two (float8_utils.py:
//                amax_to_scale, EPS, round_scales_to_power_of_2)
//   bias         added to the rounded product (float8_linear.py: Float8Linear.forward)
// Two things differ. torchao rounds log2(scale) in float32, which can round up a scale just below a
// power of two; here it always rounds down. And on a GPU torchao rounds y and dx of a float32 or
// float16 model to bfloat16 first, since torch._scaled_mm lacks those results; here nothing does.
#include "octavo/plugin.hpp"

namespace {

using namespace octavo::plugin;

class Rowwise : public Backend<Rowwise> {
 public:
  static void check(const Device &, const Options &, Verdicts &verdicts) {
    verdicts.need_product({OCTAVO_E4M3FN, OCTAVO_PER_ROW}, {OCTAVO_E4M3FN, OCTAVO_PER_ROW});
    verdicts.accept("x, w and dy in float8_e4m3fn with scales of rows, dw in high precision");
  }

  void declare(Slots &s) {
    weight_ = s.native_weight({OCTAVO_VERB_QUANTIZE_WEIGHT});
    forward_ = s.weight_codes("weight_rows", OCTAVO_E4M3FN, kRows, OCTAVO_PER_ROW);
    backward_ = s.weight_codes("weight_columns", OCTAVO_E4M3FN, kColumns);
    nonfinite_ = s.nonfinite();
  }

  void cast_weight(Pass &p, const WeightCall &c) const {
    Codes rows = c[forward_], columns = c[backward_];
    p.cast(c[weight_], rows, power_of_two());
    p.cast(c[weight_], columns, power_of_two());
  }

  // y = x w^T, rounded, + bias
  void forward(Pass &p, const ForwardCall &c) const {
    Codes x = p.codes(c.m(), c.k(), OCTAVO_E4M3FN, kRows, OCTAVO_PER_ROW);
    p.cast(c.x(), x, power_of_two());
    p.multiply(x.by_rows(), c[forward_].by_rows(), c.y(), c.bias(), kFastAccumulation | kBiasAfter);
  }

  // dx = dy w, dw += dy^T x, db += column sums of dy
  void backward(Pass &p, const BackwardCall &c) const {
    if (c.wants_dx()) {
      Codes dy = p.codes(c.m(), c.n(), OCTAVO_E4M3FN, kRows, OCTAVO_PER_ROW);
      p.cast(c.dy(), dy, power_of_two());
      p.multiply(dy.by_rows(), c[backward_].by_columns(), c.dx());
    }
    if (p.measures_or(!c.wants_dx())) p.record_amax(c.dy(), nullptr, c[nonfinite_]);
    if (c.wants_dw())
      p.multiply(transposed(c.dy()), transposed(c.x()), c.dw(), nullptr, c.accumulates());
    if (c.wants_db()) p.add_column_sums(c.dy(), c.db(), c.accumulates());
  }

 private:
  static Cast power_of_two() {
    Cast how;
    how.rule = OCTAVO_RULE_POW2;
    how.eps = 1e-12F;
    return how;
  }

  MatrixSlot weight_;
  CodesSlot forward_, backward_;
  FloatSlot nonfinite_;
};

}  // namespace

OCTAVO_PLUGIN(Rowwise, check, declare, cast_weight, forward, backward)
