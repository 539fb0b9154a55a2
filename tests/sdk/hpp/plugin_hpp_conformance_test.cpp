// Backends with state on octavo/plugin.hpp pass what every backend must.
//
// They use what the sample in samples/current_plugin does not: delayed scaling with pools, a slot
// that end_step updates, and x read again in backward; and weights of their own, with an optimizer
// and a reduction of gradients.
#include <gtest/gtest.h>

#include "octavo/plugin.hpp"
#include "plugin_hpp_owning.h"
#include "tests/sdk/hpp/plugin_hpp_target.h"
#include "tests/support/param_name.h"

namespace octavo::test {
namespace {

using namespace plugin;

constexpr int64_t kHistory = 4;

class Delayed : public Backend<Delayed> {
 public:
  struct Pools {
    PoolSlot amax, history, scale;
  };

  void declare(Slots &s) {
    nonfinite_ = s.nonfinite();
    weight_ = s.native_weight({OCTAVO_VERB_FORWARD, OCTAVO_VERB_BACKWARD});
    x_ = pools(s, "x", OCTAVO_VERB_FORWARD);
    dy_ = pools(s, "dy", OCTAVO_VERB_BACKWARD);
  }

  void forward(Pass &p, const ForwardCall &c) const {
    Codes x = p.codes(c.m(), c.k(), OCTAVO_E4M3FN, kRows);
    Codes w = p.codes(c.n(), c.k(), OCTAVO_E4M3FN, kRows);
    p.cast(c.x(), x, {nullptr, c[x_.amax], c[x_.scale], OCTAVO_RULE_GIVEN});
    p.cast(c[weight_], w);
    p.multiply(x.by_rows(), w.by_rows(), c.y(), c.bias());
  }

  void backward(Pass &p, const BackwardCall &c) const {
    Codes dy = p.codes(c.m(), c.n(), OCTAVO_E5M2, kBothDirections);
    p.cast(c.dy(), dy, {c[nonfinite_], c[dy_.amax], c[dy_.scale], OCTAVO_RULE_GIVEN});
    if (c.wants_dx()) {
      Codes w = p.codes(c.n(), c.k(), OCTAVO_E4M3FN, kColumns);
      p.cast(c[weight_], w);
      p.multiply(dy.by_rows(), w.by_columns(), c.dx());
    }
    if (c.wants_dw()) {
      Codes x = p.codes(c.m(), c.k(), OCTAVO_E4M3FN, kColumns);
      p.cast(c.x(), x);
      p.multiply(dy.by_columns(), x.by_columns(), c.dw(), nullptr, c.accumulates());
    }
    if (c.wants_db()) p.add_column_sums(c.dy(), c.db(), c.accumulates());
  }

  void finish_step(Pass &p, const StepCall &c) const {
    update(p, c, x_, 448);
    update(p, c, dy_, 57344);
  }

 private:
  static Pools pools(Slots &s, const std::string &operand, uint32_t verb) {
    const auto rule = [&](const char *name, uint32_t role) {
      SlotRule r = Slots::rule(SlotRule::Kind::kLinearPool, operand + name, role);
      r.update({OCTAVO_VERB_END_STEP});
      return r;
    };
    Pools pools;
    SlotRule amax = rule("/amax", OCTAVO_ROLE_AMAX);
    amax.accumulate(verb, OCTAVO_COMBINE_MAX).update({OCTAVO_VERB_END_STEP});
    pools.amax = s.pool(amax);
    SlotRule history = rule("/amax_history", OCTAVO_ROLE_AMAX_HISTORY);
    history.rows = kHistory;
    history.flags = OCTAVO_SLOT_CHECKPOINT;
    pools.history = s.pool(history);
    SlotRule scale = rule("/scale", OCTAVO_ROLE_SCALE);
    scale.flags = OCTAVO_SLOT_CHECKPOINT;
    scale.initial = 1;
    pools.scale = s.pool(scale.read({verb}));
    return pools;
  }

  static void update(Pass &p, const StepCall &c, const Pools &pools, float format_max) {
    c.each_pool(pools.amax, [&](size_t i, const StepCall::Pool &amax) {
      auto u = p.call<octavo_delayed_scale_update>(OCTAVO_KIND_DELAYED_SCALE_UPDATE);
      u.amax = amax.data;
      u.history = c.pool(pools.history, i).data;
      u.scale = c.pool(pools.scale, i).data;
      u.n = amax.columns;
      u.length = kHistory;
      u.format_max = format_max;
      u.use_max = 1;
      u.rule = OCTAVO_RULE_QUOTIENT;
      u.history_flags = OCTAVO_HISTORY_TE;
      p.run(&octavo_kernels::delayed_scale_update, u);
    });
  }

  FloatSlot nonfinite_;
  MatrixSlot weight_;
  Pools x_, dy_;
};

class PluginHppConformance : public testing::TestWithParam<conformance::Check> {};

TEST_P(PluginHppConformance, a_backend_with_pools_passes) {
  expect_passes<Delayed>(GetParam());
}
TEST_P(PluginHppConformance, a_backend_with_weights_of_its_own_passes) {
  expect_passes<Owning>(GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, PluginHppConformance,
                         testing::ValuesIn(conformance::checks().begin(),
                                           conformance::checks().end()),
                         [](const auto &check) { return name_of_text(check.param.name); });

}  // namespace
}  // namespace octavo::test
