// te: Transformer Engine's FP8 training as a backend on octavo/plugin.hpp.
//
// recipe.cpp says what is computed, declare() which slots that needs, forward() and backward() how.
#pragma once

#include "recipe.h"

namespace octavo::te {

class Te : public author::FusedBackend<Te, Options>, public author::Shards<Te> {
 public:
  static void check(const author::Device &device, const Options &options,
                    author::Verdicts &verdicts);
  author::Verdict take_dtypes(const author::Parameter &p) const;
  author::Verdict take_parameter(const author::Parameter &p) const;
  author::Verdict take_linear(const author::Linear &l, const author::Parameter &w) const;

  void declare(author::Slots &s);
  void cast_weight(author::Pass &p, const author::WeightCall &c) const;
  author::WeightCast weight_cast(const author::WeightCall &c) const;
  void forward(author::Pass &p, const author::ForwardCall &c) const;
  void backward(author::Pass &p, const author::BackwardCall &c) const;
  void finish_step(author::Pass &p, const author::StepCall &c) const;

 private:
  // With the delayed scale once there is one, or by the recipe's rule from the matrix itself. Codes
  // keep the scale_inv that they are cast with: end_step may change the scale before they are used.
  author::Cast by_recipe(const author::Observation &seen) const;

  Recipe recipe_;
  author::MatrixSlot weight_;
  author::CodesSlot cache_;
  author::FloatSlot nonfinite_;
  author::FloatSlot count_;  // of steps, for stochastic rounding
  author::ObservedSlot w_, x_, dy_;
};

// d = a w^T + bias in the host's precision, which is the dtype of a: an f32 weight is rounded to
// it, as Transformer Engine's cast_if_needed and torch.autocast do. w may be transposed.
void multiply_plain(author::Pass &p, const octavo_tensor &a, author::Operand w, octavo_tensor &d,
                    const octavo_tensor *bias = nullptr);

}  // namespace octavo::te
