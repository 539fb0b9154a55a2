// The parts of a seal: which slots a parameter needs, and the lists that find them again.
#pragma once

#include "msamp.h"

namespace octavo::msamp {

using plugin::Access;
using plugin::Emitter;

// Emits the slots of one parameter and builds its list.
class ParameterSlots {
 public:
  ParameterSlots(octavo_session &s, Emitter &emitter, uint32_t id)
      : s_(s), emitter_(emitter), p_(s.parameters[id]), id_(id) {}

  void emit();

 private:
  Place add(octavo_slot slot);
  Place share(const Place &session_slot);
  void native(Stored *stored, uint32_t role, uint32_t dtype, const char *name, uint8_t optimizer);
  // A tensor [N, K], with its scale_inv unless it is plain. Both have the same accesses.
  void stored(Stored *stored, uint32_t role, uint32_t dtype, uint32_t granularity, const char *name,
              std::initializer_list<Access> accesses, uint32_t flags, uint32_t shard);
  void weights();
  void caches();
  void gradients();
  void states();

  octavo_session &s_;
  Emitter &emitter_;
  Parameter &p_;
  uint32_t id_;
  uint32_t position_ = 0;
};

}  // namespace octavo::msamp
