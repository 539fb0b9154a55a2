// octavo/hpp/plugin/slots.hpp: slots stated once, and handles that find them in every list.
//
// A backend states its slots in declare(Slots &) and keeps the handles. Seal emits them for each
// object that they are for, and a handle gives the typed address in a call: c[weight_]. Which list
// a slot stands in follows from the verbs that use it: what only end_step looks at stands in the
// session's list alone.
#ifndef OCTAVO_HPP_PLUGIN_SLOTS_HPP
#define OCTAVO_HPP_PLUGIN_SLOTS_HPP

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "octavo/hpp/plugin/device.hpp"
#include "octavo/slots.h"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace author {

// Where a rule's slot lies in one object's list, and what it is.
struct Place {
  uint32_t position = OCTAVO_NONE;
  uint32_t slot = OCTAVO_NONE;
  uint32_t dtype = 0;
  int64_t rows = 0;
  int64_t cols = 0;
};

struct Parameter {
  uint32_t id = 0;
  std::string name;
  int64_t rows = 0;  // N
  int64_t cols = 0;  // K
  uint32_t dtype = 0;
  uint32_t gradient_dtype = 0;
  uint32_t flags = 0;
  std::vector<Place> places;  // by rule

  bool is_linear_weight() const { return (flags & OCTAVO_PARAMETER_LINEAR_WEIGHT) != 0; }
  bool is_frozen() const { return (flags & OCTAVO_PARAMETER_FROZEN) != 0; }
};

struct Linear {
  uint32_t id = 0;
  std::string name;
  uint32_t weight = 0;  // parameter id
  std::vector<Place> places;
};

// Handles: an index into the rules. What they give is in calls.hpp.
struct MatrixSlot {
  uint32_t rule = OCTAVO_NONE;
};
struct FloatSlot {
  uint32_t rule = OCTAVO_NONE;
};
// Codes of a weight in one or both directions and the scale_inv they share.
struct CodesSlot {
  uint32_t rows = OCTAVO_NONE, columns = OCTAVO_NONE, scale_inv = OCTAVO_NONE;
};
// One column for each linear, or each linear weight, of a seal.
struct PoolSlot {
  uint32_t rule = OCTAVO_NONE;
};

enum Directions { kRows = 1, kColumns = 2, kBothDirections = 3 };

// One statement. Fill what differs from zero; access is set by the functions.
struct SlotRule {
  enum class Kind { kSession, kParameter, kLinear, kLinearPool, kWeightPool };
  Kind kind = Kind::kSession;
  std::string name;
  uint32_t role = OCTAVO_ROLE_OTHER;
  uint32_t dtype = OCTAVO_F32;  // 0: the parameter's own
  uint32_t flags = 0;
  uint32_t combine = OCTAVO_COMBINE_NONE;
  uint32_t shard = OCTAVO_SHARD_REPLICATED;
  uint32_t scale_rule = OCTAVO_NONE;  // the rule of its scale_inv, stated anywhere
  double initial = 0;
  int64_t rows = 1;
  int64_t cols = 1;
  // Rows and columns for this parameter, in place of the two above.
  std::function<void(const Parameter &, int64_t *rows, int64_t *cols)> shape;
  // For which parameters; empty: for all.
  std::function<bool(const Parameter &)> when;
  uint8_t access[8] = {};

  SlotRule &read(std::initializer_list<uint32_t> verbs) {
    for (const uint32_t v : verbs) access[v] = OCTAVO_ACCESS_READ;
    return *this;
  }
  SlotRule &write(std::initializer_list<uint32_t> verbs) {
    for (const uint32_t v : verbs) access[v] = OCTAVO_ACCESS_WRITE;
    return *this;
  }
  SlotRule &update(std::initializer_list<uint32_t> verbs) {
    for (const uint32_t v : verbs) access[v] = OCTAVO_ACCESS_UPDATE;
    return *this;
  }
  // Ranks are combined the same way, and end_step clears it.
  SlotRule &accumulate(uint32_t verb, uint32_t how) {
    access[verb] = OCTAVO_ACCESS_ACCUMULATE;
    access[OCTAVO_VERB_END_STEP] = OCTAVO_ACCESS_WRITE;
    flags |= OCTAVO_SLOT_REDUCE;
    combine = how;
    return *this;
  }
  bool is_pool() const { return kind == Kind::kLinearPool || kind == Kind::kWeightPool; }
  bool is_of_linear_verbs() const {
    return access[OCTAVO_VERB_FORWARD] != 0 || access[OCTAVO_VERB_BACKWARD] != 0;
  }
  bool is_of_parameter_verbs() const {
    return access[OCTAVO_VERB_QUANTIZE_WEIGHT] != 0 || access[OCTAVO_VERB_REDUCE] != 0;
  }
};

class Slots {
 public:
  explicit Slots(const Device &device) : device_(device) {}

  // The host's own weight, read in place by these verbs.
  MatrixSlot native_weight(std::initializer_list<uint32_t> read_by) {
    SlotRule r = rule(SlotRule::Kind::kParameter, "weight", OCTAVO_ROLE_WEIGHT);
    r.dtype = 0;
    r.flags = OCTAVO_SLOT_NATIVE;
    r.shape = own_shape;
    return {add(std::move(r.read(read_by)))};
  }

  // The flag that a cast of dy met an Inf or NaN, which a saturating cast would hide.
  FloatSlot nonfinite() {
    SlotRule r = rule(SlotRule::Kind::kSession, "nonfinite", OCTAVO_ROLE_NONFINITE);
    r.accumulate(OCTAVO_VERB_BACKWARD, OCTAVO_COMBINE_MAX);
    r.read({OCTAVO_VERB_OPTIMIZER_STEP});
    return {add(std::move(r))};
  }

  // Codes of linear weights, padded as GEMMs need them: [N, K] for forward, [K, N] for backward.
  CodesSlot weight_codes(const char *name, uint32_t dtype, Directions directions) {
    const std::string base = name;
    const auto one = [&](const std::string &n, uint32_t role, uint32_t type) {
      SlotRule r = rule(SlotRule::Kind::kParameter, n, role);
      r.dtype = type;
      r.when = [](const Parameter &p) { return p.is_linear_weight(); };
      r.write({OCTAVO_VERB_QUANTIZE_WEIGHT});
      return r;
    };
    SlotRule scale = one(base + "/scale_inv", OCTAVO_ROLE_SCALE_INV, OCTAVO_F32);
    if (directions & kRows) scale.read({OCTAVO_VERB_FORWARD});
    if (directions & kColumns) scale.read({OCTAVO_VERB_BACKWARD});
    CodesSlot slot;
    slot.scale_inv = add(std::move(scale));
    const Device &device = device_;
    if (directions & kRows) {
      SlotRule r = one(base, OCTAVO_ROLE_WEIGHT_CACHE, dtype);
      r.scale_rule = slot.scale_inv;
      r.shape = [device](const Parameter &p, int64_t *rows, int64_t *cols) {
        *rows = device.aligned(p.rows), *cols = device.aligned(p.cols);
      };
      slot.rows = add(std::move(r.read({OCTAVO_VERB_FORWARD})));
    }
    if (directions & kColumns) {
      SlotRule r = one(base + "_t", OCTAVO_ROLE_WEIGHT_CACHE, dtype);
      r.scale_rule = slot.scale_inv;
      r.shape = [device](const Parameter &p, int64_t *rows, int64_t *cols) {
        *rows = device.aligned(p.cols), *cols = device.aligned(p.rows);
      };
      slot.columns = add(std::move(r.read({OCTAVO_VERB_BACKWARD})));
    }
    return slot;
  }

  // Anything else: a rule as it stands, with the parameter's own shape and dtype where it says
  // so.
  MatrixSlot matrix(SlotRule r) { return {add(std::move(r))}; }
  FloatSlot floats(SlotRule r) { return {add(std::move(r))}; }
  // f32 [rows, linears of a seal] or [rows, linear weights of a seal].
  PoolSlot pool(SlotRule r) { return {add(std::move(r))}; }

  static SlotRule rule(SlotRule::Kind kind, std::string name, uint32_t role) {
    SlotRule r;
    r.kind = kind;
    r.name = std::move(name);
    r.role = role;
    return r;
  }
  static void own_shape(const Parameter &p, int64_t *rows, int64_t *cols) {
    *rows = p.rows, *cols = p.cols;
  }

  const std::vector<SlotRule> &rules() const { return rules_; }

 private:
  uint32_t add(SlotRule r) {
    rules_.push_back(std::move(r));
    return static_cast<uint32_t>(rules_.size() - 1);
  }
  const Device &device_;
  std::vector<SlotRule> rules_;
};

}  // namespace author
}  // namespace octavo
#pragma GCC visibility pop

#endif
