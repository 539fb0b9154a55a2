// Checkpoints of a run: --save and --resume.
//
//   DIR/<run>/latest, lock              see host_adapters/standalone/checkpoint_folder.h
//   DIR/<run>/step-00000012/            one checkpoint
//     train_gpt.cbor                    what the program itself keeps
//     rank-0000-of-0002.safetensors     slots, one file a rank that keeps states of its own
//     manifest.json                     which of these files belong together
//
// A checkpoint is taken between two steps. A resumed run computes what the run that was not
// interrupted would have: batches depend on the seed and the step, and nothing else is remembered.
#ifndef TRAIN_GPT_STATE_H
#define TRAIN_GPT_STATE_H

#include <vector>

#include "host_adapters/standalone/checkpoint_folder.h"
#include "trainer.h"

namespace gpt {

// What the numbers of a run depend on, in addition to its tensors and the options of its backend.
nlohmann::json run_key(const RunSpec &spec, const Options &options, const Corpus &corpus);

// Before any training: that --save can be written and that --resume has this run. Throws UserError.
void check_state(const RunSpec &spec, const Options &options, const nlohmann::json &key);

// After check_state: makes the directories of --save this program's until the locks go.
std::vector<DirectoryLock> lock_saves(const Options &options);

// After `steps` steps. Every rank calls it; the last `keep` checkpoints of a run stay. Throws
// UserError where the files cannot be written; the checkpoints before are as they were.
void save_state(Replica &replica, const std::string &run_directory, const nlohmann::json &key,
                int64_t steps, int64_t keep = 1);

// After Replica::start. Every rank calls it. Returns how many steps were taken. Throws UserError
// for a checkpoint that is not of this run; the replica is of no use then.
int64_t load_state(Replica &replica, const std::string &run_directory, const nlohmann::json &key);

}  // namespace gpt

#endif
