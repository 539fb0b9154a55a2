// Checkpoints of a run: --save and --resume.
//
//   DIR/<run>/latest                    the name of the directory below that is complete
//   DIR/<run>/step-00000012/            one checkpoint
//     train_gpt.cbor                    what the program itself keeps
//     rank-0000-of-0002.safetensors     slots, one file a rank that keeps states of its own
//
// A checkpoint is taken between two steps. A resumed run computes what the run that was not
// interrupted would have: batches depend on the seed and the step, and nothing else is remembered.
#ifndef TRAIN_GPT_STATE_H
#define TRAIN_GPT_STATE_H

#include "replica.h"

namespace gpt {

// What the numbers of a run depend on, in addition to its tensors and the options of its backend.
nlohmann::json run_key(const RunSpec &spec, const Options &options, const Corpus &corpus);

// Before any training: that --save can be written and that --resume has this run. Throws UserError.
void check_state(const RunSpec &spec, const Options &options, const nlohmann::json &key);

// After `steps` steps. Every rank calls it; one checkpoint a run is kept, the last.
void save_state(Replica &replica, const std::string &run_directory, const nlohmann::json &key,
                int64_t steps);

// After Replica::start. Every rank calls it. Returns how many steps were taken. Throws UserError
// for a checkpoint that is not of this run; the replica is of no use then.
int64_t load_state(Replica &replica, const std::string &run_directory, const nlohmann::json &key);

// The directory of a run: its name, with other characters than letters, digits and ._-=:,+ written
// as %XX.
std::string run_directory(const std::string &directory, const std::string &run);

}  // namespace gpt

#endif
