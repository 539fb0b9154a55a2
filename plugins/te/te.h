// te: Transformer Engine's FP8 training as a backend on octavo/plugin.hpp.
//
// recipe.cpp says what is computed, declare() which slots that needs, forward() and backward() how.
#pragma once

#include "recipe.h"

namespace octavo::te {

class Te : public plugin::FusedBackend<Te, Options>, public plugin::Shards<Te> {
 public:
  static void check(const plugin::Device &device, const Options &options,
                    plugin::Verdicts &verdicts);
  plugin::Verdict take_parameter(const plugin::Parameter &p) const;
  plugin::Verdict take_linear(const plugin::Linear &l, const plugin::Parameter &w) const;

  void declare(plugin::Slots &s);
  void cast_weight(plugin::Pass &p, const plugin::WeightCall &c) const;
  plugin::WeightCast weight_cast(const plugin::WeightCall &c) const;
  void forward(plugin::Pass &p, const plugin::ForwardCall &c) const;
  void backward(plugin::Pass &p, const plugin::BackwardCall &c) const;
  void finish_step(plugin::Pass &p, const plugin::StepCall &c) const;

 private:
  // With the delayed scale once there is one, or by the recipe's rule from the matrix itself. Codes
  // keep the scale_inv that they are cast with: end_step may change the scale before they are used.
  plugin::Cast by_recipe(const plugin::Observation &seen) const;

  Recipe recipe_;
  plugin::MatrixSlot weight_;
  plugin::CodesSlot cache_;
  plugin::FloatSlot nonfinite_;
  plugin::FloatSlot count_;  // of steps, for stochastic rounding
  plugin::ObservedSlot w_, x_, dy_;
};

// d = a w^T + bias in the host's precision, which is the dtype of a: an f32 weight is rounded to
// it, as Transformer Engine's cast_if_needed and torch.autocast do. w may be transposed.
void multiply_plain(plugin::Pass &p, const octavo_tensor &a, plugin::Operand w, octavo_tensor &d,
                    const octavo_tensor *bias = nullptr);

}  // namespace octavo::te
