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
namespace plugin {

struct Objects {
  std::vector<Parameter> parameters;
  std::vector<Linear> linears;
  // The session's list, by rule: its own slots, and the pools of each seal that had one.
  std::vector<Place> session_places;
  std::vector<std::vector<Place>> session_pools;
  std::vector<Place> cleared;  // by end_step
  uint32_t session_size = 0;
  uint32_t sealed_parameters = 0;
  uint32_t sealed_linears = 0;
  uint32_t sealed_variants = 1;
  uint32_t slots = 0;
};

class Sealer {
 public:
  Sealer(const std::vector<SlotRule> &rules, const Objects &objects, const octavo_slot_sink *sink)
      : rules_(rules),
        now_(objects),
        sink_(sink),
        weight_columns_(variants()),
        linear_columns_(variants()) {}

  // Everything emitted, or the status of the sink and `objects` as it was.
  octavo_status run(Objects *objects) {
    session();
    for (uint32_t i = now_.sealed_linears; i < now_.linears.size(); ++i)
      if (const uint32_t weight = now_.linears[i].weight; weight >= now_.sealed_parameters)
        now_.parameters[weight].has_linear = true;
    pools(false);
    for (uint32_t i = now_.sealed_parameters; i < now_.parameters.size(); ++i) parameter(i);
    pools(true);
    for (uint32_t i = now_.sealed_linears; i < now_.linears.size(); ++i) linear(i);
    if (status_ != OCTAVO_OK) return status_;
    now_.sealed_parameters = static_cast<uint32_t>(now_.parameters.size());
    now_.sealed_linears = static_cast<uint32_t>(now_.linears.size());
    now_.sealed_variants = variants();
    *objects = std::move(now_);
    return OCTAVO_OK;
  }

 private:
  using Kind = SlotRule::Kind;

  uint32_t variants() const { return rules_.empty() ? 1 : rules_.back().variant + 1; }

  // `places`: of the same object, in which every slot has its id.
  void emit(const SlotRule &r, uint32_t owner_kind, uint32_t owner, const Place &place,
            const std::vector<Place> &places, const std::vector<octavo_str> *labels = nullptr) {
    auto slot = make<octavo_slot>(OCTAVO_KIND_SLOT);
    slot.id = place.slot;
    slot.owner_kind = owner_kind;
    slot.owner = owner;
    slot.role = r.role;
    slot.dtype = place.dtype;
    slot.flags = r.flags;
    if (place.layout == Layout::kPacked) slot.flags |= OCTAVO_SLOT_PACKED;
    slot.combine = r.combine;
    slot.shard = r.shard;
    slot.scale_slot = OCTAVO_NONE;
    slot.rows = place.rows;
    slot.cols = place.cols;
    slot.initial = r.initial;
    std::copy(std::begin(r.access), std::end(r.access), slot.access);
    // The verbs of linears get no call for another parameter.
    if (owner_kind == OCTAVO_OWNER_PARAMETER && !now_.parameters[owner].is_linear_weight())
      for (const uint32_t v :
           {OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_VERB_FORWARD, OCTAVO_VERB_BACKWARD})
        slot.access[v] = OCTAVO_ACCESS_NONE;
    slot.name = borrow(r.name);
    if (labels != nullptr) slot.labels = labels->data();
    if (r.scale_rule != OCTAVO_NONE) {
      slot.scale_slot = places[r.scale_rule].slot;
      slot.granularity = r.granularity;
    }
    if (r.adjust && owner_kind == OCTAVO_OWNER_PARAMETER) r.adjust(now_.parameters[owner], &slot);
    if (status_ == OCTAVO_OK) status_ = sink_->slot(sink_->ctx, &slot);
  }

  void use(uint32_t owner_kind, uint32_t owner, uint32_t slot, uint32_t first = 0,
           uint32_t count = 0) {
    const octavo_slot_use u = {owner_kind, owner, slot, first, count, 0};
    if (status_ == OCTAVO_OK) status_ = sink_->use(sink_->ctx, &u);
  }

  void use_in_session(const SlotRule &rule, Place *place) {
    use(OCTAVO_OWNER_SESSION, 0, place->slot);
    place->position = now_.session_size++;
    const uint8_t at_end = rule.access[OCTAVO_VERB_END_STEP];
    // What finish_step() updates is its own business, but for this flag, which it may only look at.
    if (at_end == OCTAVO_ACCESS_WRITE ||
        (at_end == OCTAVO_ACCESS_UPDATE && rule.role == OCTAVO_ROLE_NONFINITE))
      now_.cleared.push_back(*place);
  }

  // What the rule is for this parameter, or for a linear with this weight.
  Place allot(const SlotRule &r, const Parameter &p) {
    Place place;
    place.slot = now_.slots++;
    place.dtype = r.dtype_of ? r.dtype_of(p) : r.dtype == 0 ? p.dtype : r.dtype;
    place.rows = r.rows, place.cols = r.cols;
    if (r.shape) r.shape(p, &place.rows, &place.cols);
    if (r.panel_rows > 0 && p.has_linear) {
      place.rows = divide_up(place.rows, r.panel_rows) * r.panel_rows;
      place.layout = Layout::kPacked;
    }
    return place;
  }
  Place allot(const SlotRule &r, int64_t cols) {
    Place place;
    place.slot = now_.slots++;
    place.dtype = r.dtype, place.rows = r.rows, place.cols = cols;
    return place;
  }

  // What one variant stated before is another's, too.
  const Place *stated_before(uint32_t rule) const {
    for (uint32_t r = 0; r < rule; ++r)
      if (rules_[r].variant != rules_[rule].variant && rules_[r].is_same(rules_[rule]))
        return &now_.session_places[r];
    return nullptr;
  }

  void session() {
    const auto known = static_cast<uint32_t>(now_.session_places.size());
    now_.session_places.resize(rules_.size());
    now_.session_pools.resize(rules_.size());
    for (uint32_t r = known; r < rules_.size(); ++r) {
      if (rules_[r].kind != Kind::kSession) continue;
      Place &p = now_.session_places[r];
      if (const Place *before = stated_before(r)) {
        p = *before;
        continue;
      }
      p = allot(rules_[r], rules_[r].cols);
      emit(rules_[r], OCTAVO_OWNER_SESSION, 0, p, now_.session_places);
      use_in_session(rules_[r], &p);
    }
  }

  // The names of this seal's linear weights of a variant, or of its linears.
  std::vector<octavo_str> labels_of(bool of_linears, uint32_t variant) const {
    std::vector<octavo_str> labels;
    if (of_linears) {
      for (size_t i = now_.sealed_linears; i < now_.linears.size(); ++i)
        if (now_.linears[i].variant == variant) labels.push_back(borrow(now_.linears[i].name));
    } else {
      for (size_t i = now_.sealed_parameters; i < now_.parameters.size(); ++i)
        if (const Parameter &p = now_.parameters[i]; p.is_linear_weight() && p.variant == variant)
          labels.push_back(borrow(p.name));
    }
    return labels;
  }

  // The pools of this seal: each variant has its own.
  void pools(bool of_linears) {
    std::vector<Place> &pools = of_linears ? linear_pools_ : weight_pools_;
    pools.resize(rules_.size());
    std::vector<octavo_str> labels;
    uint32_t variant = OCTAVO_NONE;
    for (uint32_t r = 0; r < rules_.size(); ++r) {
      if (rules_[r].kind != (of_linears ? Kind::kLinearPool : Kind::kWeightPool)) continue;
      if (rules_[r].variant != variant) labels = labels_of(of_linears, variant = rules_[r].variant);
      if (labels.empty()) continue;
      pools[r] = allot(rules_[r], static_cast<int64_t>(labels.size()));
      emit(rules_[r], OCTAVO_OWNER_SESSION, 0, pools[r], pools, &labels);
      use_in_session(rules_[r], &pools[r]);
      now_.session_pools[r].push_back(pools[r]);
    }
  }

  void parameter(uint32_t id) {
    Parameter &p = now_.parameters[id];
    p.places.assign(rules_.size(), Place());
    p.by_role.fill(OCTAVO_NONE);
    for (uint32_t r = 0; r < rules_.size(); ++r) {
      const SlotRule &rule = rules_[r];
      if (rule.kind != Kind::kParameter || rule.variant != p.variant ||
          (rule.when && !rule.when(p)))
        continue;
      p.places[r] = allot(rule, p);
      if (rule.role < p.by_role.size() && p.by_role[rule.role] == OCTAVO_NONE)
        p.by_role[rule.role] = r;
    }
    uint32_t next = 0;
    for (uint32_t r = 0; r < rules_.size(); ++r) {
      const SlotRule &rule = rules_[r];
      Place &place = p.places[r];
      if (rule.variant != p.variant) continue;
      if (rule.kind == Kind::kParameter && place.slot != OCTAVO_NONE) {
        if (rule.role == OCTAVO_ROLE_GRADIENT && !(rule.flags & OCTAVO_SLOT_NATIVE))
          p.has_gradient = true;
        if (rule.access[OCTAVO_VERB_QUANTIZE_WEIGHT] == OCTAVO_ACCESS_WRITE &&
            rule.access[OCTAVO_VERB_FORWARD] == OCTAVO_ACCESS_READ)
          p.needs_cast = true;
        emit(rule, OCTAVO_OWNER_PARAMETER, id, place, p.places);
        use(OCTAVO_OWNER_PARAMETER, id, place.slot);
      } else if (rule.kind == Kind::kSession && rule.is_of_parameter_verbs() &&
                 (!rule.when || rule.when(p))) {
        place = now_.session_places[r];
        use(OCTAVO_OWNER_PARAMETER, id, place.slot);
      } else if (rule.kind == Kind::kWeightPool && p.is_linear_weight() &&
                 rule.is_of_parameter_verbs()) {
        place = weight_pools_[r];
        use(OCTAVO_OWNER_PARAMETER, id, place.slot, weight_columns_[p.variant], 1);
      } else {
        continue;
      }
      place.position = next++;
    }
    if (p.is_linear_weight()) ++weight_columns_[p.variant];
  }

  void linear(uint32_t id) {
    Linear &l = now_.linears[id];
    const Parameter &w = now_.parameters[l.weight];
    l.places.assign(rules_.size(), Place());
    for (uint32_t r = 0; r < rules_.size(); ++r) {
      const SlotRule &rule = rules_[r];
      if (rule.variant != l.variant) continue;
      if (rule.kind == Kind::kLinear && (!rule.when || rule.when(w)))
        l.places[r] = allot(rule, w);
      else if (rule.kind == Kind::kParameter && rule.is_of_linear_verbs())
        l.places[r] = w.places[r];
    }
    uint32_t next = 0;
    for (uint32_t r = 0; r < rules_.size(); ++r) {
      const SlotRule &rule = rules_[r];
      Place &place = l.places[r];
      if (rule.variant != l.variant) continue;
      if (place.slot != OCTAVO_NONE) {
        if (rule.kind == Kind::kLinear) emit(rule, OCTAVO_OWNER_LINEAR, id, place, l.places);
        use(OCTAVO_OWNER_LINEAR, id, place.slot);
      } else if (rule.kind == Kind::kSession && rule.is_of_linear_verbs()) {
        place = now_.session_places[r];
        use(OCTAVO_OWNER_LINEAR, id, place.slot);
      } else if (rule.kind == Kind::kLinearPool && rule.is_of_linear_verbs()) {
        place = linear_pools_[r];
        use(OCTAVO_OWNER_LINEAR, id, place.slot, linear_columns_[l.variant], 1);
      } else {
        continue;
      }
      place.position = next++;
    }
    ++linear_columns_[l.variant];
  }

  const std::vector<SlotRule> &rules_;
  Objects now_;
  const octavo_slot_sink *sink_;
  octavo_status status_ = OCTAVO_OK;
  std::vector<Place> weight_pools_, linear_pools_;
  std::vector<uint32_t> weight_columns_, linear_columns_;  // the next ones, by variant
};

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
