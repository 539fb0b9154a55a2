// What a checkpoint says of a run: its id, the key of each saved slot, and the texts of the
// metadata.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sdk/src/checkpoint/checkpoint_header.h"
#include "sdk/src/run/run.h"
#include "sdk/src/store/store.h"

namespace octavo {

// The id of the run that saves: equal in the files of all its ranks, and of no other run.

// checkpoint.run_id of the configuration, which a host with ranks in several processes sets; else
// random digits, drawn once in this process. Throws Failure(OCTAVO_INVALID) for a text that cannot
// be one, and where ranks in other processes would draw other digits.
std::string run_id_of(const octavo_store &store);

// How a checkpoint describes a run: the key of each saved slot, and the texts of the metadata.
//
// Keys are those of octavo_run_slot_key.

struct SavedSlot {
  uint32_t id;
  std::string key;
};

// The slots with OCTAVO_SLOT_CHECKPOINT that are not native, in order of their ids.
std::vector<SavedSlot> saved_slots(const octavo_run &run);

// The entry of a slot, not laid out yet. Throws Failure(OCTAVO_UNSUPPORTED) for a dtype that the
// format cannot name.
CheckpointTensor tensor_of(const octavo_slot &slot, const std::string &key);

// Schema, version, backend, options, the role of each tensor, and the labels of pools.
std::map<std::string, std::string> run_texts(const octavo_run &run,
                                             const std::vector<SavedSlot> &slots);

// Throws Failure(OCTAVO_INVALID) for the first text of `found` that this run contradicts. An option
// that the file does not know must have its default here.
void check_texts(const CheckpointHeader &found, const octavo_run &run,
                 const std::vector<SavedSlot> &slots, const std::string &where);

// Throws Failure(OCTAVO_INVALID) when the entry has not the dtype and shape of the slot.
void check_tensor(const CheckpointTensor &found, const octavo_slot &slot, const SavedSlot &saved,
                  const std::string &where);

}  // namespace octavo
