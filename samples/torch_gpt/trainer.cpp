// The training loop. The lines that FP8 adds or changes are marked "FP8"; there are three, and the
// include in trainer.h.
#include "trainer.h"

#include <ATen/autocast_mode.h>

#include <charconv>
#include <chrono>

#include "../train_gpt/model/optimizer.h"
#include "../train_gpt/run/trainer.h"
#include "host_adapters/standalone/ending.h"
#include "host_adapters/standalone/error.h"

namespace torch_gpt {
namespace {

using Clock = std::chrono::steady_clock;
using octavo::torch::Config;
using octavo::torch::Value;

// A setting of the command line as the type that it looks like.
Value value_of(const std::string &s) {
  const char *end = s.data() + s.size();
  if (s == "true" || s == "false") return s == "true";
  int64_t integer = 0;
  if (std::from_chars(s.data(), end, integer).ptr == end) return integer;
  double real = 0.0;
  if (std::from_chars(s.data(), end, real).ptr == end) return real;
  return s;
}

at::Tensor tensor_of(const std::vector<unsigned char> &bytes, int64_t sequences,
                     const at::Device &device) {
  return torch::from_blob(const_cast<unsigned char *>(bytes.data()),
                          {sequences, static_cast<int64_t>(bytes.size()) / sequences}, torch::kByte)
      .to(device, torch::kLong);
}

at::Tensor loss_of(Model &model, const gpt::Batch &batch) {
  const at::Device device = model->head->weight.device();
  const at::Tensor logits = model(tensor_of(batch.tokens, batch.sequences, device));
  return torch::cross_entropy_loss(logits.to(torch::kFloat).flatten(0, 1),
                                   tensor_of(batch.targets, batch.sequences, device).flatten());
}

double evaluate(Model &model, const gpt::Options &options, const gpt::Corpus &corpus,
                int64_t limit) {
  const torch::NoGradGuard no_grad;
  model->eval();
  double sum = 0.0;
  int64_t sequences = 0;
  for (const gpt::Batch &batch :
       gpt::validation_batches(corpus, options.batch, options.size.context, limit)) {
    sum += static_cast<double>(batch.sequences) * loss_of(model, batch).item<double>();
    sequences += batch.sequences;
  }
  model->train();
  return sum / static_cast<double>(sequences);
}

// Weight decay is for matrices; the rest of train_gpt's hyperparameters for all.
std::vector<torch::optim::OptimizerParamGroup> groups_of(Model &model,
                                                         const gpt::AdamWOptions &given) {
  std::vector<at::Tensor> matrices;
  std::vector<at::Tensor> vectors;
  for (const at::Tensor &p : model->parameters()) (p.dim() > 1 ? matrices : vectors).push_back(p);
  const auto options = [&](double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(torch::optim::AdamWOptions()
                                                            .betas({given.beta1, given.beta2})
                                                            .eps(given.epsilon)
                                                            .weight_decay(decay));
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(matrices, options(given.decay));
  groups.emplace_back(vectors, options(0.0));
  return groups;
}

void set_rate(torch::optim::Optimizer &optimizer, double rate) {
  for (auto &group : optimizer.param_groups()) group.options().set_lr(rate);
}

// Autocast for the bf16 run alone.
class Autocast {
 public:
  Autocast(bool on, at::DeviceType type) : on_(on), type_(type) {
    if (!on_) return;
    at::autocast::set_autocast_dtype(type_, at::kBFloat16);
    at::autocast::set_autocast_enabled(type_, true);
  }
  ~Autocast() {
    if (!on_) return;
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(type_, false);
  }
  Autocast(const Autocast &) = delete;
  Autocast &operator=(const Autocast &) = delete;

 private:
  bool on_;
  at::DeviceType type_;
};

void describe(gpt::RunResult &result, Model &model, octavo::torch::Prepared &optimizer) {
  const octavo::torch::Session session = optimizer.session();
  result.backend = session.backend().empty() ? "torch" : session.backend();
  result.recipe = session.option("recipe");
  if (result.recipe.empty()) result.recipe = session.option("opt_level");
  if (result.recipe.empty()) result.recipe = result.name;
  result.report = optimizer.report();
  result.on_cpu = model->parameters().front().is_cpu();
  result.bytes = slot_bytes(session);
  result.memory = {memory_of(model, optimizer)};
  for (const octavo::torch::Layer &layer : optimizer.layers())
    result.placements.push_back(
        {layer.name, layer.fp8 ? session.backend() : "torch", layer.reason});
}

}  // namespace

Config config_of(const gpt::RunSpec &spec, const gpt::Options &options) {
  Config config(options.config);
  if (!options.device.empty()) config.set("device.kind", options.device);
  if (spec.kind == gpt::RunSpec::Kind::kFp32) config.set("mixed_precision", "no");
  if (spec.kind == gpt::RunSpec::Kind::kBf16) config.set("mixed_precision", "bf16");
  if (spec.kind != gpt::RunSpec::Kind::kBackend) return config;
  config.set("mixed_precision", "fp8").set("fp8.backend", spec.backend);
  for (const auto &[key, value] : spec.settings)
    config.set("fp8." + spec.backend + "." + key, value_of(value));
  return config;
}

gpt::RunResult train(const gpt::RunSpec &spec, const gpt::Options &options,
                     const gpt::Corpus &corpus, gpt::Progress &progress, gpt::LineLog &log) {
  gpt::RunResult result;
  result.name = spec.name;
  const gpt::AdamWOptions hyper;
  Model model(options.size, options.seed);
  const at::Device device(options.device == "cuda" ? at::kCUDA : at::kCPU, 0);
  model->to(device);
  torch::optim::AdamW adamw(groups_of(model, hyper));
  octavo::torch::Prepared optimizer =
      octavo::torch::prepare(*model, adamw, config_of(spec, options));  // FP8: 1 of 3
  describe(result, model, optimizer);

  for (int64_t step = 0; step < options.steps && !gpt::interrupted(); ++step) {
    const auto start = Clock::now();
    const gpt::Batch batch =
        gpt::training_batch(corpus, options.batch, options.size.context, options.seed, step);
    gpt::StepRecord record;
    record.step = step + 1;
    record.rate = gpt::learning_rate(options.rate, options.end_rate, step, options.steps);
    set_rate(optimizer.optimizer(), record.rate);  // FP8: 2 of 3
    optimizer.zero_grad();
    at::Tensor loss;
    {
      const Autocast autocast(spec.kind == gpt::RunSpec::Kind::kBf16, device.type());
      loss = loss_of(model, batch);
    }
    loss.backward();
    record.grad_norm = optimizer.clip_grad_norm_(hyper.clip);  // FP8: 3 of 3
    optimizer.step();

    record.loss = loss.item<double>();
    record.skipped = optimizer.step_was_skipped();
    record.nonfinite = record.skipped || !std::isfinite(record.loss);
    record.tokens_per_s = static_cast<double>(options.batch * options.size.context) /
                          std::chrono::duration<double>(Clock::now() - start).count();
    if (const int64_t batches = gpt::batches_to_evaluate(options, record.step); batches > 0)
      record.validation = evaluate(model, options, corpus, batches);
    gpt::keep_step(result, std::move(record), log, progress);
  }
  gpt::summarize(result, options);
  return result;
}

}  // namespace torch_gpt
