// checkpoint: what a run needs to go on is in the slots marked CHECKPOINT and in the host's
// tensors.
//
// Two runs have equal memory layouts. One trains on; the other gets the checkpoint of the first and
// initial values in every other slot, as docs/checkpoints.md has it, and must do the same steps.
#include <cstring>

#include "all_checks.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

// The slots that a checkpoint holds, and the tensors that the host saves itself.
void load_checkpoint(Host &from, Host &to) {
  for (const Slot &slot : from.session().slots()) {
    const uint32_t id = slot.desc.id;
    const bool of_host = (slot.desc.flags & OCTAVO_SLOT_NATIVE) != 0;
    if (of_host || (slot.desc.flags & OCTAVO_SLOT_CHECKPOINT) != 0)
      std::memcpy(to.address(id), from.address(id), from.bytes(id));
    else
      to.reset_slot(id);
  }
}

}  // namespace

void check_checkpoint(const Context &context) {
  Standard first(context), second(context);
  Host &saved = first.host, &resumed = second.host;
  for (int step = 0; step < 3; ++step) saved.train_step();
  load_checkpoint(saved, resumed);
  for (int step = 0; step < 2; ++step) {
    saved.train_step();
    resumed.train_step();
    expect_equal(saved.arena(), saved.arena().snapshot(), resumed.arena().snapshot(),
                 text("step ", step, " after a checkpoint, in a session that has its slots alone"));
  }
}

}  // namespace octavo::conformance
