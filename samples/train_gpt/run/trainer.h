// The training loop of one run, and what other loops share with it.
//
// The order of calls within a step is Octavo's; every rank makes the same calls in the same order.
#ifndef TRAIN_GPT_TRAINER_H
#define TRAIN_GPT_TRAINER_H

#include <memory>
#include <optional>

#include "../model/corpus.h"
#include "../octavo/fp8_linear.h"
#include "host_adapters/standalone/files.h"
#include "host_adapters/standalone/team.h"
#include "options.h"
#include "terminal.h"

namespace gpt {

// One rank's training: its model, its Octavo run, its optimizer, its share of every batch.
class Replica {
 public:
  // Negotiates, builds, allocates; communicates with nobody yet.
  Replica(const RunSpec &spec, const Options &options, const Threads &threads, OctavoHost &host,
          const Communicator &communicator, const RankSettings &rank = {});

  // Every rank calls these. start comes first, once; take_step trains on this rank's share of the
  // batch. Loss, norm and skipped are those of the whole batch and equal on every rank.
  void start() { optimizer_->start(); }
  StepRecord take_step(const Corpus &corpus, int64_t step);

  // The mean loss over validation text: all of it, or `limit` batches evenly spread over it.
  double evaluate(const Corpus &corpus, int64_t limit);
  // After somebody else wrote weights: a checkpoint.
  void weights_changed() { quantized_ = false; }

  const Communicator &communicator() const { return octavo_.communicator(); }
  Model &model() { return model_; }
  OctavoRun &octavo() { return octavo_; }
  Optimizer &optimizer() { return *optimizer_; }
  // Whether the backend steps the weights, in formats of its own.
  bool steps_in_slots() const { return octavo_.optimizer() != nullptr; }
  int64_t injected() const { return fault_ ? fault_->injected() : 0; }
  RankMemory memory() { return memory_of(model_, octavo_); }

 private:
  // Before the step's quantize_weight, which may come as early as an evaluation before it.
  void prepare_sampling(int64_t step);
  // The cache of quantized weights is refreshed once per change of the weights.
  void quantize_weights();

  const Options &options_;
  int64_t share_;  // sequences of a batch that this rank takes
  OctavoRun octavo_;
  std::optional<GradientFault> fault_;
  Model model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::function<void()> average_gradients_;
  std::optional<SlotStatistics> statistics_;
  bool quantized_ = false;
};

// What all runs share.
struct Training {
  const Options &options;
  const Corpus &corpus;
  Progress &progress;
  LineLog &log;
  Team &team;
};

// Opens and closes what the run needs, so that a run that cannot work fails before any training.
void check_run(const RunSpec &spec, const Options &options, const Corpus &corpus,
               const RankSettings &rank = {});

// Trains until the last step or until an interrupt.
RunResult train(const RunSpec &spec, const Training &training);

// How many batches of validation text this step, which counts from 1, is followed by; 0: none.
int64_t batches_to_evaluate(const Options &options, int64_t step);
// Adds a step to its run, shows it and writes it.
void keep_step(RunResult &result, StepRecord record, LineLog &log, Progress &progress);
// The losses and the speed of the run after its last step.
void summarize(RunResult &result, const Options &options);

}  // namespace gpt

#endif
