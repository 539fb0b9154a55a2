// One rank's training: its model, its Octavo run, its optimizer, its share of every batch.
//
// The order of calls within a step is Octavo's; every rank makes the same calls in the same order.
#ifndef TRAIN_GPT_REPLICA_H
#define TRAIN_GPT_REPLICA_H

#include <memory>

#include "backend_optimizer.h"
#include "cast_statistics.h"
#include "corpus.h"
#include "gradient_reduction.h"
#include "memory.h"
#include "metrics.h"
#include "model.h"
#include "options.h"
#include "telemetry.h"

namespace gpt {

class Replica {
 public:
  // Negotiates, builds, allocates; communicates with nobody yet.
  Replica(const RunSpec &spec, const Options &options, const Threads &threads, OctavoHost &host,
          const Communicator &communicator);

  // Every rank calls these. start comes first, once; take_step trains on this rank's share of the
  // batch. Loss, norm and skipped are those of the whole batch and equal on every rank.
  void start();
  StepRecord take_step(const Corpus &corpus, int64_t step);

  // The mean loss over validation text: all of it, or `limit` batches evenly spread over it.
  double evaluate(const Corpus &corpus, int64_t limit);
  // Refreshes the quantized weights, unless they are fresh.
  void quantize_weights();
  // After somebody else wrote weights: a checkpoint.
  void weights_changed() { quantized_ = false; }

  const Communicator &communicator() const { return communicator_; }
  Precision precision() const { return precision_; }  // of layers that stay with the program
  Model &model() { return model_; }
  OctavoRun *octavo() { return octavo_.get(); }  // null: every layer is the program's own
  Optimizer &optimizer() { return *optimizer_; }
  BackendOptimizer *backend_optimizer() { return backend_optimizer_; }  // null: AdamW
  int64_t injected() const { return fault_ == nullptr ? 0 : fault_->injected(); }
  RankMemory memory() { return memory_of(model_, octavo_.get()); }

 private:
  // Before the step's quantize_weights, which may come as early as an evaluation before it.
  void prepare_sampling(int64_t step);
  double forward_backward(const Corpus &corpus, int64_t step);

  const Options &options_;
  const Communicator communicator_;
  int64_t share_;  // sequences of a batch that this rank takes
  std::unique_ptr<OctavoRun> octavo_;
  Precision precision_;
  std::unique_ptr<GradientFault> fault_;
  Model model_;
  std::unique_ptr<Optimizer> optimizer_;
  BackendOptimizer *backend_optimizer_ = nullptr;
  std::unique_ptr<GradientReduction> reduction_;
  std::unique_ptr<Telemetry> telemetry_;
  std::unique_ptr<CastStatistics> casts_;
  bool quantized_ = false;
};

}  // namespace gpt

#endif
