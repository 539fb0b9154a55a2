// Every rank makes the same steps; rank 0 also evaluates, writes and shows.
#include "trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <vector>

#include "host_adapters/standalone/ending.h"
#include "state.h"

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

// Quantize weights, forward, backward, average, reduce, norm, optimizer, end_step.
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

namespace {

using Clock = std::chrono::steady_clock;

struct Rank {
  Rank(const RunSpec &spec, const Options &options, uint32_t threads_count, const Team &team,
       uint32_t rank)
      : threads(threads_count),
        host(threads),
        replica(spec, options, threads, host, team.member(rank), team.settings()) {}

  Threads threads;
  OctavoHost host;
  Replica replica;
};

// A run is this object: its members live and die together, in the right order.
class Run {
 public:
  Run(const RunSpec &spec, const Training &training)
      : training_(training),
        team_(training.team),
        key_(run_key(spec, training.options, training.corpus)) {
    auto threads = static_cast<uint32_t>(training.options.threads);
    if (team_.near() > 1) threads = threads_per_rank(threads, team_.near());
    // One after the other: what cannot run is found before any thread starts.
    for (uint32_t i = 0; i < team_.count(); ++i)
      ranks_.push_back(
          std::make_unique<Rank>(spec, training.options, threads, team_, team_.first() + i));
    describe(spec);
  }

  RunResult train() {
    team_.run([this](uint32_t rank) { train_rank(ranks_[rank - team_.first()]->replica); });
    const Options &options = training_.options;
    describe_ranks();
    summarize(result_, options);
    if (result_.validation_loss) {
      Model &model = ranks_.front()->replica.model();
      result_.sample = model.generate(options.prompt, options.sample_bytes, options.seed);
    }
    return std::move(result_);
  }

 private:
  void describe(const RunSpec &spec) {
    Replica &root = ranks_.front()->replica;
    OctavoRun &octavo = root.octavo();
    result_.name = spec.name;
    result_.backend = "host";
    result_.recipe = octavo.precision() == "bf16" ? "bf16" : "fp32";
    if (octavo.backend() != nullptr) {
      result_.backend = octavo.backend_id();
      result_.recipe = octavo.option("recipe");
      if (result_.recipe.empty()) result_.recipe = octavo.option("opt_level");
    }
    if (spec.uses_fp8()) {
      result_.report = octavo.report();
      result_.on_cpu = octavo.backend() != nullptr && octavo.memory().is_host();
      if (text(octavo.setting("mixed_precision")->value) == "fp8" && octavo.precision() != "fp8")
        result_.without_fp8 = octavo.precision();
    }
    // Every rank gets the same ones.
    for (const octavo::Diagnostic &d : ranks_.front()->host.take())
      if (d.severity == OCTAVO_SEVERITY_WARNING) training_.progress.warn(spec.name + ": " + d.text);
    for (const Linear *linear : root.model().linears())
      result_.placements.push_back({linear->name(), linear->placement(), linear->reason()});
  }

  // What each rank keeps, of those in other processes, too.
  void describe_ranks() {
    nlohmann::json own = nlohmann::json::array();
    for (const auto &rank : ranks_) {
      Replica &replica = rank->replica;
      own.push_back({{"memory", replica.memory()},
                     {"bytes", slot_bytes(replica.octavo())},
                     {"injected", replica.injected()}});
    }
    for (const std::string &text : team_.gather(own.dump())) {
      for (const nlohmann::json &rank : nlohmann::json::parse(text)) {
        result_.memory.push_back(rank["memory"]);
        result_.injected += rank["injected"].get<int64_t>();
        for (const auto &[role, bytes] : rank["bytes"].items())
          result_.bytes[role] += bytes.get<uint64_t>();
      }
    }
  }

  void train_rank(Replica &replica) {
    const Options &options = training_.options;
    const bool root = replica.communicator().rank() == 0;
    const int64_t end = options.stop_after > 0 ? options.stop_after : options.steps;
    replica.start();
    int64_t step = 0, saved = -1;
    const auto save = [&] {
      if (options.save.empty() || saved == step) return;
      save_state(replica, run_directory(options.save, result_.name), key_, step, options.keep);
      saved = step;
    };
    if (!options.resume.empty())
      step = load_state(replica, run_directory(options.resume, result_.name), key_);
    const int64_t first = step;
    for (; step < end; ++step) {
      if (options.save_every > 0 && step > first && step % options.save_every == 0) save();
      if (stopped(replica.communicator())) break;
      const auto start = Clock::now();
      StepRecord record = replica.take_step(training_.corpus, step);
      if (!root) continue;
      record.tokens_per_s = static_cast<double>(options.batch * options.size.context) /
                            std::chrono::duration<double>(Clock::now() - start).count();
      if (const int64_t batches = batches_to_evaluate(options, record.step); batches > 0)
        record.validation = replica.evaluate(training_.corpus, batches);
      keep_step(result_, std::move(record), training_.log, training_.progress);
    }
    save();
  }

  // Whether a signal came to any rank. All look at what was sent, or they could disagree and wait
  // for each other.
  static bool stopped(const Communicator &communicator) {
    int signal = 0;
    for (const double one : communicator.gather(interrupt_signal()))
      if (signal == 0) signal = static_cast<int>(one);
    if (signal != 0) interrupt(signal);
    return signal != 0;
  }

  const Training &training_;
  Team &team_;
  const nlohmann::json key_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  RunResult result_;
};

}  // namespace

void check_run(const RunSpec &spec, const Options &options, const Corpus &corpus,
               const RankSettings &rank) {
  const Threads threads(1);
  OctavoHost host(threads);
  OctavoRun(spec, options.config, host, options.fused, options.device, rank);
  check_state(spec, options, run_key(spec, options, corpus));
}

RunResult train(const RunSpec &spec, const Training &training) {
  RunResult result;
  training.team.guarded([&] { result = Run(spec, training).train(); });
  return result;
}

int64_t batches_to_evaluate(const Options &options, int64_t step) {
  // Six times in a run a part of the text, at last all of it up to a limit.
  if (step == options.steps) return 64;
  return step % std::max<int64_t>(options.steps / 6, 1) == 0 ? 6 : 0;
}

void keep_step(RunResult &result, StepRecord record, LineLog &log, Progress &progress) {
  result.skipped_steps += record.skipped ? 1 : 0;
  result.nonfinite_steps += record.nonfinite ? 1 : 0;
  log.write(to_json(result.name, record).dump());
  for (const CastRecord &cast : record.casts)
    log.write(to_json(result.name, record.step, cast).dump());
  progress.step(record);
  add_casts(result.casts, record);
  ++result.steps_made;
  result.seconds_per_token += 1.0 / record.tokens_per_s;
  result.last_losses.push_back(record.loss);
  if (result.last_losses.size() > kLastLosses) result.last_losses.pop_front();

  std::vector<StepRecord> &steps = result.steps;
  const auto goes = [&](const StepRecord &r) {
    return r.step % result.every != 0 && !r.validation;
  };
  if (!steps.empty() && goes(steps.back())) steps.pop_back();
  steps.push_back(std::move(record));
  if (steps.size() <= kMostSteps) return;
  result.every *= 2;
  const StepRecord last = steps.back();
  steps.erase(std::remove_if(steps.begin(), steps.end(), goes), steps.end());
  if (steps.back().step != last.step) steps.push_back(last);
}

void summarize(RunResult &result, const Options &options) {
  const std::vector<StepRecord> &steps = result.steps;
  if (steps.empty()) return;
  result.tokens_per_s = static_cast<double>(result.steps_made) / result.seconds_per_token;
  for (const double loss : result.last_losses)
    result.train_loss += loss / static_cast<double>(result.last_losses.size());
  if (steps.back().step == options.steps) result.validation_loss = steps.back().validation;
}

}  // namespace gpt
