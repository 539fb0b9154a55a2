// Emits slots and uses at seal, counting ids and positions.
#pragma once

#include <initializer_list>
#include <string_view>

#include "octavo/backend.h"

namespace octavo::plugin {

// What a session has emitted so far; a failed seal keeps the old one.
struct Emitted {
  uint32_t slots = 0;
  uint32_t session_uses = 0;
};

struct Access {
  uint32_t verb;
  uint8_t access;
};

class Emitter {
 public:
  Emitter(const octavo_slot_sink *sink, Emitted *emitted) : sink_(sink), emitted_(emitted) {}

  octavo_status status() const { return status_; }
  uint32_t next_slot() const { return emitted_->slots; }
  uint32_t session_position() const { return emitted_->session_uses; }

  // A slot with its head filled in and these accesses. The name must live until it is emitted.
  static octavo_slot make(uint32_t owner_kind, uint32_t owner, uint32_t role, uint32_t dtype,
                          int64_t rows, int64_t cols, std::string_view name,
                          std::initializer_list<Access> accesses = {}) {
    octavo_slot slot{};
    slot.size = sizeof(slot);
    slot.kind = OCTAVO_KIND_SLOT;
    slot.owner_kind = owner_kind;
    slot.owner = owner;
    slot.role = role;
    slot.dtype = dtype;
    slot.scale_slot = OCTAVO_NONE;
    slot.rows = rows;
    slot.cols = cols;
    slot.name = {name.data(), name.size()};
    for (const Access &a : accesses) slot.access[a.verb] = a.access;
    return slot;
  }

  uint32_t emit(octavo_slot slot) {
    slot.id = emitted_->slots++;
    if (status_ == OCTAVO_OK) status_ = sink_->slot(sink_->ctx, &slot);
    return slot.id;
  }

  void use(uint32_t owner_kind, uint32_t owner, uint32_t slot, uint32_t first = 0,
           uint32_t count = 0) {
    const octavo_slot_use u = {owner_kind, owner, slot, first, count, 0};
    if (owner_kind == OCTAVO_OWNER_SESSION) ++emitted_->session_uses;
    if (status_ == OCTAVO_OK) status_ = sink_->use(sink_->ctx, &u);
  }

  // Emits a session slot and puts it into the session's list.
  uint32_t emit_for_session(const octavo_slot &slot) {
    const uint32_t id = emit(slot);
    use(OCTAVO_OWNER_SESSION, 0, id);
    return id;
  }

  // The flag that an Inf or NaN was cast in backward; every linear's list gets it.
  uint32_t emit_nonfinite() {
    octavo_slot slot =
        make(OCTAVO_OWNER_SESSION, 0, OCTAVO_ROLE_NONFINITE, OCTAVO_F32, 1, 1, "nonfinite",
             {{OCTAVO_VERB_BACKWARD, OCTAVO_ACCESS_ACCUMULATE},
              {OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_ACCESS_READ},
              {OCTAVO_VERB_END_STEP, OCTAVO_ACCESS_WRITE}});
    slot.flags = OCTAVO_SLOT_REDUCE;
    slot.combine = OCTAVO_COMBINE_MAX;
    return emit_for_session(slot);
  }

 private:
  const octavo_slot_sink *sink_;
  Emitted *emitted_;
  octavo_status status_ = OCTAVO_OK;
};

}  // namespace octavo::plugin
