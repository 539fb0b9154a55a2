// octavo/hpp/plugin/seal.hpp: the objects of a session, and what its seals emit.
//
// A seal that fails changes nothing: ids are counted in a copy, and places are kept at the end.
#ifndef OCTAVO_HPP_PLUGIN_SEAL_HPP
#define OCTAVO_HPP_PLUGIN_SEAL_HPP

#include <utility>

#include "octavo/backend.h"
#include "octavo/hpp/plugin/slots.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace author {

// One entry of the session's list.
struct SessionEntry {
  uint32_t rule;
  uint32_t access;  // of end_step
  int64_t rows;
  int64_t cols;  // of a pool: its columns
};

struct Objects {
  std::vector<Parameter> parameters;
  std::vector<Linear> linears;
  std::vector<SessionEntry> session;
  std::vector<Place> session_places;  // by rule; pools are found in `session` only
  uint32_t sealed_parameters = 0;
  uint32_t sealed_linears = 0;
  uint32_t slots = 0;
};

class Sealer {
 public:
  Sealer(const std::vector<SlotRule> &rules, const Objects &objects, const octavo_slot_sink *sink)
      : rules_(rules), now_(objects), sink_(sink) {}

  // Everything emitted, or the status of the sink and `objects` as it was.
  octavo_status run(Objects *objects) {
    if (now_.session_places.empty()) session();
    for (const bool linear : {false, true}) pools(linear);
    for (uint32_t i = now_.sealed_parameters; i < now_.parameters.size(); ++i) parameter(i);
    for (uint32_t i = now_.sealed_linears; i < now_.linears.size(); ++i) linear(i);
    if (status_ != OCTAVO_OK) return status_;
    now_.sealed_parameters = static_cast<uint32_t>(now_.parameters.size());
    now_.sealed_linears = static_cast<uint32_t>(now_.linears.size());
    *objects = std::move(now_);
    return OCTAVO_OK;
  }

 private:
  using Kind = SlotRule::Kind;

  uint32_t emit(const SlotRule &r, uint32_t owner_kind, uint32_t owner, Place *place,
                const std::vector<octavo_str> *labels = nullptr) {
    auto slot = make<octavo_slot>(OCTAVO_KIND_SLOT);
    slot.id = now_.slots++;
    slot.owner_kind = owner_kind;
    slot.owner = owner;
    slot.role = r.role;
    slot.dtype = place->dtype;
    slot.flags = r.flags;
    slot.combine = r.combine;
    slot.shard = r.shard;
    slot.scale_slot = OCTAVO_NONE;
    slot.rows = place->rows;
    slot.cols = place->cols;
    slot.initial = r.initial;
    std::copy(std::begin(r.access), std::end(r.access), slot.access);
    slot.name = borrow(r.name);
    if (labels != nullptr) slot.labels = labels->data();
    if (r.scale_rule != OCTAVO_NONE) {
      slot.scale_slot = scale_slot_;
      slot.granularity = OCTAVO_PER_TENSOR;
    }
    place->slot = slot.id;
    if (status_ == OCTAVO_OK) status_ = sink_->slot(sink_->ctx, &slot);
    return slot.id;
  }

  void use(uint32_t owner_kind, uint32_t owner, uint32_t slot, uint32_t first = 0,
           uint32_t count = 0) {
    const octavo_slot_use u = {owner_kind, owner, slot, first, count, 0};
    if (status_ == OCTAVO_OK) status_ = sink_->use(sink_->ctx, &u);
  }

  void use_in_session(uint32_t rule, const Place &place) {
    use(OCTAVO_OWNER_SESSION, 0, place.slot);
    now_.session.push_back(
        {rule, rules_[rule].access[OCTAVO_VERB_END_STEP], place.rows, place.cols});
  }

  void session() {
    now_.session_places.resize(rules_.size());
    for (uint32_t r = 0; r < rules_.size(); ++r) {
      if (rules_[r].kind != Kind::kSession) continue;
      Place &p = now_.session_places[r];
      p.dtype = rules_[r].dtype, p.rows = rules_[r].rows, p.cols = rules_[r].cols;
      emit(rules_[r], OCTAVO_OWNER_SESSION, 0, &p);
      p.position = static_cast<uint32_t>(now_.session.size());
      use_in_session(r, p);
    }
  }

  // The pools of this seal's linear weights, or of its linears.
  void pools(bool of_linears) {
    std::vector<octavo_str> labels;
    if (of_linears) {
      for (size_t i = now_.sealed_linears; i < now_.linears.size(); ++i)
        labels.push_back(borrow(now_.linears[i].name));
    } else {
      for (size_t i = now_.sealed_parameters; i < now_.parameters.size(); ++i)
        if (now_.parameters[i].is_linear_weight())
          labels.push_back(borrow(now_.parameters[i].name));
    }
    std::vector<Place> &pools = of_linears ? linear_pools_ : weight_pools_;
    pools.resize(rules_.size());
    if (labels.empty()) return;
    for (uint32_t r = 0; r < rules_.size(); ++r) {
      if (rules_[r].kind != (of_linears ? Kind::kLinearPool : Kind::kWeightPool)) continue;
      Place &p = pools[r];
      p.dtype = rules_[r].dtype, p.rows = rules_[r].rows;
      p.cols = static_cast<int64_t>(labels.size());
      emit(rules_[r], OCTAVO_OWNER_SESSION, 0, &p, &labels);
      use_in_session(r, p);
    }
  }

  Place shape_of(const SlotRule &r, const Parameter &p) const {
    Place place;
    place.dtype = r.dtype == 0 ? p.dtype : r.dtype;
    place.rows = r.rows, place.cols = r.cols;
    if (r.shape) r.shape(p, &place.rows, &place.cols);
    return place;
  }

  void parameter(uint32_t id) {
    Parameter &p = now_.parameters[id];
    p.places.assign(rules_.size(), Place());
    uint32_t next = 0;
    for (uint32_t r = 0; r < rules_.size(); ++r) {
      const SlotRule &rule = rules_[r];
      Place &place = p.places[r];
      if (rule.kind == Kind::kParameter && (!rule.when || rule.when(p))) {
        place = shape_of(rule, p);
        if (rule.scale_rule != OCTAVO_NONE) scale_slot_ = p.places[rule.scale_rule].slot;
        emit(rule, OCTAVO_OWNER_PARAMETER, id, &place);
        use(OCTAVO_OWNER_PARAMETER, id, place.slot);
      } else if (rule.kind == Kind::kSession && rule.is_of_parameter_verbs()) {
        place = now_.session_places[r];
        use(OCTAVO_OWNER_PARAMETER, id, place.slot);
      } else if (rule.kind == Kind::kWeightPool && p.is_linear_weight() &&
                 rule.is_of_parameter_verbs()) {
        place = weight_pools_[r];
        use(OCTAVO_OWNER_PARAMETER, id, place.slot, weight_column_, 1);
      } else {
        continue;
      }
      place.position = next++;
    }
    if (p.is_linear_weight()) ++weight_column_;
  }

  void linear(uint32_t id) {
    Linear &l = now_.linears[id];
    const Parameter &w = now_.parameters[l.weight];
    l.places.assign(rules_.size(), Place());
    uint32_t next = 0;
    for (uint32_t r = 0; r < rules_.size(); ++r) {
      const SlotRule &rule = rules_[r];
      Place &place = l.places[r];
      if (rule.kind == Kind::kParameter && rule.is_of_linear_verbs() &&
          w.places[r].slot != OCTAVO_NONE) {
        place = w.places[r];
        use(OCTAVO_OWNER_LINEAR, id, place.slot);
      } else if (rule.kind == Kind::kLinear && (!rule.when || rule.when(w))) {
        place = shape_of(rule, w);
        if (rule.scale_rule != OCTAVO_NONE) scale_slot_ = l.places[rule.scale_rule].slot;
        emit(rule, OCTAVO_OWNER_LINEAR, id, &place);
        use(OCTAVO_OWNER_LINEAR, id, place.slot);
      } else if (rule.kind == Kind::kSession && rule.is_of_linear_verbs()) {
        place = now_.session_places[r];
        use(OCTAVO_OWNER_LINEAR, id, place.slot);
      } else if (rule.kind == Kind::kLinearPool && rule.is_of_linear_verbs()) {
        place = linear_pools_[r];
        use(OCTAVO_OWNER_LINEAR, id, place.slot, id - now_.sealed_linears, 1);
      } else {
        continue;
      }
      place.position = next++;
    }
  }

  const std::vector<SlotRule> &rules_;
  Objects now_;
  const octavo_slot_sink *sink_;
  octavo_status status_ = OCTAVO_OK;
  std::vector<Place> weight_pools_, linear_pools_;
  uint32_t weight_column_ = 0;
  uint32_t scale_slot_ = OCTAVO_NONE;
};

}  // namespace author
}  // namespace octavo
#pragma GCC visibility pop

#endif
