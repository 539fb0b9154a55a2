// Slots and uses: a small set that fits, and one thing in it that does not.
#include "scripted_plugin.h"

namespace octavo::fuzz {
namespace {

const octavo_str kLabels[] = {OCTAVO_STR("a"), OCTAVO_STR("b"), {nullptr, 0}, {nullptr, 4}};

void spoil(octavo_slot *slot) {
  switch (fault(14)) {
    case 1: slot->id = any_id(); break;
    case 2: slot->rows = any_extent(); break;
    case 3: slot->cols = any_extent(); break;
    case 4: slot->dtype = any_id(); break;
    case 5: slot->role = any_id(); break;
    case 6: slot->flags = any_id(); break;
    case 7: slot->owner_kind = any_id(); break;
    case 8: slot->owner = any_id(); break;
    case 9: slot->access[any_id() % OCTAVO_VERB_LIMIT] = static_cast<uint8_t>(any_id()); break;
    case 10: slot->initial = octavo_fuzz_script->real(); break;
    case 11: slot->name = {nullptr, any_id()}; break;
    case 12: slot->shard = any_id(); break;
    case 13: slot->combine = any_id(); break;
    case 14:  // as many labels as columns is the plugin's promise, so only their texts are odd
      slot->cols = 1 + any_id() % std::size(kLabels);
      slot->labels = kLabels;
      break;
    default: break;
  }
}

octavo_status emit(octavo_session *s, const octavo_slot_sink *sink, octavo_slot slot) {
  slot.size = sizeof(slot);
  slot.kind = OCTAVO_KIND_SLOT;
  slot.id = s->slots++;
  slot.scale_slot = OCTAVO_NONE;
  spoil(&slot);
  if (fault(1) != 0) slot.size = OCTAVO_SIZE_THROUGH(octavo_slot, cols);
  const octavo_status status = sink->slot(sink->ctx, &slot);
  return fault(1) != 0 ? octavo_status{OCTAVO_OK} : status;
}

octavo_status use(const octavo_slot_sink *sink, octavo_slot_use u) {
  switch (fault(5)) {
    case 1: u.owner_kind = any_id(); break;
    case 2: u.owner = any_id(); break;
    case 3: u.slot = any_id(); break;
    case 4: u.first = any_id(); break;
    case 5: u.count = any_id(); break;
    default: break;
  }
  const octavo_status status = sink->use(sink->ctx, &u);
  return fault(1) != 0 ? octavo_status{OCTAVO_OK} : status;
}

octavo_status seal_parameter(octavo_session *s, const octavo_slot_sink *sink, uint32_t p) {
  octavo_slot slot{};
  slot.owner_kind = OCTAVO_OWNER_PARAMETER;
  slot.owner = p;
  slot.role = OCTAVO_ROLE_WEIGHT;
  slot.dtype = OCTAVO_F32;
  slot.flags = OCTAVO_SLOT_NATIVE;
  slot.rows = s->parameters[p].rows;
  slot.cols = s->parameters[p].cols;
  slot.access[OCTAVO_VERB_OPTIMIZER_STEP] = OCTAVO_ACCESS_UPDATE;
  slot.name = OCTAVO_STR("weight");
  const uint32_t first = s->slots;
  octavo_status status = emit(s, sink, slot);
  slot.role = OCTAVO_ROLE_EXP_AVG;
  slot.flags = OCTAVO_SLOT_CHECKPOINT;
  slot.shard = OCTAVO_SHARD_WHOLE;
  slot.name = OCTAVO_STR("exp_avg");
  if (status == OCTAVO_OK) status = emit(s, sink, slot);
  for (uint32_t i = 0; i < 2 && status == OCTAVO_OK; ++i)
    status = use(sink, {OCTAVO_OWNER_PARAMETER, p, first + i, 0, 0, 0});
  return status;
}

}  // namespace

octavo_status seal(octavo_session *s, const octavo_slot_sink *sink) {
  if (fault(1) != 0) return any_failure(s->host);
  octavo_status status = OCTAVO_OK;
  if (s->slots == 0) {
    octavo_slot slot{};
    slot.owner_kind = OCTAVO_OWNER_SESSION;
    slot.role = OCTAVO_ROLE_NONFINITE;
    slot.dtype = OCTAVO_F32;
    slot.flags = OCTAVO_SLOT_REDUCE;
    slot.combine = OCTAVO_COMBINE_MAX;
    slot.rows = slot.cols = 1;
    slot.access[OCTAVO_VERB_END_STEP] = OCTAVO_ACCESS_WRITE;
    slot.name = OCTAVO_STR("nonfinite");
    status = emit(s, sink, slot);
    if (status == OCTAVO_OK) status = use(sink, {OCTAVO_OWNER_SESSION, 0, 0, 0, 0, 0});
  }
  for (; status == OCTAVO_OK && s->sealed_parameters < s->parameters.size(); ++s->sealed_parameters)
    status = seal_parameter(s, sink, s->sealed_parameters);
  for (; status == OCTAVO_OK && s->sealed_linears < s->linears; ++s->sealed_linears)
    status = use(sink, {OCTAVO_OWNER_LINEAR, s->sealed_linears, 0, 0, 0, 0});
  return status;
}

}  // namespace octavo::fuzz
