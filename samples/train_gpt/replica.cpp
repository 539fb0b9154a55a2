// One step: quantize weights, forward, backward, average, reduce, norm, optimizer, end_step.
#include "replica.h"

#include <algorithm>
#include <cmath>

#include "adamw.h"

namespace gpt {
namespace {

std::unique_ptr<OctavoRun> open(const RunSpec &spec, const Options &options, OctavoHost &host) {
  if (!spec.uses_octavo()) return nullptr;
  return std::make_unique<OctavoRun>(spec, options.config, host, options.fused, options.device);
}

// Layers that stay with the host keep fp32 beside FP8, so that a difference to fp32 comes from FP8
// alone; with mixed_precision = "bf16" they are bf16.
Precision host_precision(const RunSpec &spec, const OctavoRun *octavo) {
  const bool bf16 =
      spec.kind == RunSpec::Kind::kBf16 || (octavo != nullptr && octavo->precision() == "bf16");
  return bf16 ? Precision::kBf16 : Precision::kFp32;
}

}  // namespace

Replica::Replica(const RunSpec &spec, const Options &options, const Threads &threads,
                 OctavoHost &host, const Communicator &communicator)
    : options_(options),
      communicator_(communicator),
      share_(options.batch / communicator.world()),
      octavo_(open(spec, options, host)),
      precision_(host_precision(spec, octavo_.get())),
      model_(options.size, share_, options.seed, precision_, threads) {
  if (octavo_ != nullptr) model_.attach(*octavo_, communicator_);
  if (octavo_ != nullptr && octavo_->optimizer() != nullptr) {
    auto optimizer = std::make_unique<BackendOptimizer>(*octavo_, model_.parameters(),
                                                        AdamWOptions{}, communicator_);
    backend_optimizer_ = optimizer.get();
    optimizer_ = std::move(optimizer);
  } else {
    optimizer_ = std::make_unique<AdamW>(model_.parameters(), AdamWOptions{}, threads);
  }
  reduction_ = std::make_unique<GradientReduction>(model_.parameters(), octavo_.get(),
                                                   communicator_, threads);
  if (options.inject_inf > 0) {
    fault_ =
        std::make_unique<GradientFault>(options.inject_inf, options.seed, communicator_.rank());
    for (Linear *linear : model_.linears()) linear->set_fault(fault_.get());
  }
  if (octavo_ == nullptr) return;
  std::vector<std::string> layers;
  for (const Linear *linear : model_.linears()) layers.push_back(linear->name());
  telemetry_ = std::make_unique<Telemetry>(*octavo_, layers);
  casts_ = std::make_unique<CastStatistics>(*octavo_);
  prepare_sampling(0);
}

void Replica::prepare_sampling(int64_t step) {
  const int64_t every = options_.telemetry_every;
  const bool due = every > 0 && ((step + 1) % every == 0 || step + 1 == options_.steps);
  octavo_->sample_casts(due && !casts_->empty());
}

void Replica::start() {
  if (backend_optimizer_ != nullptr) backend_optimizer_->publish();
}

void Replica::quantize_weights() {
  // The cache of quantized weights is refreshed once per change of the weights.
  if (!quantized_) model_.weights_changed();
  quantized_ = true;
}

double Replica::forward_backward(const Corpus &corpus, int64_t step) {
  const int64_t context = options_.size.context;
  const Batch batch = training_batch(corpus, options_.batch, context, options_.seed, step);
  const int64_t first = communicator_.rank() * share_ * context;
  quantize_weights();
  const double loss = model_.forward(batch.tokens.data() + first, batch.targets.data() + first,
                                     share_, context, true);
  model_.backward();
  return loss;
}

StepRecord Replica::take_step(const Corpus &corpus, int64_t step) {
  StepRecord record;
  record.step = step + 1;
  if (octavo_ != nullptr) prepare_sampling(step);
  if (fault_ != nullptr) fault_->start_step(step);
  record.rate = learning_rate(options_.rate, step, options_.steps);
  record.loss = communicator_.mean(forward_backward(corpus, step));

  // amax and nonfinite of all ranks together: equal scales, and nobody steps alone.
  reduction_->average();
  const bool several = communicator_.world() > 1;
  if (several && octavo_ != nullptr && octavo_->store() != nullptr) {
    octavo_->check(octavo_store_reduce(octavo_->store(), octavo_->collective(), nullptr),
                   "octavo_store_reduce", octavo_->backend());
  }

  // A cast to FP8 saturates: infinity would pass unseen but for the nonfinite slot.
  record.grad_norm = optimizer_->gradient_norm();
  record.skipped =
      !std::isfinite(record.grad_norm) || (octavo_ != nullptr && octavo_->saw_nonfinite());
  record.nonfinite = record.skipped || !std::isfinite(record.loss);
  optimizer_->step(record.rate, record.grad_norm, record.skipped);
  quantized_ = false;

  // New scales from this step's amax: after the optimizer, before the next quantize_weight.
  if (octavo_ != nullptr) {
    record.telemetry = telemetry_->sample();
    if (octavo_->samples_casts()) record.casts = casts_->sample();
    octavo_->end_step();
    prepare_sampling(step + 1);
  }
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
      const int64_t at = first * context;
      sum += static_cast<double>(count) * model_.forward(batch.tokens.data() + at,
                                                         batch.targets.data() + at, count, context,
                                                         false);
      sequences += count;
    }
  }
  return sum / static_cast<double>(sequences);
}

}  // namespace gpt
