// seal: the slots of the session, then those of parameters, then the lists of linears.
//
// A failed seal changes nothing: everything is counted in a copy that is kept at the end.
#include "slots.h"

#include <new>

namespace octavo::msamp {
namespace {

class Sealer {
 public:
  Sealer(const octavo_session &s, const octavo_slot_sink *sink)
      : now_(s), emitter_(sink, &now_.emitted) {}

  octavo_status run(octavo_session *target) {
    if (now_.emitted.slots == 0) session_slots();
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
  Place session_slot(const octavo_slot &slot) {
    const uint32_t position = emitter_.session_position();
    return {emitter_.emit_for_session(slot), position};
  }

  void session_slots() {
    now_.nonfinite.position = emitter_.session_position();
    now_.nonfinite.slot = emitter_.emit_nonfinite();
    for (auto &[place, name] :
         {std::pair<Place *, const char *>{&now_.saturated, "reduce/saturated"},
          std::pair<Place *, const char *>{&now_.added, "reduce/added"}}) {
      octavo_slot count =
          Emitter::make(OCTAVO_OWNER_SESSION, 0, OCTAVO_ROLE_OTHER, OCTAVO_F32, 1, 1, name,
                        {{OCTAVO_VERB_REDUCE, OCTAVO_ACCESS_ACCUMULATE},
                         {OCTAVO_VERB_END_STEP, OCTAVO_ACCESS_UPDATE}});
      count.flags = OCTAVO_SLOT_REDUCE;
      count.combine = OCTAVO_COMBINE_SUM;
      *place = session_slot(count);
    }
    if (now_.recipe.prescale != Prescale::kAuto) return;
    octavo_slot prescale = Emitter::make(
        OCTAVO_OWNER_SESSION, 0, OCTAVO_ROLE_OTHER, OCTAVO_F32, 1, 1, "reduce/prescale",
        {{OCTAVO_VERB_REDUCE, OCTAVO_ACCESS_READ}, {OCTAVO_VERB_END_STEP, OCTAVO_ACCESS_UPDATE}});
    prescale.flags = OCTAVO_SLOT_CHECKPOINT;
    // Up to 16 ranks cannot saturate with it; the rule grows it from there.
    prescale.initial = 1.0 / 16;
    now_.prescale = session_slot(prescale);
  }

  void parameters() {
    for (size_t i = now_.sealed_linears; i < now_.linears.size(); ++i) {
      const uint32_t weight = now_.linears[i].weight;
      if (weight >= now_.sealed_parameters) now_.parameters[weight].is_owned = true;
    }
    for (uint32_t i = now_.sealed_parameters; i < now_.parameters.size(); ++i)
      ParameterSlots(now_, emitter_, i).emit();
  }

  struct Pools {
    uint32_t amax = OCTAVO_NONE;
    uint32_t scale = OCTAVO_NONE;
    uint32_t counter = OCTAVO_NONE;
  };

  Pools pools(const std::string &operand, uint32_t verb, float format_max,
              const std::vector<octavo_str> &labels) {
    Pools ids;
    if (labels.empty()) return ids;
    now_.pools.push_back({labels.size(), emitter_.session_position(), format_max});
    auto pooled = [&](uint32_t role, uint64_t rows, const std::string &name, uint8_t access) {
      octavo_slot slot =
          Emitter::make(OCTAVO_OWNER_SESSION, 0, role, OCTAVO_F32, static_cast<int64_t>(rows),
                        static_cast<int64_t>(labels.size()), name,
                        {{verb, access}, {OCTAVO_VERB_END_STEP, OCTAVO_ACCESS_UPDATE}});
      slot.labels = labels.data();
      slot.flags = OCTAVO_SLOT_CHECKPOINT;
      return slot;
    };
    const std::string amax_name = operand + "/amax", history_name = operand + "/amax_history",
                      scale_name = operand + "/scale", counter_name = operand + "/counter";
    octavo_slot amax = pooled(OCTAVO_ROLE_AMAX, 1, amax_name, OCTAVO_ACCESS_ACCUMULATE);
    amax.flags = OCTAVO_SLOT_REDUCE;
    amax.combine = OCTAVO_COMBINE_MAX;
    ids.amax = emitter_.emit_for_session(amax);
    emitter_.emit_for_session(pooled(OCTAVO_ROLE_AMAX_HISTORY, now_.recipe.amax_history_len,
                                     history_name, OCTAVO_ACCESS_NONE));
    octavo_slot scale = pooled(OCTAVO_ROLE_SCALE, 1, scale_name, OCTAVO_ACCESS_READ);
    scale.initial = 1;
    ids.scale = emitter_.emit_for_session(scale);
    ids.counter =
        emitter_.emit_for_session(pooled(OCTAVO_ROLE_COUNTER, 1, counter_name, OCTAVO_ACCESS_READ));
    return ids;
  }

  void linears() {
    std::vector<octavo_str> labels;
    for (size_t i = now_.sealed_linears; i < now_.linears.size(); ++i)
      labels.push_back({now_.linears[i].name.data(), now_.linears[i].name.size()});
    const Pools x = pools("x", OCTAVO_VERB_FORWARD, kE4m3Max, labels);
    const Pools dy = pools("dy", OCTAVO_VERB_BACKWARD, kE5m2Max, labels);
    for (uint32_t i = now_.sealed_linears; i < now_.linears.size(); ++i) {
      Linear &linear = now_.linears[i];
      const Parameter &w = now_.parameters[linear.weight];
      uint32_t position = 0;
      auto share = [&](uint32_t slot, uint32_t first, uint32_t count) -> Place {
        if (slot == OCTAVO_NONE) return {};
        emitter_.use(OCTAVO_OWNER_LINEAR, i, slot, first, count);
        return {slot, position++};
      };
      auto share_stored = [&](const Stored &stored) -> Stored {
        Stored shared = stored;
        shared.data = share(stored.data.slot, 0, 0);
        shared.scale_inv = share(stored.scale_inv.slot, 0, 0);
        return shared;
      };
      linear.w = share_stored(w.weight);
      linear.cache = share(w.cache.slot, 0, 0);
      linear.cache_t = share(w.cache_t.slot, 0, 0);
      linear.cache_scale_inv = share(w.cache_scale_inv.slot, 0, 0);
      linear.gradient = share_stored(w.gradient);
      linear.nonfinite = share(now_.nonfinite.slot, 0, 0);
      const uint32_t column = i - now_.sealed_linears;
      for (auto &[delayed, ids] : {std::pair<Delayed *, const Pools *>{&linear.x, &x},
                                   std::pair<Delayed *, const Pools *>{&linear.dy, &dy}}) {
        delayed->amax = share(ids->amax, column, 1);
        delayed->scale = share(ids->scale, column, 1);
        delayed->counter = share(ids->counter, column, 1);
      }
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

}  // namespace octavo::msamp
