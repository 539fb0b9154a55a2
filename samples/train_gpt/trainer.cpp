// Every rank makes the same steps; rank 0 also evaluates, writes and shows.
#include "trainer.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "generate.h"
#include "interrupt.h"
#include "rank_group.h"
#include "replica.h"
#include "state.h"

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

// The threads of a rank and what Octavo may ask of it. A single rank uses the program's own.
struct RankMeans {
  explicit RankMeans(uint32_t threads_count) : threads(threads_count), host(threads) {}
  Threads threads;
  OctavoHost host;
};

// A run is this object: its members live and die together, in the right order.
class Run {
 public:
  Run(const RunSpec &spec, const Training &training)
      : training_(training),
        texts_(run_texts(spec, training.options, training.corpus)),
        ranks_(training.options.ranks) {
    const Options &options = training.options;
    // One after the other: what cannot run is found before any thread starts.
    for (uint32_t rank = 0; rank < options.ranks; ++rank) {
      if (options.ranks > 1) {
        means_.push_back(
            std::make_unique<RankMeans>(threads_per_rank(options.threads, options.ranks)));
      }
      const Threads &threads = options.ranks > 1 ? means_.back()->threads : training.threads;
      OctavoHost &host = options.ranks > 1 ? means_.back()->host : training.host;
      replicas_.push_back(
          std::make_unique<Replica>(spec, options, threads, host, ranks_.communicator(rank)));
    }
    describe(spec);
  }

  RunResult train() {
    ranks_.run([this](uint32_t rank) { train_rank(*replicas_[rank]); });
    finish();
    return std::move(result_);
  }

 private:
  void describe(const RunSpec &spec) {
    Replica &root = *replicas_.front();
    OctavoRun *octavo = root.octavo();
    result_.name = spec.name;
    result_.backend = "host";
    result_.recipe = root.precision() == Precision::kBf16 ? "bf16" : "fp32";
    if (octavo != nullptr && !octavo->backend().empty()) {
      result_.backend = octavo->backend();
      result_.recipe = octavo->option("recipe");
      if (result_.recipe.empty()) result_.recipe = octavo->option("opt_level");
    }
    if (octavo != nullptr) result_.report = octavo->report();
    for (const std::unique_ptr<Replica> &replica : replicas_) {
      result_.memory.push_back(replica->memory());
      if (octavo == nullptr) continue;
      for (const auto &[role, bytes] : slot_bytes(*replica->octavo())) result_.bytes[role] += bytes;
    }
    for (const Linear *linear : root.model().linears()) {
      result_.placements.push_back({linear->name(), linear->placement(), linear->reason()});
    }
  }

  void train_rank(Replica &replica) {
    const Options &options = training_.options;
    const int64_t evaluate_every = std::max<int64_t>(options.steps / kEvaluations, 1);
    const bool root = replica.communicator().rank() == 0;
    const int64_t end = options.stop_after > 0 ? options.stop_after : options.steps;
    replica.start();
    int64_t step = 0;
    if (!options.resume.empty()) {
      step = load_state(replica, run_directory(options.resume, result_.name), texts_);
    }
    for (; step < end; ++step) {
      // One rank looks at the flag, or the ranks could disagree and wait for each other.
      if (replica.communicator().root_says(root && interrupted())) break;
      const auto start = Clock::now();
      StepRecord record = replica.take_step(training_.corpus, step);
      if (!root) continue;
      const double passed = seconds_since(start);
      training_seconds_ += passed;
      record.tokens_per_s = static_cast<double>(options.batch * options.size.context) / passed;
      result_.skipped_steps += record.skipped ? 1 : 0;
      result_.nonfinite_steps += record.nonfinite ? 1 : 0;

      const bool last = step + 1 == options.steps;
      if (last || (step + 1) % evaluate_every == 0) {
        record.validation =
            replica.evaluate(training_.corpus, last ? kCompleteBatches : kPartialBatches);
      }
      training_.log.write(to_json(result_.name, record));
      for (const CastRecord &cast : record.casts) {
        training_.log.write(to_json(result_.name, record.step, cast));
      }
      training_.progress.step(record);
      result_.steps.push_back(std::move(record));
    }
    if (!options.save.empty()) {
      save_state(replica, run_directory(options.save, result_.name), texts_, step);
    }
  }

  void finish() {
    const Options &options = training_.options;
    const std::vector<StepRecord> &steps = result_.steps;
    for (const std::unique_ptr<Replica> &replica : replicas_) {
      result_.injected += replica->injected();
    }
    if (steps.empty()) return;
    const size_t last = std::min(steps.size(), kLastSteps);
    for (size_t i = steps.size() - last; i < steps.size(); ++i) {
      result_.train_loss += steps[i].loss / static_cast<double>(last);
    }
    const auto tokens = static_cast<double>(options.batch * options.size.context) *
                        static_cast<double>(steps.size());
    result_.tokens_per_s = tokens / training_seconds_;
    if (steps.back().step < options.steps) return;
    result_.validation_loss = steps.back().validation;
    result_.sample =
        generate(replicas_.front()->model(), options.prompt, options.sample_bytes, options.seed);
  }

  const Training &training_;
  const StateTexts texts_;
  RankGroup ranks_;
  std::vector<std::unique_ptr<RankMeans>> means_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  double training_seconds_ = 0.0;
  RunResult result_;
};

}  // namespace

void check_run(const RunSpec &spec, const Options &options, const Corpus &corpus,
               OctavoHost &host) {
  if (spec.uses_octavo()) OctavoRun(spec, options.config, host, options.fused, options.device);
  check_state(spec, options, run_texts(spec, options, corpus));
}

RunResult train(const RunSpec &spec, const Training &training) {
  return Run(spec, training).train();
}

}  // namespace gpt
