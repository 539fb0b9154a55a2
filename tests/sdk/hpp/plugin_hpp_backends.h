// Small backends on octavo/plugin.hpp, and a device whose kernels compute nothing.
#pragma once

#include <stdexcept>
#include <string>

#include "octavo/plugin.hpp"
#include "tests/support/abilities.h"

namespace octavo::test {

// A description of a session whose kernels want 64 bytes of workspace a call.
struct FakeDevice {
  explicit FakeDevice(const octavo_host *host) {
    kernels.ability = LackingKernels(kernels).table.ability;
    kernels.workspace_bytes = [](void *, const void *, uint64_t *bytes) {
      *bytes = 64;
      return octavo_status{OCTAVO_OK};
    };
    kernels.quantize = [](void *, const octavo_quantize *) { return octavo_status{OCTAVO_OK}; };
    kernels.copy = [](void *, const octavo_copy *) { return octavo_status{OCTAVO_OK}; };
    desc.host = host;
    desc.kernels = &kernels;
    desc.caps = &caps;
  }
  FakeDevice(const FakeDevice &) = delete;
  FakeDevice &operator=(const FakeDevice &) = delete;

  octavo_kernels kernels = make<octavo_kernels>(OCTAVO_KIND_KERNELS);
  octavo_kernels_caps caps = make<octavo_kernels_caps>(OCTAVO_KIND_KERNELS_CAPS);
  octavo_session_desc desc = make<octavo_session_desc>(OCTAVO_KIND_SESSION_DESC);
};

// What every backend below has in common: no slots, nothing computed.
template <typename Self, typename Options = plugin::NoOptions>
struct Idle : plugin::Backend<Self, Options> {
  void declare(plugin::Slots &) {}
  void forward(plugin::Pass &, const plugin::ForwardCall &) const {}
  void backward(plugin::Pass &, const plugin::BackwardCall &) const {}
};

enum class Algorithm { kMax, kMostRecent };
struct EveryOptions {
  bool flag = true;
  int count = 7;
  float factor = 0.5F;
  std::string label = "some text";
  Algorithm algorithm = Algorithm::kMostRecent;

  static void list(plugin::OptionList<EveryOptions> &l) {
    l.add("flag", &EveryOptions::flag, "a switch");
    l.add("count", &EveryOptions::count, "a number").range(1, 9);
    l.add("factor", &EveryOptions::factor, "a factor").range(0.25, 2.5);
    l.add("label", &EveryOptions::label, "a text");
    l.add("algorithm", &EveryOptions::algorithm, "a choice").choices({"max", "most_recent"});
  }
};
struct EveryOption : Idle<EveryOption, EveryOptions> {};

struct Throwing : Idle<Throwing> {
  enum Kind { kError, kNoMemory, kStandard, kNumber };
  static inline Kind next = kError;
  void finish_step(plugin::Pass &, const plugin::StepCall &) const {
    if (next == kError) throw plugin::Error(OCTAVO_UNSUPPORTED, "expected less");
    if (next == kNoMemory) throw std::bad_alloc();
    if (next == kStandard) throw std::logic_error("a defect");
    throw 7;
  }
};

struct Unopenable : Idle<Unopenable> {
  Unopenable() { throw std::bad_alloc(); }
};

struct Fusing : Idle<Fusing> {
  octavo_status fused_workspace(uint32_t linear, octavo_extent *out) const {
    out->fixed_bytes = linear;
    return OCTAVO_OK;
  }
  octavo_status fused_forward(const octavo_fused_forward_call *) const { return OCTAVO_OK; }
};

// Their verbs have another name, so that what the slots hold would never be written.
struct MisspeltCast : Idle<MisspeltCast> {
  void declare(plugin::Slots &s) { s.weight_codes("cache", OCTAVO_E4M3FN, plugin::kRows); }
  void cast_wieght(plugin::Pass &, const plugin::WeightCall &) const {}
};
struct MisspeltStep : Idle<MisspeltStep> {
  void declare(plugin::Slots &s) { s.observe({"x", OCTAVO_VERB_FORWARD, kPool, true, 4}); }
  static constexpr auto kPool = plugin::SlotRule::Kind::kLinearPool;
  void finish_stpe(plugin::Pass &, const plugin::StepCall &) const {}
};

// One slot of each kind that rules can state, and verbs that take pieces.
struct Pooled : Idle<Pooled> {
  void declare(plugin::Slots &s) {
    nonfinite = s.nonfinite();
    weight = s.native_weight({OCTAVO_VERB_QUANTIZE_WEIGHT});
    cache = s.weight_codes("cache", OCTAVO_E4M3FN, plugin::kRows);
    auto rule =
        plugin::Slots::rule(plugin::SlotRule::Kind::kLinearPool, "x/amax", OCTAVO_ROLE_AMAX);
    amax = s.pool(rule.accumulate(OCTAVO_VERB_FORWARD, OCTAVO_COMBINE_MAX));
  }
  plugin::Verdict take_linear(const plugin::Linear &l, const plugin::Parameter &) const {
    if (l.name != "refused") return plugin::accept();
    return plugin::decline(OCTAVO_REASON_POLICY, "not this one", "name it otherwise");
  }
  void cast_weight(plugin::Pass &, const plugin::WeightCall &) const {}
  void forward(plugin::Pass &p, const plugin::ForwardCall &c) const {
    if (c.keeps()) p.saved_columns(c.k(), OCTAVO_E4M3FN);
    p.workspace().take(8 * c.m());
    auto q = p.call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
    p.run(&octavo_kernels::quantize, q);
  }
  void backward(plugin::Pass &, const plugin::BackwardCall &c) const {
    if (c.wants_dw()) c.x();
  }
  plugin::FloatSlot nonfinite;
  plugin::MatrixSlot weight;
  plugin::CodesSlot cache;
  plugin::PoolSlot amax;
};

}  // namespace octavo::test
