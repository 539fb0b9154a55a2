// Adam on the stored formats, values from outside, and the end of a step.
#include "msamp.h"

namespace octavo::msamp {

// MS-AMP, msamp/optim/adamw.py and adam.py: moments and weight are widened, stepped in fp32 and
// cast again with the scale of the result. O3: the E4M3 weight then follows from its master; after
// a skipped step it gives the same codes again.
void Msamp::step(Pass &p, const plugin::StepGroup &g) const {
  octavo_adam_step adam = g.adam(p);
  adam.rule = options().rule();
  adam.decay_mode = options().optimizer == Decay::kAdamW ? uint32_t{OCTAVO_DECAY_DECOUPLED}
                    : options().parity()                 ? OCTAVO_DECAY_L2_MSAMP04
                                                         : uint32_t{OCTAVO_DECAY_L2};
  adam.state_granularity = options().state_granularity();
  adam.flags = options().parity() ? 0 : OCTAVO_ADAM_KEEP_POSITIVE;
  const Roundings roundings = options().roundings();
  if (roundings.any() || options().bounds_scales()) {
    // A stream of random bits for each parameter, whoever steps it; the step count is the kernels'.
    uint64_t keys[plugin::StepGroup::kMost];
    for (uint64_t i = 0; i < g.size(); ++i)
      keys[i] = options().rounding_seed << 32 | g[i].parameter.id;
    auto rounded = p.call<octavo_adam_rounded>(OCTAVO_KIND_ADAM_ROUNDED);
    rounded.step = &adam;
    rounded.keys = keys;
    rounded.weight_rounding = roundings.weight;
    rounded.exp_avg_rounding = roundings.exp_avg;
    rounded.exp_avg_sq_rounding = roundings.exp_avg_sq;
    if (options().bounds_scales()) {
      step_in_one_pass(p, g, rounded);
    } else {
      p.run(&octavo_rounding_kernels::adam_rounded, rounded);
    }
  } else {
    p.run(&octavo_adam_kernels::adam_step, adam);
  }
  for (uint64_t i = 0; i < g.size(); ++i) {
    if (!g[i].has(OCTAVO_ROLE_MASTER_WEIGHT)) continue;
    const Codes master = g[i].stored(OCTAVO_ROLE_MASTER_WEIGHT);
    Codes weight = g[i].stored(OCTAVO_ROLE_WEIGHT);
    p.cast(master.rows, weight, by_rule(master.scale_inv));
  }
}

// The kernels keep the amaxes of what they store from step to step.
void Msamp::step_in_one_pass(Pass &p, const plugin::StepGroup &g,
                             octavo_adam_rounded &rounded) const {
  float *amaxes[plugin::StepGroup::kMost];
  for (uint64_t i = 0; i < g.size(); ++i) amaxes[i] = g[i][amax_];
  auto one_pass = p.call<octavo_adam_one_pass>(OCTAVO_KIND_ADAM_ONE_PASS);
  one_pass.rounded = &rounded;
  one_pass.amax = amaxes;
  p.run(&octavo_one_pass_kernels::adam_one_pass, one_pass);
}

// The scale follows from the values. The E4M3 weight of O3 always comes from the f16 master, so
// that every rank has the same codes: from the master's slot or, on ranks that do not own it, from
// a piece of the workspace.
void Msamp::write(Pass &p, const plugin::WriteCall &c) const {
  Codes out = c.stored(c.role);
  // What the kernels know of the codes is of the old ones.
  if (options().bounds_scales() && c.role != OCTAVO_ROLE_GRADIENT && c[amax_] != nullptr)
    p.clear(c[amax_], OCTAVO_AMAX_COUNT * sizeof(float));
  if (out.by_rows().is_plain()) return p.add(c.plain, out.rows, false);
  Cast how = by_rule();
  if (c.role == OCTAVO_ROLE_EXP_AVG_SQ && !options().parity())
    how.flags = OCTAVO_QUANTIZE_KEEP_POSITIVE;
  if (c.role != OCTAVO_ROLE_WEIGHT || !c.has(OCTAVO_ROLE_MASTER_WEIGHT))
    return p.cast(c.plain, out, how);
  Codes master = c.stored(OCTAVO_ROLE_MASTER_WEIGHT);
  if (master.rows.data == nullptr) {
    master.rows = p.workspace().tensor(c.plain.rows, c.plain.cols, OCTAVO_F16);
    master.scale_inv = p.workspace().scale_inv();
  }
  p.cast(c.plain, master, how);
  p.cast(master.rows, out, by_rule(master.scale_inv));
}

// The next scales of x and dy, and FP8-LM's automatic pre-scale, arXiv 2310.18313, section 2.2: it
// halves where more than this share of the elements saturated in reductions, and else grows so that
// it doubles in 1,000 steps. One rank's own values never saturate at 1.
void Msamp::finish_step(Pass &p, const plugin::StepCall &c) const {
  update_scales(p, c, x_,
                {plugin::format_max(OCTAVO_E4M3FN), options().rule(), options().history()});
  update_scales(p, c, dy_,
                {plugin::format_max(OCTAVO_E5M2), options().rule(), options().history()});
  if (options().reduction_prescale() != Prescale::kAuto) {
    p.clear(c[saturated_], sizeof(float));
    p.clear(c[added_], sizeof(float));
    return;
  }
  auto update = p.call<octavo_prescale_update>(OCTAVO_KIND_PRESCALE_UPDATE);
  update.prescale = c[prescale_];
  update.saturated = c[saturated_];
  update.added = c[added_];
  update.threshold = 1e-5F;
  update.growth = 1.000693387F;  // 2^(1/1000)
  update.low = 1.0F / (1 << 20);
  update.high = 1.0F;
  p.run(&octavo_msamp_kernels::prescale_update, update);
}

}  // namespace octavo::msamp
