// The data of the runs, as the page takes it.
#include "../run/terminal.h"
#include "host_adapters/standalone/simd.h"
#include "report.h"
#include "sdk/page/run_page.h"

namespace gpt {
namespace {

using nlohmann::json;

json run_json(const RunResult &result) {
  json run = {{"name", result.name},
              {"backend", result.backend},
              {"recipe", result.recipe},
              {"train_loss", result.train_loss},
              {"tokens_per_s", result.tokens_per_s},
              {"skipped_steps", result.skipped_steps},
              {"nonfinite_steps", result.nonfinite_steps},
              {"injected", result.injected},
              {"casts", result.casts},
              {"bytes", result.bytes},
              {"memory",
               {{"fullest", fullest_rank(result.memory)},
                {"sum", summed(result.memory)},
                {"ranks", result.memory}}},
              {"placements", result.placements},
              {"report", result.report},
              {"sample", result.sample}};
  run["validation_loss"] = result.validation_loss ? json(*result.validation_loss) : json();
  for (const char *series : {"step", "loss", "validation"}) run[series] = json::array();
  for (const char *kind : {"amax", "scale", "reduce"}) run[kind] = json::object();
  for (const StepRecord &record : result.steps) {
    run["step"].push_back(record.step);
    run["loss"].push_back(record.loss);
    if (record.validation) run["validation"].push_back({record.step, *record.validation});
    for (const auto &[kind, values] : record.telemetry.items())
      for (const auto &[key, value] : values.items()) run[kind][key].push_back(value);
  }
  return run;
}

json configuration(const Options &o) {
  json rows = json::array();
  auto add = [&](const char *name, const json &value) { rows.push_back({name, value}); };
  add("octavo", octavo::version());
  add("octavo.toml", o.config.empty() ? "none" : o.config);
  add("steps", o.steps);
  add("batch", o.batch);
  add("context", o.size.context);
  add("layers", o.size.layers);
  add("heads", o.size.heads);
  add("width", o.size.width);
  add("peak learning rate", o.rate);
  add("seed", o.seed);
  add("ranks", o.ranks);
  add("telemetry every", o.telemetry_every == 0 ? json("never") : json(o.telemetry_every));
  add("injected", o.inject_inf == 0 ? json("nothing")
                                    : json("one infinite gradient in " +
                                           std::to_string(o.inject_inf) + " backward calls"));
  add("threads", o.threads == 0 ? json("one per core") : json(o.threads));
  add("host kernels", simd().name);
  return rows;
}

}  // namespace

std::string report_html(const Options &options, const Corpus &corpus,
                        const std::vector<RunResult> &results, bool interrupted) {
  const size_t count = results.size();
  json data = {
      {"title", "One small GPT, several precisions"},
      {"kicker", "Octavo · train_gpt"},
      {"lede", "A byte-level GPT trained " +
                   (count == 1 ? "once" : std::to_string(count) + " times") +
                   " from the same seed on the same batches, " + std::to_string(options.steps) +
                   " steps each. Only the arithmetic of the linear layers differs. A "
                   "model that knows byte frequencies alone would reach " +
                   fixed(corpus.unigram_entropy, 3) + " nats."},
      {"loss_unit", "nats per byte"},
      {"interrupted", interrupted},
      {"steps", options.steps},
      {"ranks", options.ranks},
      {"memory_parts", kMemoryNames},
      {"prompt", options.prompt},
      {"configuration", configuration(options)},
      {"corpus",
       {{"train_bytes", corpus.train.size()},
        {"validation_bytes", corpus.validation.size()},
        {"train_files", corpus.train_files},
        {"validation_files", corpus.validation_files},
        {"split", corpus.split},
        {"entropy", corpus.unigram_entropy}}},
      {"runs", json::array()}};
  for (const RunResult &result : results) data["runs"].push_back(run_json(result));
  return octavo::run_page(data);
}

}  // namespace gpt
