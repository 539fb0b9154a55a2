// The training loop of one run.
#ifndef TRAIN_GPT_TRAINER_H
#define TRAIN_GPT_TRAINER_H

#include "corpus.h"
#include "octavo_host.h"
#include "options.h"
#include "progress.h"

namespace gpt {

// What all runs share.
struct Training {
  const Options &options;
  const Corpus &corpus;
  const Threads &threads;
  OctavoHost &host;
  Progress &progress;
  MetricsLog &log;
};

// Opens and closes what the run needs, so that a run that cannot work fails before any training.
void check_run(const RunSpec &spec, const Options &options, const Corpus &corpus, OctavoHost &host);

// Trains until the last step or until an interrupt.
RunResult train(const RunSpec &spec, const Training &training);

}  // namespace gpt

#endif
