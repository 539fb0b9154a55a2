// A small backend on octavo/plugin.hpp that owns the weights of linears: f16 weights with a scale,
// f32 gradients and moments, and gradients that ranks add up in f32.
#pragma once

#include "octavo/plugin.hpp"

namespace octavo::test {

struct Owning : plugin::Backend<Owning>, plugin::Optimizer<Owning>, plugin::Gradients<Owning> {
  using Rule = plugin::SlotRule;
  using Parameter = plugin::Parameter;

  // plugin.hpp asks about the calls of octavo_kernels, the backend about calls of octavo/draft.
  static void check(const plugin::Device &, const plugin::NoOptions &, plugin::Verdicts &verdicts) {
    verdicts.need_calls({{OCTAVO_KIND_ADAM_STEP, "adam_step", OCTAVO_F32}});
    verdicts.need_casts({{OCTAVO_F16}});
    verdicts.accept("float8_e4m3fn and float8_e5m2");
  }
  static bool is_owned(const Parameter &p) { return p.has_linear; }
  static bool is_trained(const Parameter &p) { return !p.is_frozen(); }
  static Rule tensor(const char *name, uint32_t role, uint32_t dtype,
                     std::function<bool(const Parameter &)> when) {
    Rule r = plugin::Slots::rule(Rule::Kind::kParameter, name, role);
    r.dtype = dtype;
    r.shape = plugin::Slots::own_shape;
    r.when = std::move(when);
    return r;
  }

  void declare(plugin::Slots &s) {
    Rule w = tensor("weight", OCTAVO_ROLE_WEIGHT, OCTAVO_F16, is_owned);
    w.flags = OCTAVO_SLOT_CHECKPOINT;
    w.read({OCTAVO_VERB_FORWARD, OCTAVO_VERB_BACKWARD}).update({OCTAVO_VERB_OPTIMIZER_STEP});
    weight = s.scaled(w);  // and "weight/scale_inv"
    Rule g = tensor("gradient", OCTAVO_ROLE_GRADIENT, OCTAVO_F32,
                    [](const Parameter &p) { return is_owned(p) && is_trained(p); });
    g.update({OCTAVO_VERB_BACKWARD, OCTAVO_VERB_REDUCE}).read({OCTAVO_VERB_OPTIMIZER_STEP});
    gradient = s.matrix(g);
    nonfinite = s.nonfinite();
    Rule host =
        tensor("weight", OCTAVO_ROLE_WEIGHT, 0, [](const Parameter &p) { return !is_owned(p); });
    host.flags = OCTAVO_SLOT_NATIVE;
    host.adjust = [](const Parameter &p, octavo_slot *slot) {
      if (p.is_frozen()) slot->access[OCTAVO_VERB_OPTIMIZER_STEP] = OCTAVO_ACCESS_READ;
    };
    s.matrix(host.update({OCTAVO_VERB_OPTIMIZER_STEP}));
    Rule host_gradient = tensor("gradient", OCTAVO_ROLE_GRADIENT, 0,
                                [](const Parameter &p) { return !is_owned(p) && is_trained(p); });
    host_gradient.flags = OCTAVO_SLOT_NATIVE;
    host_gradient.dtype_of = [](const Parameter &p) { return p.gradient_dtype; };
    s.matrix(host_gradient.read({OCTAVO_VERB_OPTIMIZER_STEP}));

    const auto state = [&](Rule r) {
      r.flags = OCTAVO_SLOT_CHECKPOINT;
      r.shard = OCTAVO_SHARD_WHOLE;
      s.matrix(r.update({OCTAVO_VERB_OPTIMIZER_STEP}));
    };
    state(tensor("exp_avg", OCTAVO_ROLE_EXP_AVG, OCTAVO_F32, is_trained));
    state(tensor("exp_avg_sq", OCTAVO_ROLE_EXP_AVG_SQ, OCTAVO_F32, is_trained));
    Rule count = plugin::Slots::rule(Rule::Kind::kParameter, "step", OCTAVO_ROLE_COUNTER);
    count.dtype = OCTAVO_I32;
    count.when = is_trained;
    state(count);
  }

  plugin::Codes codes_of(plugin::Pass &p, const plugin::Addresses &c, const Parameter &w,
                         plugin::Directions direction) const {
    plugin::Codes codes = p.codes(w.rows, w.cols, OCTAVO_E4M3FN, direction);
    plugin::Cast how;
    how.in_scale_inv = plugin::floats_of(c[weight].scale_inv);
    p.cast(c[weight].rows, codes, how);
    return codes;
  }
  void forward(plugin::Pass &p, const plugin::ForwardCall &c) const {
    plugin::Codes x = p.codes(c.m(), c.k(), OCTAVO_E4M3FN, plugin::kRows);
    p.cast(c.x(), x);
    const plugin::Codes w = codes_of(p, c, c.weight, plugin::kRows);
    p.multiply(x.by_rows(), w.by_rows(), c.y(), c.bias());
  }
  void backward(plugin::Pass &p, const plugin::BackwardCall &c) const {
    plugin::Codes dy = p.codes(c.m(), c.n(), OCTAVO_E5M2, plugin::kBothDirections);
    plugin::Cast watched;
    watched.nonfinite = c[nonfinite];
    p.cast(c.dy(), dy, watched);
    if (c.wants_dx()) {
      const plugin::Codes w = codes_of(p, c, c.weight, plugin::kColumns);
      p.multiply(dy.by_rows(), w.by_columns(), c.dx());
    }
    if (c.wants_dw()) {
      plugin::Codes x = p.codes(c.m(), c.k(), OCTAVO_E4M3FN, plugin::kColumns);
      p.cast(c.x(), x);
      octavo_tensor dw = c[gradient];
      p.multiply(dy.by_columns(), x.by_columns(), dw, nullptr, c.accumulates());
    }
    if (c.wants_db()) p.add_column_sums(c.dy(), c.db(), c.accumulates());
  }

  plugin::Algorithm algorithm() const { return plugin::kAdamW; }
  // The f16 weight is widened, stepped in f32 and cast again with the scale of the result.
  void step(plugin::Pass &p, const plugin::StepGroup &g) const {
    octavo_adam_step adam = g.adam(p);
    adam.rule = OCTAVO_RULE_MSAMP;
    adam.decay_mode = OCTAVO_DECAY_DECOUPLED;
    p.run(&octavo_adam_kernels::adam_step, adam);
  }

  void write(plugin::Pass &p, const plugin::WriteCall &c) const {
    plugin::Codes out = c.stored(c.role);
    if (out.by_rows().is_plain()) return p.add(c.plain, out.rows, false);
    plugin::Cast how;
    how.rule = OCTAVO_RULE_MSAMP;
    p.cast(c.plain, out, how);
  }

  // The mean of f32 gradients: one sum over ranks of all of them, one after the other.
  void reduce(plugin::Reduction &r) const {
    const uint64_t n = r.elements();
    const auto each = [&](const void *values, auto body) {
      const auto *at = static_cast<const float *>(values);
      for (uint64_t i = 0; i < r.count(); ++i) {
        const auto size = static_cast<uint64_t>(r[i].elements());
        body(static_cast<float *>(r[i].stored(OCTAVO_ROLE_GRADIENT).rows.data), at, size);
        if (at != nullptr) at += size;
      }
    };
    const auto scale = [](plugin::Pass &p, float *out, const float *in, uint64_t size, float by) {
      auto call = p.call<octavo_scale_values>(OCTAVO_KIND_SCALE_VALUES);
      call.out = out, call.in = in, call.n = size, call.factor = by;
      p.run(&octavo_msamp_kernels::scale_values, call);
    };
    r.stage({OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, n, n}, [&](plugin::Pass &p) {
      each(r.send(), [&](float *dw, const float *part, uint64_t size) {
        scale(p, const_cast<float *>(part), dw, size, 1);
      });
    });
    r.stage({}, [&](plugin::Pass &p) {
      each(r.recv(), [&](float *dw, const float *part, uint64_t size) {
        scale(p, dw, part, size, 1.0F / static_cast<float>(r.world()));
      });
    });
  }

  plugin::CodesSlot weight;
  plugin::MatrixSlot gradient;
  plugin::FloatSlot nonfinite;
};

}  // namespace octavo::test
