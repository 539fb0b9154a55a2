// seal of the subject: slots and uses of what was added since the last seal.
//
// Pools come first, then the parameters, then the linears; nothing emitted before changes.
#include <algorithm>
#include <tuple>

#include "subject_session.h"

namespace octavo::selftest {
namespace {

octavo_str view(const std::string &s) {
  return {s.data(), s.size()};
}

class Emitter {
 public:
  Emitter(octavo_session &s, const octavo_slot_sink &sink) : s_(s), sink_(sink) {}

  struct Access {
    uint32_t verb;
    uint8_t kind;
  };

  uint32_t slot(const char *name, uint32_t owner_kind, uint32_t owner, uint32_t role,
                uint32_t dtype, int64_t rows, int64_t cols, std::initializer_list<Access> accesses,
                uint32_t flags = 0, double initial = 0, const octavo_str *labels = nullptr) {
    octavo_slot slot{};
    slot.size = sizeof slot;
    slot.kind = OCTAVO_KIND_SLOT;
    slot.id = s_.slots;
    slot.owner_kind = owner_kind;
    slot.owner = owner;
    slot.role = role;
    slot.dtype = dtype;
    slot.flags = flags;
    slot.scale_slot = OCTAVO_NONE;
    slot.rows = rows;
    slot.cols = cols;
    slot.initial = initial;
    for (const Access &a : accesses) {
      slot.access[a.verb] = a.kind;
      if (a.kind == OCTAVO_ACCESS_ACCUMULATE) slot.combine = OCTAVO_COMBINE_MAX;
    }
    if (role == OCTAVO_ROLE_NONFINITE && s_.fault == kNonfiniteBySum)
      slot.combine = OCTAVO_COMBINE_SUM;
    slot.name = {name, std::char_traits<char>::length(name)};
    slot.labels = labels;
    if (s_.fault == kScaleOfOtherShape && slot.name.size == 12 &&
        role == OCTAVO_ROLE_WEIGHT_CACHE) {  // "weight_cache"
      slot.scale_slot = slot.id + 2;
      slot.granularity = OCTAVO_PER_ROW;
    }
    if (status_ == OCTAVO_OK) status_ = sink_.slot(sink_.ctx, &slot);
    return s_.slots++;
  }

  void use(uint32_t owner_kind, uint32_t owner, uint32_t slot, uint32_t first = 0,
           uint32_t count = 0) {
    const octavo_slot_use u = {owner_kind, owner, slot, first, count, 0};
    if (status_ == OCTAVO_OK) status_ = sink_.use(sink_.ctx, &u);
    if (owner_kind == OCTAVO_OWNER_SESSION) ++s_.session_positions;
  }

  // The slots of one kind of operand; returns the id of its scale slot, behind which amax stands.
  uint32_t pool(const std::string &kind, const std::vector<octavo_str> &labels, uint32_t verb,
                float format_max) {
    const auto n = static_cast<int64_t>(labels.size());
    const bool history_hot = kind == "x" && s_.fault == kHistoryInForward;
    const uint32_t session = OCTAVO_OWNER_SESSION;
    names_[0] = kind + "/scale";
    names_[1] = kind + "/amax";
    names_[2] = kind + "/amax_history";
    const auto verb_access = static_cast<uint8_t>(history_hot ? OCTAVO_ACCESS_READ : 0);
    const uint8_t scale_access =
        s_.fault == kScaleUnread ? uint8_t{OCTAVO_ACCESS_NONE} : uint8_t{OCTAVO_ACCESS_READ};
    const uint32_t scale =
        slot(names_[0].c_str(), session, 0, OCTAVO_ROLE_SCALE, OCTAVO_F32, 1, n,
             {{verb, scale_access},
              {OCTAVO_VERB_END_STEP,
               static_cast<uint8_t>(s_.fault == kStaticScales        ? OCTAVO_ACCESS_NONE
                                    : s_.fault == kWritesWhatItReads ? OCTAVO_ACCESS_READ
                                                                     : OCTAVO_ACCESS_UPDATE)}},
             s_.fault == kScaleNotSaved ? 0u : uint32_t{OCTAVO_SLOT_CHECKPOINT}, 1, labels.data());
    slot(names_[1].c_str(), session, 0, OCTAVO_ROLE_AMAX, OCTAVO_F32, 1, n,
         {{verb, OCTAVO_ACCESS_ACCUMULATE}, {OCTAVO_VERB_END_STEP, OCTAVO_ACCESS_UPDATE}},
         OCTAVO_SLOT_REDUCE, 0, labels.data());
    std::vector<octavo_str> of_history = labels;
    if (s_.fault == kHistoryLabels) std::reverse(of_history.begin(), of_history.end());
    slot(names_[2].c_str(), session, 0, OCTAVO_ROLE_AMAX_HISTORY, OCTAVO_F32, kHistory, n,
         {{verb, verb_access}, {OCTAVO_VERB_END_STEP, OCTAVO_ACCESS_UPDATE}},
         OCTAVO_SLOT_CHECKPOINT, 0, of_history.data());
    s_.pools.push_back({s_.session_positions, labels.size(), format_max});
    use(session, 0, scale + 1);
    use(session, 0, scale + 2);
    use(session, 0, scale);
    return scale;
  }

  void parameter(uint32_t id) {
    const octavo_parameter_desc &d = s_.parameters[id].desc;
    const bool trained = (d.flags & OCTAVO_PARAMETER_FROZEN) == 0;
    const uint32_t owner = OCTAVO_OWNER_PARAMETER;
    const uint32_t step = OCTAVO_VERB_OPTIMIZER_STEP;
    const uint32_t cast = OCTAVO_VERB_QUANTIZE_WEIGHT;
    const uint8_t reads = OCTAVO_ACCESS_READ;
    const uint8_t writes = OCTAVO_ACCESS_WRITE;
    const auto updates = static_cast<uint8_t>(trained ? OCTAVO_ACCESS_UPDATE : OCTAVO_ACCESS_NONE);
    const bool linear = (d.flags & OCTAVO_PARAMETER_LINEAR_WEIGHT) != 0;
    use(owner, id,
        slot("weight", owner, id, OCTAVO_ROLE_WEIGHT, d.dtype, d.rows, d.cols,
             {{step, updates}, {cast, linear ? reads : uint8_t{0}}},
             s_.fault == kWeightAloneInSlots ? OCTAVO_SLOT_CHECKPOINT : OCTAVO_SLOT_NATIVE));
    if (trained) {
      const auto state = [&](const char *name, uint32_t role, uint32_t dtype, int64_t rows,
                             int64_t cols) {
        use(owner, id,
            slot(name, owner, id, role, dtype, rows, cols, {{step, updates}},
                 OCTAVO_SLOT_CHECKPOINT));
      };
      use(owner, id,
          slot("gradient", owner, id, OCTAVO_ROLE_GRADIENT, d.gradient_dtype, d.rows, d.cols,
               {{step, reads}, {OCTAVO_VERB_REDUCE, OCTAVO_ACCESS_UPDATE}}, OCTAVO_SLOT_NATIVE));
      state("exp_avg", OCTAVO_ROLE_EXP_AVG, OCTAVO_F32, d.rows, d.cols);
      state("exp_avg_sq", OCTAVO_ROLE_EXP_AVG_SQ, OCTAVO_F32, d.rows, d.cols);
      state("step", OCTAVO_ROLE_COUNTER, OCTAVO_I32, 1, 1);
    } else {
      for (int i = 0; i < 4; ++i) use(owner, id, s_.slots - 1);  // keeps the positions; not read
    }
    if (!linear) return;
    const int64_t n = round_up(d.rows, s_.alignment);
    const int64_t k = round_up(d.cols, s_.alignment);
    s_.parameters[id].cache_slot = s_.slots;
    use(owner, id,
        slot("weight_cache", owner, id, OCTAVO_ROLE_WEIGHT_CACHE, OCTAVO_E4M3FN, n, k,
             {{cast, writes}, {OCTAVO_VERB_FORWARD, reads}},
             s_.fault == kCacheInCheckpoints ? uint32_t{OCTAVO_SLOT_CHECKPOINT} : 0u));
    use(owner, id,
        slot("weight_cache_t", owner, id, OCTAVO_ROLE_WEIGHT_CACHE, OCTAVO_E4M3FN, k, n,
             {{cast, writes}, {OCTAVO_VERB_BACKWARD, reads}}));
    use(owner, id,
        slot("weight_cache/scale_inv", owner, id, OCTAVO_ROLE_SCALE_INV, OCTAVO_F32, 1, 1,
             {{cast, writes}, {OCTAVO_VERB_FORWARD, reads}, {OCTAVO_VERB_BACKWARD, reads}}));
  }

  octavo_status status() const { return status_; }

 private:
  octavo_session &s_;
  const octavo_slot_sink &sink_;
  octavo_status status_ = OCTAVO_OK;
  std::string names_[3];
};

octavo_str label_of(const octavo_session &s, const SubjectLinear &linear) {
  if (s.fault == kKeepsNames) return linear.given;
  return view(s.fault == kLabelsOfWeights ? s.parameters[linear.weight].name : linear.name);
}

octavo_status seal(octavo_session *s, const octavo_slot_sink *sink) {
  Emitter emit(*s, *sink);
  std::vector<octavo_str> linear_names, weight_names;
  for (size_t i = s->sealed_linears; i < s->linears.size(); ++i) {
    linear_names.push_back(label_of(*s, s->linears[i]));
  }
  for (size_t i = s->sealed_parameters; i < s->parameters.size(); ++i) {
    if ((s->parameters[i].desc.flags & OCTAVO_PARAMETER_LINEAR_WEIGHT) == 0) continue;
    weight_names.push_back(view(s->parameters[i].name));
  }
  const uint32_t x = emit.pool("x", linear_names, OCTAVO_VERB_FORWARD, kE4m3Max);
  const uint32_t dy = emit.pool("dy", linear_names, OCTAVO_VERB_BACKWARD, kE5m2Max);
  const uint32_t w = emit.pool("w", weight_names, OCTAVO_VERB_QUANTIZE_WEIGHT, kE4m3Max);
  if (s->nonfinite_slot == OCTAVO_NONE) {
    const uint32_t dtype = s->fault == kNonfiniteI32 ? OCTAVO_I32 : OCTAVO_F32;
    s->nonfinite_slot =
        emit.slot("nonfinite", OCTAVO_OWNER_SESSION, 0, OCTAVO_ROLE_NONFINITE, dtype, 1, 1,
                  {{OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_ACCESS_ACCUMULATE},
                   {OCTAVO_VERB_FORWARD, OCTAVO_ACCESS_ACCUMULATE},
                   {OCTAVO_VERB_BACKWARD, OCTAVO_ACCESS_ACCUMULATE},
                   {OCTAVO_VERB_END_STEP, OCTAVO_ACCESS_WRITE}},
                  s->fault == kNonfiniteNotReduced ? 0u : uint32_t{OCTAVO_SLOT_REDUCE});
    s->nonfinite_position = s->session_positions;
    emit.use(OCTAVO_OWNER_SESSION, 0, s->nonfinite_slot);
    if (s->fault == kSecondNonfinite)
      emit.slot("nonfinite_2", OCTAVO_OWNER_SESSION, 0, OCTAVO_ROLE_NONFINITE, OCTAVO_F32, 1, 1,
                {});
  }
  for (; s->ghosts > 0; --s->ghosts) {
    emit.slot("ghost", OCTAVO_OWNER_SESSION, 0, OCTAVO_ROLE_OTHER, OCTAVO_F32, 1, 1, {});
  }
  uint32_t column = 0;
  for (; s->sealed_parameters < s->parameters.size(); ++s->sealed_parameters) {
    const auto id = static_cast<uint32_t>(s->sealed_parameters);
    emit.parameter(id);
    if ((s->parameters[id].desc.flags & OCTAVO_PARAMETER_LINEAR_WEIGHT) == 0) continue;
    emit.use(OCTAVO_OWNER_PARAMETER, id, w, column, 1);
    emit.use(OCTAVO_OWNER_PARAMETER, id, w + 1, column, 1);
    emit.use(OCTAVO_OWNER_PARAMETER, id, s->nonfinite_slot);
    ++column;
  }
  const auto first = static_cast<uint32_t>(s->sealed_linears);
  s->sealed_linears = s->linears.size();
  ++s->seals;
  for (uint32_t id = s->fault == kSealRepeats ? 0 : first; id < s->linears.size(); ++id) {
    uint32_t col = id < first ? 0 : id - first;
    if (s->fault == kColumnsReversed) col = static_cast<uint32_t>(s->linears.size()) - 1 - id;
    if (s->fault == kColumnOfWeight) col = std::min(s->linears[id].weight, col);
    const uint32_t owner = OCTAVO_OWNER_LINEAR;
    const uint32_t wide = s->fault == kPoolOfTwo && col + 1 < s->linears.size() - first ? 2 : 1;
    for (const uint32_t pool : {x, dy}) {
      emit.use(owner, id, pool, col, wide);
      emit.use(owner, id, pool + 1, col, 1);
    }
    emit.use(owner, id, s->nonfinite_slot);
    const bool is_late = s->seals > 1;
    const uint32_t weight = s->fault == kLateListOfFirst && is_late ? 0 : s->linears[id].weight;
    const uint32_t cache = s->parameters[weight].cache_slot;
    for (uint32_t i = 0; i < 3; ++i) emit.use(owner, id, cache + i);
    if (s->fault == kHistoryInForward) emit.use(owner, id, x + 2, col, 1);
  }
  return emit.status();
}

}  // namespace

octavo_status subject_seal(octavo_session *s, const octavo_slot_sink *sink) {
  const auto state = [](octavo_session &of) {
    return std::tie(of.parameters, of.pools, of.sealed_parameters, of.sealed_linears, of.slots,
                    of.session_positions, of.nonfinite_slot, of.nonfinite_position, of.ghosts,
                    of.seals);
  };
  const std::tuple before{
      s->parameters,        s->pools,          s->sealed_parameters,  s->sealed_linears, s->slots,
      s->session_positions, s->nonfinite_slot, s->nonfinite_position, s->ghosts,         s->seals};
  if (s->fault == kTriesKernels) {
    const octavo_copy nothing = {sizeof nothing, OCTAVO_KIND_COPY, nullptr, nullptr, nullptr, 0};
    s->kernels->copy(s->ctx, &nothing);
  }
  const octavo_status status = seal(s, sink);
  if (status != OCTAVO_OK && s->fault != kAbortedSealCounts) state(*s) = before;
  return status;
}

}  // namespace octavo::selftest
