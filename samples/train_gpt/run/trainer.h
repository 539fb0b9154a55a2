// The training loop of one run, and what other loops share with it.
#ifndef TRAIN_GPT_TRAINER_H
#define TRAIN_GPT_TRAINER_H

#include "../model/corpus.h"
#include "host_adapters/standalone/team.h"
#include "options.h"
#include "terminal.h"

namespace gpt {

// What all runs share.
struct Training {
  const Options &options;
  const Corpus &corpus;
  Progress &progress;
  MetricsLog &log;
  Team &team;
};

// Opens and closes what the run needs, so that a run that cannot work fails before any training.
void check_run(const RunSpec &spec, const Options &options, const Corpus &corpus,
               const RankSettings &rank = {});

// The share of one rank when `ranks` of a machine share `threads` (0: one per core); at least 1.
uint32_t threads_per_rank(uint32_t threads, uint32_t ranks);

// Trains until the last step or until an interrupt.
RunResult train(const RunSpec &spec, const Training &training);

// How many batches of validation text this step, which counts from 1, is followed by; 0: none.
int64_t batches_to_evaluate(const Options &options, int64_t step);
// Adds a step to its run, shows it and writes it.
void keep_step(RunResult &result, StepRecord record, MetricsLog &log, Progress &progress);
// The losses and the speed of the run after its last step.
void summarize(RunResult &result, const Options &options);

}  // namespace gpt

#endif
