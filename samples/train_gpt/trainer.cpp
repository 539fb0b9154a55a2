// One step: quantize weights, forward, backward, optimizer, end_step. The order is Octavo's.
#include "trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>

#include "adamw.h"
#include "generate.h"
#include "interrupt.h"
#include "telemetry.h"

namespace gpt {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kEvaluations = 6;       // in the course of a run
constexpr int64_t kPartialBatches = 6;    // of validation text in all but the last evaluation
constexpr int64_t kCompleteBatches = 64;  // at most, in the last one
constexpr size_t kLastSteps = 20;         // whose mean is the train loss of the table

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A run is this object: its members live and die together, in the right order.
class Run {
 public:
  Run(const RunSpec &spec, const Training &training)
      : training_(training),
        octavo_(spec.uses_octavo()
                    ? std::make_unique<OctavoRun>(spec, training.options.config, training.host)
                    : nullptr),
        model_(training.options.size, training.options.batch, training.options.seed,
               host_precision(spec), training.threads),
        optimizer_(model_.parameters(), adamw_options(training.options), training.threads) {
    result_.name = spec.name;
    result_.backend = "host";
    result_.recipe = host_precision(spec) == Precision::kBf16 ? "bf16" : "fp32";
    if (octavo_ != nullptr) attach();
    for (const Linear *linear : model_.linears()) {
      result_.placements.push_back({linear->name(), linear->placement(), linear->reason()});
    }
  }

  RunResult train() {
    const Options &options = training_.options;
    const int64_t evaluate_every = std::max<int64_t>(options.steps / kEvaluations, 1);
    for (int64_t step = 0; step < options.steps && !interrupted(); ++step) {
      StepRecord record = take_step(step);
      const bool last = step + 1 == options.steps;
      if (last || (step + 1) % evaluate_every == 0) {
        model_.weights_changed();
        quantized_ = true;
        record.validation = evaluate(last ? kCompleteBatches : kPartialBatches);
      }
      training_.log.write(to_json(result_.name, record));
      training_.progress.step(record);
      result_.steps.push_back(std::move(record));
    }
    finish();
    return std::move(result_);
  }

 private:
  // Layers that stay with the host keep fp32 beside FP8, so that a difference to fp32 comes from
  // FP8 alone; with mixed_precision = "bf16" they are bf16.
  Precision host_precision(const RunSpec &spec) const {
    const bool bf16 =
        spec.kind == RunSpec::Kind::kBf16 || (octavo_ != nullptr && octavo_->precision() == "bf16");
    return bf16 ? Precision::kBf16 : Precision::kFp32;
  }

  static AdamWOptions adamw_options(const Options &options) {
    AdamWOptions adamw;
    adamw.rate = options.rate;
    return adamw;
  }

  void attach() {
    model_.attach(*octavo_);
    if (!octavo_->backend().empty()) {
      result_.backend = octavo_->backend();
      result_.recipe = octavo_->option("recipe");
    }
    std::vector<std::string> layers;
    for (const Linear *linear : model_.linears()) layers.push_back(linear->name());
    telemetry_ = std::make_unique<Telemetry>(*octavo_, layers);
    result_.report = octavo_->report();
    result_.bytes = octavo_->bytes_by_role();
  }

  StepRecord take_step(int64_t step) {
    const Options &options = training_.options;
    const int64_t context = options.size.context;
    const Batch batch =
        training_batch(training_.corpus, options.batch, context, options.seed, step);
    const auto start = Clock::now();
    StepRecord record;
    record.step = step + 1;
    record.rate = learning_rate(options.rate, step, options.steps);

    // The cache of quantized weights is refreshed once per change of the weights.
    if (!quantized_) model_.weights_changed();
    record.loss =
        model_.forward(batch.tokens.data(), batch.targets.data(), batch.sequences, context, true);
    model_.backward();

    // A cast to FP8 saturates: infinity would pass unseen but for the nonfinite slot.
    record.grad_norm = optimizer_.gradient_norm();
    record.skipped =
        !std::isfinite(record.grad_norm) || (octavo_ != nullptr && octavo_->saw_nonfinite());
    if (!record.skipped) optimizer_.step(record.rate, record.grad_norm);
    quantized_ = false;

    // New scales from this step's amax: after the optimizer, before the next quantize_weight.
    if (octavo_ != nullptr) {
      record.telemetry = telemetry_->sample();
      octavo_->end_step();
    }
    const double passed = seconds_since(start);
    training_seconds_ += passed;
    record.tokens_per_s = static_cast<double>(options.batch * context) / passed;
    result_.skipped_steps += record.skipped ? 1 : 0;
    return record;
  }

  // The mean loss over validation text: all of it, or `limit` batches evenly spread over it.
  double evaluate(int64_t limit) {
    const int64_t context = training_.options.size.context;
    double sum = 0.0;
    int64_t sequences = 0;
    for (const Batch &batch :
         validation_batches(training_.corpus, training_.options.batch, context, limit)) {
      const double loss = model_.forward(batch.tokens.data(), batch.targets.data(), batch.sequences,
                                         context, false);
      sum += static_cast<double>(batch.sequences) * loss;
      sequences += batch.sequences;
    }
    return sum / static_cast<double>(sequences);
  }

  void finish() {
    const Options &options = training_.options;
    const std::vector<StepRecord> &steps = result_.steps;
    if (steps.empty()) return;
    const size_t last = std::min(steps.size(), kLastSteps);
    for (size_t i = steps.size() - last; i < steps.size(); ++i) {
      result_.train_loss += steps[i].loss / static_cast<double>(last);
    }
    const auto tokens = static_cast<double>(options.batch * options.size.context) *
                        static_cast<double>(steps.size());
    result_.tokens_per_s = tokens / training_seconds_;
    if (static_cast<int64_t>(steps.size()) < options.steps) return;
    result_.validation_loss = steps.back().validation;
    result_.sample = generate(model_, options.prompt, options.sample_bytes, options.seed);
  }

  const Training &training_;
  std::unique_ptr<OctavoRun> octavo_;
  Model model_;
  AdamW optimizer_;
  std::unique_ptr<Telemetry> telemetry_;
  bool quantized_ = false;
  double training_seconds_ = 0.0;
  RunResult result_;
};

}  // namespace

void check_run(const RunSpec &spec, const Options &options, OctavoHost &host) {
  if (spec.uses_octavo()) OctavoRun(spec, options.config, host);
}

RunResult train(const RunSpec &spec, const Training &training) {
  return Run(spec, training).train();
}

}  // namespace gpt
