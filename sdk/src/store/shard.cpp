// The greedy assignment, seal after seal.
#include "sdk/src/store/shared_out.h"
#include "sdk/src/store/store.h"

namespace octavo {

void Assignment::extend(const octavo_run &run) {
  owners_.resize(run.parameter_count(), OCTAVO_NONE);
  for (; seals_ < run.seal_ends().size(); ++seals_)
    extend(run, seals_ == 0 ? 0 : run.seal_ends()[seals_ - 1], run.seal_ends()[seals_]);
}

void Assignment::extend(const octavo_run &run, size_t first_slot, size_t end_slot) {
  WholeElements largest;
  for (size_t i = first_slot; i < end_slot; ++i) {
    const octavo_slot &s = run.slots()[i];
    // What a seal emitted never changes: a parameter that has an owner keeps it.
    if (s.shard == OCTAVO_SHARD_WHOLE && owners_[s.owner] == OCTAVO_NONE) add_whole(largest, s);
  }
  share_out(largest, loads_,
            [this](uint32_t parameter, uint32_t rank) { owners_[parameter] = rank; });
}

}  // namespace octavo
