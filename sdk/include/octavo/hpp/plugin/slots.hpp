// octavo/hpp/plugin/slots.hpp: slots stated once, and handles that find them in every list.
//
// A backend states its slots in declare(Slots &) and keeps the handles. Seal emits them for each
// object that they are for, and a handle gives the typed address in a call: c[weight_]. Which list
// a slot stands in follows from the verbs that use it: what only end_step looks at stands in the
// session's list alone. Lists are in the order of the statements.
#ifndef OCTAVO_HPP_PLUGIN_SLOTS_HPP
#define OCTAVO_HPP_PLUGIN_SLOTS_HPP

#include <tuple>
#include <utility>

#include "octavo/hpp/plugin/device.hpp"
#include "octavo/hpp/plugin/rules.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

// Codes of linear weights, written by quantize_weight and padded as GEMMs need them: [N, K] for the
// verbs of rows_read_by, [K, N] as "<name>_t" for columns_read_by. No verb: no such codes.
// Their scale_inv follows: one for both per tensor, else one for each direction.
struct WeightCodes {
  std::string name = "weight_cache";
  uint32_t dtype = OCTAVO_E4M3FN;
  uint32_t granularity = OCTAVO_PER_TENSOR;
  Verbs rows_read_by{};
  Verbs columns_read_by{};
  bool packs_rows = false;            // in the kernels' panel order, where they have one
  uint32_t scale_rule = OCTAVO_NONE;  // a scale_inv that another rule states, in place of their own
  std::function<bool(const Parameter &)> when{};       // empty: every linear weight
  std::function<bool(const Parameter &)> rows_when{};  // further condition of [N, K]
};

// What is recorded about the casts of one operand, in pools "<operand>/amax" and so on.
struct Observed {
  std::string operand;
  uint32_t verb = OCTAVO_VERB_FORWARD;  // the one that casts it
  SlotRule::Kind pool = SlotRule::Kind::kLinearPool;
  bool reduces_amax = true;  // over ranks
  uint64_t history = 0;      // steps of delayed scaling; 0: no history, no scale
  bool counts = false;       // steps since the last amax that was not finite: "<operand>/counter"
  bool statistics = false;   // telemetry: saturated, underflow, signal, noise
};

class Slots {
 public:
  // `before`: the rules of the variants before this one.
  explicit Slots(const Device &device, std::vector<SlotRule> before = {}, uint32_t variant = 0)
      : device_(device), rules_(std::move(before)), variant_(variant) {}

  // The host's own weight, read in place by these verbs.
  MatrixSlot native_weight(const Verbs &read_by) {
    SlotRule r = rule(SlotRule::Kind::kParameter, "weight", OCTAVO_ROLE_WEIGHT);
    r.dtype = 0;
    r.flags = OCTAVO_SLOT_NATIVE;
    r.shape = own_shape;
    return {add(std::move(r.read(read_by)))};
  }

  // The flag that a cast met an Inf or NaN, which a saturating cast would hide. Every cast of a
  // plain matrix in cast_weight(), forward() and backward() sets it by itself.
  // end_step_reads: finish_step() looks at it before it is cleared.
  FloatSlot nonfinite(bool end_step_reads = false) {
    SlotRule r = rule(SlotRule::Kind::kSession, "nonfinite", OCTAVO_ROLE_NONFINITE);
    for (const uint32_t verb :
         {OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_VERB_FORWARD, OCTAVO_VERB_BACKWARD})
      r.accumulate(verb, OCTAVO_COMBINE_MAX);
    r.read({OCTAVO_VERB_OPTIMIZER_STEP});
    if (end_step_reads) r.update({OCTAVO_VERB_END_STEP});
    return {add(std::move(r))};
  }

  // Codes [N, K] for forward, [K, N] for backward.
  CodesSlot weight_codes(const char *name, uint32_t dtype, Directions directions,
                         uint32_t granularity = OCTAVO_PER_TENSOR) {
    WeightCodes w;
    w.name = name;
    w.dtype = dtype;
    w.granularity = granularity;
    if (directions & kRows) w.rows_read_by = {OCTAVO_VERB_FORWARD};
    if (directions & kColumns) w.columns_read_by = {OCTAVO_VERB_BACKWARD};
    return weight_codes(w);
  }
  CodesSlot weight_codes(const WeightCodes &w);

  // A tensor as `r` states it, and "<name>/scale_inv" with the same accesses and flags, at first 1.
  CodesSlot scaled(SlotRule r, uint32_t granularity = OCTAVO_PER_TENSOR) {
    SlotRule scale = r;
    scale.name += "/scale_inv";
    scale.role = OCTAVO_ROLE_SCALE_INV;
    scale.dtype = OCTAVO_F32;
    scale.dtype_of = nullptr;
    scale.initial = 1;
    scale.shape = [granularity, shape = r.shape, fixed_rows = r.rows, fixed_cols = r.cols](
                      const Parameter &p, int64_t *rows, int64_t *cols) {
      *rows = fixed_rows, *cols = fixed_cols;
      if (shape) shape(p, rows, cols);
      const ScaleShape s = scale_shape(granularity, *rows, *cols);
      *rows = s.rows, *cols = s.cols;
    };
    r.granularity = granularity;
    r.scale_rule = next() + 1;
    CodesSlot slot;
    slot.granularity = granularity;
    slot.rows = add(std::move(r));
    slot.scale_inv = slot.columns_scale_inv = add(std::move(scale));
    return slot;
  }

  // The pools of one operand: amax, with a history also the history and the scale that follows
  // from it, a counter, statistics.
  ObservedSlot observe(const Observed &o);

  // Anything else: a rule as it stands, with the parameter's own shape and dtype where it asks for
  // them.
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
  static bool of_linear_weights(const Parameter &p) { return p.is_linear_weight(); }

  const Device &device() const { return device_; }
  const std::vector<SlotRule> &rules() const { return rules_; }

 private:
  uint32_t next() const { return static_cast<uint32_t>(rules_.size()); }
  uint32_t add(SlotRule r) {
    r.variant = variant_;
    rules_.push_back(std::move(r));
    return next() - 1;
  }
  const Device &device_;
  std::vector<SlotRule> rules_;
  uint32_t variant_;
};

inline CodesSlot Slots::weight_codes(const WeightCodes &w) {
  const bool rows = !w.rows_read_by.empty(), columns = !w.columns_read_by.empty();
  const bool shares = w.granularity == OCTAVO_PER_TENSOR && rows && columns;
  const bool given = w.scale_rule != OCTAVO_NONE;
  const Device device = device_;
  const auto one = [&](const std::string &name, uint32_t role, uint32_t dtype,
                       const Verbs &readers) {
    SlotRule r = rule(SlotRule::Kind::kParameter, name, role);
    r.dtype = dtype;
    r.when = w.when ? w.when : of_linear_weights;
    r.write({OCTAVO_VERB_QUANTIZE_WEIGHT});
    for (const uint32_t verb : readers) r.read({verb});
    return r;
  };
  const auto shape = [device, dtype = w.dtype](bool transposed, const Parameter &p) {
    const int64_t n = device.aligned(p.rows, dtype), k = device.aligned(p.cols, dtype);
    return transposed ? std::pair(k, n) : std::pair(n, k);
  };
  const auto codes = [&](bool transposed, uint32_t scale_rule) {
    // Two codes of four bits are one byte of the host's.
    const bool is_fp4 = w.dtype == OCTAVO_E2M1;
    SlotRule r = one(w.name + (transposed ? "_t" : ""), OCTAVO_ROLE_WEIGHT_CACHE,
                     is_fp4 ? OCTAVO_U8 : w.dtype, transposed ? w.columns_read_by : w.rows_read_by);
    r.granularity = w.granularity;
    r.scale_rule = given ? w.scale_rule : scale_rule;
    r.shape = [shape, transposed, is_fp4](const Parameter &p, int64_t *height, int64_t *width) {
      std::tie(*height, *width) = shape(transposed, p);
      if (is_fp4) *width /= 2;
    };
    if (!transposed && w.packs_rows) r.panel_rows = device.pack_rows();
    if (!transposed && w.rows_when)
      r.when = [when = r.when, also = w.rows_when](const Parameter &p) {
        return when(p) && also(p);
      };
    return add(std::move(r));
  };
  const auto scale = [&](const char *suffix, bool transposed, const Verbs &readers) {
    if (given) return w.scale_rule;
    const uint32_t dtype = scale_shape(w.granularity, 1, 1).dtype;
    SlotRule r = one(w.name + suffix + "/scale_inv", OCTAVO_ROLE_SCALE_INV, dtype, readers);
    r.shape = [shape, transposed, g = w.granularity](const Parameter &p, int64_t *height,
                                                     int64_t *width) {
      const auto [rows_of_codes, cols_of_codes] = shape(transposed, p);
      const ScaleShape s = scale_shape(g, rows_of_codes, cols_of_codes);
      *height = s.rows, *width = s.cols;
    };
    return add(std::move(r));
  };
  const auto second = [&](const char *suffix, const Verbs &readers) {
    if (!has_second(w.granularity)) return uint32_t{OCTAVO_NONE};
    return add(one(w.name + suffix + "/amax", OCTAVO_ROLE_OTHER, OCTAVO_F32, readers));
  };
  CodesSlot slot;
  slot.granularity = w.granularity;
  if (rows) {
    slot.rows = codes(false, next() + (shares ? 2 : 1));
    if (!shares) slot.scale_inv = slot.columns_scale_inv = scale("", false, w.rows_read_by);
    slot.second = second("", w.rows_read_by);
  }
  if (columns) {
    slot.columns = codes(true, next() + 1);
    Verbs readers = w.columns_read_by;
    if (shares) readers.insert(readers.end(), w.rows_read_by.begin(), w.rows_read_by.end());
    const bool per_tensor = w.granularity == OCTAVO_PER_TENSOR;
    slot.columns_scale_inv = scale(per_tensor ? "" : "_t", true, readers);
    slot.columns_second = second("_t", w.columns_read_by);
    if (shares || !rows) slot.scale_inv = slot.columns_scale_inv;
  }
  return slot;
}

inline ObservedSlot Slots::observe(const Observed &o) {
  const auto pool_of = [&](const char *name, uint32_t role) {
    SlotRule r = rule(o.pool, o.operand + name, role);
    r.update({OCTAVO_VERB_END_STEP});
    return r;
  };
  // Saved and restored with the model, and read by the cast.
  const auto kept = [&](SlotRule r, bool is_read) {
    r.flags = OCTAVO_SLOT_CHECKPOINT;
    if (is_read) r.read({o.verb});
    return pool(std::move(r));
  };
  ObservedSlot slot;
  SlotRule amax = pool_of("/amax", OCTAVO_ROLE_AMAX).accumulate(o.verb, OCTAVO_COMBINE_MAX);
  if (!o.reduces_amax) amax.flags = 0;
  if (o.history > 0) amax.update({OCTAVO_VERB_END_STEP});
  slot.amax = pool(std::move(amax));
  if (o.history > 0) {
    SlotRule history = pool_of("/amax_history", OCTAVO_ROLE_AMAX_HISTORY);
    history.rows = static_cast<int64_t>(o.history);
    slot.history = kept(std::move(history), false);
    SlotRule scale = pool_of("/scale", OCTAVO_ROLE_SCALE);
    scale.initial = 1;
    slot.scale = kept(std::move(scale), true);
  }
  if (o.counts) slot.counter = kept(pool_of("/counter", OCTAVO_ROLE_COUNTER), true);
  if (!o.statistics) return slot;
  static constexpr struct {
    const char *name;
    uint32_t role;
  } kAll[kStatisticCount] = {{"/saturated", OCTAVO_ROLE_SATURATED},
                             {"/underflow", OCTAVO_ROLE_UNDERFLOW},
                             {"/signal", OCTAVO_ROLE_SIGNAL},
                             {"/noise", OCTAVO_ROLE_NOISE}};
  for (size_t i = 0; i < kStatisticCount; ++i)
    slot.statistics[i] =
        pool(pool_of(kAll[i].name, kAll[i].role).accumulate(o.verb, OCTAVO_COMBINE_SUM));
  return slot;
}

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
