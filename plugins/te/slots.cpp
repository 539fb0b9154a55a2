// seal: the slots of a session and the pointer lists of its objects.
//
// Three pools per seal (x, dy, w), since a slot may be accumulated by one verb only and a pool has
// one format. A failed seal changes nothing: everything is counted in a copy that is kept at the
// end.
#include <string_view>

#include "te.h"

namespace octavo::te {

using plugin::Emitter;

namespace {

class Sealer {
 public:
  Sealer(const octavo_session &s, const octavo_slot_sink *sink)
      : now_(s), emitter_(sink, &now_.emitted) {}

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
  // Slot ids of one operand's pools.
  struct Pools {
    uint32_t amax = OCTAVO_NONE;
    uint32_t scale = OCTAVO_NONE;
  };

  Pools pools(const std::string &operand, uint32_t verb, float format_max,
              const std::vector<octavo_str> &labels) {
    Pools ids;
    if (labels.empty()) return ids;
    const auto n = static_cast<int64_t>(labels.size());
    Pool pool;
    pool.count = labels.size();
    pool.position = emitter_.session_position();
    pool.format_max = format_max;
    now_.pools.push_back(pool);
    auto pooled = [&](uint32_t role, int64_t rows, std::string_view name) {
      octavo_slot slot = Emitter::make(OCTAVO_OWNER_SESSION, 0, role, OCTAVO_F32, rows, n, name);
      slot.labels = labels.data();
      slot.access[OCTAVO_VERB_END_STEP] = OCTAVO_ACCESS_UPDATE;
      return slot;
    };
    const std::string amax_name = operand + "/amax";
    octavo_slot amax = pooled(OCTAVO_ROLE_AMAX, 1, amax_name);
    amax.flags = OCTAVO_SLOT_REDUCE;
    amax.combine = OCTAVO_COMBINE_MAX;
    amax.access[verb] = OCTAVO_ACCESS_ACCUMULATE;
    if (!now_.delayed()) amax.access[OCTAVO_VERB_END_STEP] = OCTAVO_ACCESS_WRITE;
    ids.amax = emitter_.emit_for_session(amax);
    if (!now_.delayed()) return ids;
    const std::string history_name = operand + "/amax_history";
    octavo_slot history = pooled(OCTAVO_ROLE_AMAX_HISTORY,
                                 static_cast<int64_t>(now_.recipe.amax_history_len), history_name);
    history.flags = OCTAVO_SLOT_CHECKPOINT;
    emitter_.emit_for_session(history);
    const std::string scale_name = operand + "/scale";
    octavo_slot scale = pooled(OCTAVO_ROLE_SCALE, 1, scale_name);
    scale.flags = OCTAVO_SLOT_CHECKPOINT;
    scale.access[verb] = OCTAVO_ACCESS_READ;
    scale.initial = 1;
    ids.scale = emitter_.emit_for_session(scale);
    return ids;
  }

  void parameters() {
    std::vector<octavo_str> labels;
    for (size_t i = now_.sealed_parameters; i < now_.parameters.size(); ++i)
      if (now_.parameters[i].is_linear_weight())
        labels.push_back({now_.parameters[i].name.data(), now_.parameters[i].name.size()});
    const Pools w = pools("w", OCTAVO_VERB_QUANTIZE_WEIGHT, kE4m3Max, labels);
    uint32_t column = 0;
    for (uint32_t i = now_.sealed_parameters; i < now_.parameters.size(); ++i) {
      Parameter &p = now_.parameters[i];
      octavo_slot native = Emitter::make(OCTAVO_OWNER_PARAMETER, i, OCTAVO_ROLE_WEIGHT, p.dtype,
                                         p.rows, p.cols, "weight");
      native.flags = OCTAVO_SLOT_NATIVE;
      if (p.is_linear_weight()) native.access[OCTAVO_VERB_QUANTIZE_WEIGHT] = OCTAVO_ACCESS_READ;
      p.weight_slot = emitter_.emit(native);
      emitter_.use(OCTAVO_OWNER_PARAMETER, i, p.weight_slot);
      if (!p.is_linear_weight()) continue;
      cache(i, p);
      for (uint32_t slot = p.cache_slot; slot < p.cache_slot + 3; ++slot)
        emitter_.use(OCTAVO_OWNER_PARAMETER, i, slot);
      emitter_.use(OCTAVO_OWNER_PARAMETER, i, w.amax, column, 1);
      if (now_.delayed()) emitter_.use(OCTAVO_OWNER_PARAMETER, i, w.scale, column, 1);
      ++column;
    }
  }

  // Three slots in a row: codes for fprop [N, K], codes for dgrad [K, N], and their scale_inv.
  void cache(uint32_t owner, Parameter &p) {
    const int64_t n = now_.device.aligned(p.rows);
    const int64_t k = now_.device.aligned(p.cols);
    p.cache_slot = emitter_.next_slot();
    auto slot_of = [&](uint32_t role, uint32_t dtype, int64_t rows, int64_t cols,
                       std::string_view name) {
      octavo_slot slot =
          Emitter::make(OCTAVO_OWNER_PARAMETER, owner, role, dtype, rows, cols, name);
      slot.access[OCTAVO_VERB_QUANTIZE_WEIGHT] = OCTAVO_ACCESS_WRITE;
      return slot;
    };
    octavo_slot codes = slot_of(OCTAVO_ROLE_WEIGHT_CACHE, OCTAVO_E4M3FN, n, k, "weight_cache");
    codes.access[OCTAVO_VERB_FORWARD] = OCTAVO_ACCESS_READ;
    codes.scale_slot = p.cache_slot + 2;
    emitter_.emit(codes);
    octavo_slot codes_t = slot_of(OCTAVO_ROLE_WEIGHT_CACHE, OCTAVO_E4M3FN, k, n, "weight_cache_t");
    codes_t.access[OCTAVO_VERB_BACKWARD] = OCTAVO_ACCESS_READ;
    codes_t.scale_slot = p.cache_slot + 2;
    emitter_.emit(codes_t);
    octavo_slot scale_inv =
        slot_of(OCTAVO_ROLE_SCALE_INV, OCTAVO_F32, 1, 1, "weight_cache/scale_inv");
    scale_inv.access[OCTAVO_VERB_FORWARD] = OCTAVO_ACCESS_READ;
    scale_inv.access[OCTAVO_VERB_BACKWARD] = OCTAVO_ACCESS_READ;
    emitter_.emit(scale_inv);
  }

  void linears() {
    std::vector<octavo_str> labels;
    for (size_t i = now_.sealed_linears; i < now_.linears.size(); ++i)
      labels.push_back({now_.linears[i].name.data(), now_.linears[i].name.size()});
    const Pools x = pools("x", OCTAVO_VERB_FORWARD, kE4m3Max, labels);
    const Pools dy = pools("dy", OCTAVO_VERB_BACKWARD,
                           now_.recipe.gradient_dtype == OCTAVO_E5M2 ? kE5m2Max : kE4m3Max, labels);
    for (uint32_t i = now_.sealed_linears; i < now_.linears.size(); ++i) {
      const uint32_t column = i - now_.sealed_linears;
      const Parameter &w = now_.parameters[now_.linears[i].weight];
      for (uint32_t slot = w.cache_slot; slot < w.cache_slot + 3; ++slot)
        emitter_.use(OCTAVO_OWNER_LINEAR, i, slot);
      emitter_.use(OCTAVO_OWNER_LINEAR, i, now_.nonfinite_slot);
      emitter_.use(OCTAVO_OWNER_LINEAR, i, x.amax, column, 1);
      emitter_.use(OCTAVO_OWNER_LINEAR, i, dy.amax, column, 1);
      if (!now_.delayed()) continue;
      emitter_.use(OCTAVO_OWNER_LINEAR, i, x.scale, column, 1);
      emitter_.use(OCTAVO_OWNER_LINEAR, i, dy.scale, column, 1);
    }
  }

  octavo_session now_;
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
