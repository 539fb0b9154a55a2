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
template <typename Self, typename Options = author::NoOptions>
struct Idle : author::Backend<Self, Options> {
  void declare(author::Slots &) {}
  void forward(author::Pass &, const author::ForwardCall &) const {}
  void backward(author::Pass &, const author::BackwardCall &) const {}
};

enum class Algorithm { kMax, kMostRecent };
struct EveryOptions {
  bool flag = true;
  int count = 7;
  float factor = 0.5F;
  std::string label = "some text";
  Algorithm algorithm = Algorithm::kMostRecent;

  static void list(author::OptionList<EveryOptions> &l) {
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
  void finish_step(author::Pass &, const author::StepCall &) const {
    if (next == kError) throw author::Error(OCTAVO_UNSUPPORTED, "expected less");
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
  octavo_status fused_apply(const octavo_prologue_call *) const { return OCTAVO_OK; }
};

// Their verbs have another name, so that what the slots hold would never be written.
struct MisspeltCast : Idle<MisspeltCast> {
  void declare(author::Slots &s) { s.weight_codes("cache", OCTAVO_E4M3FN, author::kRows); }
  void cast_wieght(author::Pass &, const author::WeightCall &) const {}
};
struct MisspeltStep : Idle<MisspeltStep> {
  void declare(author::Slots &s) { s.observe({"x", OCTAVO_VERB_FORWARD, kPool, true, 4}); }
  static constexpr auto kPool = author::SlotRule::Kind::kLinearPool;
  void finish_stpe(author::Pass &, const author::StepCall &) const {}
};

// One slot of each kind that rules can state, and verbs that take pieces.
struct Pooled : Idle<Pooled> {
  void declare(author::Slots &s) {
    nonfinite = s.nonfinite();
    weight = s.native_weight({OCTAVO_VERB_QUANTIZE_WEIGHT});
    cache = s.weight_codes("cache", OCTAVO_E4M3FN, author::kRows);
    auto rule =
        author::Slots::rule(author::SlotRule::Kind::kLinearPool, "x/amax", OCTAVO_ROLE_AMAX);
    amax = s.pool(rule.accumulate(OCTAVO_VERB_FORWARD, OCTAVO_COMBINE_MAX));
  }
  author::Verdict take_linear(const author::Linear &l, const author::Parameter &) const {
    if (l.name != "refused") return author::accept();
    return author::decline(OCTAVO_REASON_POLICY, "not this one", "name it otherwise");
  }
  void cast_weight(author::Pass &, const author::WeightCall &) const {}
  void forward(author::Pass &p, const author::ForwardCall &c) const {
    if (c.keeps()) p.saved_columns(c.k(), OCTAVO_E4M3FN);
    p.workspace().take(8 * c.m());
    auto q = p.call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
    p.run(&octavo_kernels::quantize, q);
  }
  void backward(author::Pass &, const author::BackwardCall &c) const {
    if (c.wants_dw()) c.x();
  }
  author::FloatSlot nonfinite;
  author::MatrixSlot weight;
  author::CodesSlot cache;
  author::PoolSlot amax;
};

}  // namespace octavo::test
