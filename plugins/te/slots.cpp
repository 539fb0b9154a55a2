// seal: the slots of a session and the pointer lists of its objects.
//
// The pools of one seal are those of x, dy and w, since a slot may be accumulated by one verb only
// and a pool has one format. What no product of the recipe reads is not emitted. A failed seal
// changes nothing: everything is counted in a copy that is kept at the end.
#include <string_view>

#include "layout.h"

namespace octavo::te {

using plugin::Emitter;

namespace {

// Slot ids of one operand's pools.
using PoolIds = Observed;

class Sealer {
 public:
  Sealer(const octavo_session &s, const octavo_slot_sink *sink)
      : now_(s), recipe_(s.recipe), emitter_(sink, &now_.emitted) {}

  octavo_status run(octavo_session *target) {
    if (now_.emitted.slots == 0) now_.nonfinite_slot = emitter_.emit_nonfinite();
    parameters();
    linears();
    if (emitter_.status() == OCTAVO_OK) {
      now_.sealed_parameters = static_cast<uint32_t>(now_.parameters.size());
      now_.sealed_linears = static_cast<uint32_t>(now_.linears.size());
      *target = std::move(now_);
    }
    return emitter_.status();
  }

 private:
  PoolIds pools(const std::string &operand, uint32_t verb, float format_max,
                const std::vector<octavo_str> &labels) {
    PoolIds ids;
    if (labels.empty()) return ids;
    Pool pool;
    pool.count = labels.size();
    pool.format_max = format_max;
    const auto pooled = [&](uint32_t role, int64_t rows, const std::string &name) {
      octavo_slot slot = Emitter::make(OCTAVO_OWNER_SESSION, 0, role, OCTAVO_F32, rows,
                                       static_cast<int64_t>(labels.size()), name,
                                       {{OCTAVO_VERB_END_STEP, OCTAVO_ACCESS_UPDATE}});
      slot.labels = labels.data();
      return slot;
    };
    const std::string amax_name = operand + "/amax", history_name = operand + "/amax_history",
                      scale_name = operand + "/scale";
    octavo_slot amax = pooled(OCTAVO_ROLE_AMAX, 1, amax_name);
    if (recipe_.reduce_amax) amax.flags = OCTAVO_SLOT_REDUCE;
    amax.combine = OCTAVO_COMBINE_MAX;
    amax.access[verb] = OCTAVO_ACCESS_ACCUMULATE;
    if (!recipe_.delayed()) amax.access[OCTAVO_VERB_END_STEP] = OCTAVO_ACCESS_WRITE;
    pool.amax = emitter_.session_position();
    ids.amax = emitter_.emit_for_session(amax);
    if (recipe_.delayed()) {
      octavo_slot history = pooled(OCTAVO_ROLE_AMAX_HISTORY,
                                   static_cast<int64_t>(recipe_.amax_history_len), history_name);
      history.flags = OCTAVO_SLOT_CHECKPOINT;
      emitter_.emit_for_session(history);
      octavo_slot scale = pooled(OCTAVO_ROLE_SCALE, 1, scale_name);
      scale.flags = OCTAVO_SLOT_CHECKPOINT;
      scale.access[verb] = OCTAVO_ACCESS_READ;
      scale.initial = 1;
      ids.scale = emitter_.emit_for_session(scale);
    }
    if (recipe_.telemetry) {
      static constexpr struct {
        uint32_t role;
        const char *name;
      } kStatistics[kStatisticCount] = {{OCTAVO_ROLE_SATURATED, "/saturated"},
                                        {OCTAVO_ROLE_UNDERFLOW, "/underflow"},
                                        {OCTAVO_ROLE_SIGNAL, "/signal"},
                                        {OCTAVO_ROLE_NOISE, "/noise"}};
      for (uint32_t i = 0; i < kStatisticCount; ++i) {
        const std::string name = operand + kStatistics[i].name;
        octavo_slot slot = pooled(kStatistics[i].role, 1, name);
        slot.flags = OCTAVO_SLOT_REDUCE;
        slot.combine = OCTAVO_COMBINE_SUM;
        slot.access[verb] = OCTAVO_ACCESS_ACCUMULATE;
        slot.access[OCTAVO_VERB_END_STEP] = OCTAVO_ACCESS_WRITE;
        pool.statistics[i] = emitter_.session_position();
        ids.statistics[i] = emitter_.emit_for_session(slot);
      }
    }
    now_.pools.push_back(pool);
    return ids;
  }

  // Positions in one object's list, in the order in which its uses are emitted.
  class List {
   public:
    List(Emitter &emitter, uint32_t owner_kind, uint32_t owner)
        : emitter_(emitter), owner_kind_(owner_kind), owner_(owner) {}

    Position add(uint32_t slot, uint32_t first = 0, uint32_t count = 0) {
      if (slot == OCTAVO_NONE) return OCTAVO_NONE;
      emitter_.use(owner_kind_, owner_, slot, first, count);
      return next_++;
    }
    Observed add(const PoolIds &ids, uint32_t column) {
      Observed positions;
      positions.amax = add(ids.amax, column, 1);
      positions.scale = add(ids.scale, column, 1);
      for (uint32_t i = 0; i < kStatisticCount; ++i)
        positions.statistics[i] = add(ids.statistics[i], column, 1);
      return positions;
    }
    // Codes and their scale_inv; per tensor, rows and columns share one entry for the latter.
    void add(const WeightPlaces &ids, WeightPlaces *positions) {
      positions->rows.codes = add(ids.rows.codes);
      positions->rows.scale_inv = add(ids.rows.scale_inv);
      positions->columns.codes = add(ids.columns.codes);
      positions->columns.scale_inv = ids.columns.scale_inv == ids.rows.scale_inv
                                         ? positions->rows.scale_inv
                                         : add(ids.columns.scale_inv);
    }

   private:
    Emitter &emitter_;
    uint32_t owner_kind_;
    uint32_t owner_;
    Position next_ = 0;
  };

  static octavo_str label_of(const std::string &name) { return {name.data(), name.size()}; }

  void parameters() {
    std::vector<octavo_str> labels;
    for (size_t i = now_.sealed_parameters; i < now_.parameters.size(); ++i)
      if (now_.parameters[i].is_linear_weight() && recipe_.casts_weight())
        labels.push_back(label_of(now_.parameters[i].name));
    const PoolIds w = pools("w", OCTAVO_VERB_QUANTIZE_WEIGHT, kE4m3Max, labels);
    uint32_t column = 0;
    for (uint32_t i = now_.sealed_parameters; i < now_.parameters.size(); ++i) {
      Parameter &p = now_.parameters[i];
      List list(emitter_, OCTAVO_OWNER_PARAMETER, i);
      octavo_slot native = Emitter::make(OCTAVO_OWNER_PARAMETER, i, OCTAVO_ROLE_WEIGHT, p.dtype,
                                         p.rows, p.cols, "weight");
      native.flags = OCTAVO_SLOT_NATIVE;
      if (p.is_linear_weight()) {
        if (recipe_.casts_weight()) native.access[OCTAVO_VERB_QUANTIZE_WEIGHT] = OCTAVO_ACCESS_READ;
        if (recipe_.forward_reads_weight()) native.access[OCTAVO_VERB_FORWARD] = OCTAVO_ACCESS_READ;
        if (recipe_.backward_reads_weight())
          native.access[OCTAVO_VERB_BACKWARD] = OCTAVO_ACCESS_READ;
      }
      p.slots.native = emitter_.emit(native);
      p.places.native = list.add(p.slots.native);
      if (!p.is_linear_weight() || !recipe_.casts_weight()) continue;
      caches(i, p);
      list.add(p.slots, &p.places);
      p.observed = list.add(w, column++);
    }
  }

  // Whether a linear of this seal uses the weight.
  bool has_linear(uint32_t parameter) const {
    for (size_t i = now_.sealed_linears; i < now_.linears.size(); ++i)
      if (now_.linears[i].weight == parameter) return true;
    return false;
  }

  // Codes for fprop [N, K] and codes for dgrad [K, N], each followed by its scale_inv; one
  // scale_inv behind the last codes when it serves both.
  void caches(uint32_t owner, Parameter &p) {
    const int64_t n = now_.device.aligned(p.rows);
    const int64_t k = now_.device.aligned(p.cols);
    const bool rows = recipe_.reads_weight_rows();
    const bool columns = recipe_.reads_weight_columns();
    const bool shared = !recipe_.blocks();
    const auto emit = [&](uint32_t role, uint32_t dtype, int64_t height, int64_t width,
                          uint32_t scale_slot, std::string_view name, bool forward, bool backward) {
      octavo_slot slot = Emitter::make(OCTAVO_OWNER_PARAMETER, owner, role, dtype, height, width,
                                       name, {{OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_ACCESS_WRITE}});
      if (forward) slot.access[OCTAVO_VERB_FORWARD] = OCTAVO_ACCESS_READ;
      if (backward) slot.access[OCTAVO_VERB_BACKWARD] = OCTAVO_ACCESS_READ;
      slot.scale_slot = scale_slot;
      if (scale_slot != OCTAVO_NONE) slot.granularity = recipe_.weight_granularity;
      return emitter_.emit(slot);
    };
    const auto emit_scale = [&](int64_t height, int64_t width, std::string_view name, bool forward,
                                bool backward) {
      const uint32_t g = recipe_.weight_granularity;
      return emit(OCTAVO_ROLE_SCALE_INV, scale_of(g, width, nullptr).dtype, scale_rows(g, height),
                  scale_cols(g, width), OCTAVO_NONE, name, forward, backward);
    };
    const bool rows_forward = recipe_.fprop == Operands::kFp8;
    const bool rows_backward = recipe_.dgrad == Operands::kDequantized;
    const uint32_t behind_rows = emitter_.next_slot() + (shared && columns ? 2 : 1);
    if (rows) {
      p.is_packed = now_.packs_weight_rows() && has_linear(owner);
      const int64_t height = p.is_packed ? now_.device.packed(n) : n;
      p.slots.rows.codes = emit(OCTAVO_ROLE_WEIGHT_CACHE, OCTAVO_E4M3FN, height, k, behind_rows,
                                "weight_cache", rows_forward, rows_backward);
      if (!shared || !columns)
        p.slots.rows.scale_inv =
            emit_scale(n, k, "weight_cache/scale_inv", rows_forward, rows_backward);
    }
    if (!columns) return;
    p.slots.columns.codes = emit(OCTAVO_ROLE_WEIGHT_CACHE, OCTAVO_E4M3FN, k, n,
                                 emitter_.next_slot() + 1, "weight_cache_t", false, true);
    p.slots.columns.scale_inv =
        emit_scale(k, n, shared ? "weight_cache/scale_inv" : "weight_cache_t/scale_inv",
                   shared && rows && rows_forward, true);
    if (shared && rows) p.slots.rows.scale_inv = p.slots.columns.scale_inv;
  }

  void linears() {
    std::vector<octavo_str> labels;
    for (size_t i = now_.sealed_linears; i < now_.linears.size(); ++i)
      labels.push_back(label_of(now_.linears[i].name));
    PoolIds x, dy;
    if (recipe_.casts_x()) x = pools("x", OCTAVO_VERB_FORWARD, kE4m3Max, labels);
    if (recipe_.casts_dy())
      dy = pools("dy", OCTAVO_VERB_BACKWARD,
                 recipe_.gradient_dtype == OCTAVO_E5M2 ? kE5m2Max : kE4m3Max, labels);
    for (uint32_t i = now_.sealed_linears; i < now_.linears.size(); ++i) {
      const uint32_t column = i - now_.sealed_linears;
      Linear &linear = now_.linears[i];
      const Parameter &w = now_.parameters[linear.weight];
      List list(emitter_, OCTAVO_OWNER_LINEAR, i);
      if (recipe_.forward_reads_weight() || recipe_.backward_reads_weight())
        linear.weight_places.native = list.add(w.slots.native);
      list.add(w.slots, &linear.weight_places);
      linear.nonfinite = list.add(now_.nonfinite_slot);
      linear.x = list.add(x, column);
      linear.dy = list.add(dy, column);
    }
  }

  octavo_session now_;
  const Recipe &recipe_;
  Emitter emitter_;
};

}  // namespace

octavo_status seal(octavo_session *s, const octavo_slot_sink *sink) {
  try {
    return Sealer(*s, sink).run(s);
  } catch (const std::bad_alloc &) {
    return refuse(*s, OCTAVO_RESOURCE, "out of memory");
  }
}

}  // namespace octavo::te
