// msamp: MS-AMP's method (FP8-LM, arXiv 2310.18313): weights, gradients and optimizer states are
// kept in 8 and 16 bits with power-of-two scales.
//
// x and dy are cast with delayed scales and a warm-up that the kernels decide on the device;
// weights and weight gradients with the scale of the tensor itself (a window of 1).
#pragma once

#include "recipe.h"

namespace octavo::msamp {

using plugin::Addresses;
using plugin::Cast;
using plugin::Codes;
using plugin::Linear;
using plugin::Operand;
using plugin::Parameter;
using plugin::Pass;
using plugin::Slots;
using plugin::Verdict;

class Msamp : public plugin::Backend<Msamp, Options>,
              public plugin::Optimizer<Msamp>,
              public plugin::Gradients<Msamp> {
 public:
  // Setup: session.cpp and slots.cpp.
  static void check(const plugin::Device &device, const Options &options,
                    plugin::Verdicts &verdicts);
  Verdict take_dtypes(const Parameter &p) const;
  Verdict take_parameter(const Parameter &p) const;
  Verdict take_linear(const Linear &l, const Parameter &w) const;
  void declare(Slots &s);

  // One linear: linear.cpp.
  void cast_weight(Pass &p, const plugin::WeightCall &c) const;
  void forward(Pass &p, const plugin::ForwardCall &c) const;
  void backward(Pass &p, const plugin::BackwardCall &c) const;

  // One step: reduction.cpp, optimizer.cpp.
  void reduce(plugin::Reduction &r) const;
  plugin::Algorithm algorithm() const {
    return options().optimizer == Decay::kAdamW ? plugin::kAdamW : plugin::kAdam;
  }
  void step(Pass &p, const plugin::StepGroup &g) const;
  void write(Pass &p, const plugin::WriteCall &c) const;
  void finish_step(Pass &p, const plugin::StepCall &c) const;

 private:
  // The slots of one kind of tensor each.
  void declare_weights(Slots &s);
  void declare_gradients(Slots &s);
  void declare_states(Slots &s);

  bool is_padded(const Parameter &w) const {
    return device().aligned(w.rows) != w.rows || device().aligned(w.cols) != w.cols;
  }
  // Casts: by the rule on the tensor itself, and by the history of x or dy.
  Cast by_rule(const octavo_scale &in_scale_inv = {}) const;
  Cast delayed(const plugin::Observation &history) const;
  void encode_weight(Pass &p, const Operand &weight, Codes &codes) const;
  Operand weight(Pass &p, const Addresses &c, const Parameter &w,
                 plugin::Directions direction) const;
  void add_weight_gradient(Pass &p, const plugin::BackwardCall &c, const Codes &dy) const;
  // The stages of a reduction.
  void scale_gradients(Pass &p, const plugin::Reduction &r, float *scale) const;
  void prescale(Pass &p, const plugin::Reduction &r, float *scale, uint64_t n) const;
  void add_codes(Pass &p, const plugin::Reduction &r, uint64_t elements, float count_as) const;

  // One Adam step with scales from bounds.
  void step_in_one_pass(Pass &p, const plugin::StepGroup &g, octavo_adam_rounded &rounded) const;

  plugin::CodesSlot weight_, master_, cache_, gradient_;
  plugin::FloatSlot nonfinite_;
  plugin::FloatSlot amax_;  // of what Adam stores, with state_scale = "bound"
  plugin::ObservedSlot x_, dy_;
  // Of reductions: elements that saturated, all elements, what gradients are multiplied by, and the
  // kept scale of one gradient (msamp04 only).
  plugin::FloatSlot saturated_, added_, prescale_, reduce_scale_;
};

}  // namespace octavo::msamp
