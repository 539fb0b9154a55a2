// One step: quantize weights, forward, backward, average, reduce, norm, optimizer, end_step.
#include "replica.h"

#include <algorithm>
#include <cmath>

namespace gpt {

// Layers that stay with the program are fp32, so that a difference to fp32 comes from FP8 alone;
// with mixed_precision = "bf16" they are bf16.
Replica::Replica(const RunSpec &spec, const Options &options, const Threads &threads,
                 OctavoHost &host, const Communicator &communicator, const RankSettings &rank)
    : options_(options),
      share_(options.batch / communicator.world()),
      octavo_(spec, options.config, host, options.fused, options.device, rank),
      model_(options.size, share_, options.seed,
             octavo_.precision() == "bf16" ? Precision::kBf16 : Precision::kFp32, threads) {
  if (options.nudge) model_.nudge();
  attach(model_, octavo_, communicator);
  optimizer_ = steps_in_slots() ? make_backend_optimizer(octavo_, model_.parameters())
                                : make_adamw(model_.parameters(), threads);
  average_gradients_ = make_gradient_average(model_.parameters(), octavo_);
  std::vector<std::string> layers;
  if (options.inject_inf > 0) fault_.emplace(options.inject_inf, options.seed, communicator.rank());
  for (Linear *linear : model_.linears()) {
    layers.push_back(linear->name());
    if (fault_) linear->set_fault(&*fault_);
  }
  statistics_.emplace(octavo_, layers);
  prepare_sampling(0);
}

void Replica::prepare_sampling(int64_t step) {
  const int64_t every = options_.telemetry_every;
  const bool due = every > 0 && ((step + 1) % every == 0 || step + 1 == options_.steps);
  octavo_.sample_casts(due && statistics_->has_casts());
}

void Replica::quantize_weights() {
  if (!quantized_) model_.weights_changed();
  quantized_ = true;
}

StepRecord Replica::take_step(const Corpus &corpus, int64_t step) {
  StepRecord record;
  record.step = step + 1;
  prepare_sampling(step);
  if (fault_) fault_->start_step(step);
  record.rate = learning_rate(options_.rate, options_.end_rate, step, options_.steps);
  const int64_t context = options_.size.context;
  const Batch batch = training_batch(corpus, options_.batch, context, options_.seed, step);
  const int64_t first = communicator().rank() * share_ * context;
  quantize_weights();
  record.loss = communicator().mean(model_.forward(
      batch.tokens.data() + first, batch.targets.data() + first, share_, context, true));
  model_.backward();

  // amax and nonfinite of all ranks together: equal scales, and nobody steps alone.
  average_gradients_();
  if (communicator().world() > 1 && octavo_.store() != nullptr)
    octavo_.store()->reduce(octavo_.collective());

  // A cast to FP8 saturates: infinity would pass unseen but for the nonfinite slot.
  record.grad_norm = optimizer_->gradient_norm();
  record.skipped = !std::isfinite(record.grad_norm) || octavo_.saw_nonfinite();
  record.nonfinite = record.skipped || !std::isfinite(record.loss);
  optimizer_->step(record.rate, record.grad_norm, record.skipped);
  quantized_ = false;

  // New scales from this step's amax: after the optimizer, before the next quantize_weight.
  record.telemetry = statistics_->telemetry();
  if (octavo_.record() == OctavoRun::Record::kAll) record.casts = statistics_->casts();
  octavo_.end_step();
  prepare_sampling(step + 1);
  return record;
}

double Replica::evaluate(const Corpus &corpus, int64_t limit) {
  const int64_t context = options_.size.context;
  quantize_weights();
  double sum = 0.0;
  int64_t sequences = 0;
  for (const Batch &batch : validation_batches(corpus, options_.batch, context, limit)) {
    // The model holds as many sequences as this rank's share.
    for (int64_t first = 0; first < batch.sequences; first += share_) {
      const int64_t count = std::min(share_, batch.sequences - first);
      const unsigned char *tokens = batch.tokens.data() + first * context;
      const unsigned char *targets = batch.targets.data() + first * context;
      sum += static_cast<double>(count) * model_.forward(tokens, targets, count, context, false);
      sequences += count;
    }
  }
  return sum / static_cast<double>(sequences);
}

}  // namespace gpt
