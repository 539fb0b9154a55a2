// The data of the runs, as the page takes it, and as tables.
#include "report.h"

#include <algorithm>
#include <set>

#include "host_adapters/standalone/simd.h"
#include "host_adapters/standalone/text.h"
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
  const bool on_cpu =
      std::any_of(results.begin(), results.end(), [](const RunResult &r) { return r.on_cpu; });
  std::string conditions = "one seed";
  if (count != 0 && !results[0].memory.empty())
    conditions += ", a model of " + grouped(results[0].memory[0].model.parameters) + " parameters";
  if (on_cpu) conditions += ", FP8 emulated on a CPU";
  json data = {
      {"title", "One small GPT, several precisions"},
      {"kicker", "Octavo · train_gpt"},
      {"lede", "A byte-level GPT trained " +
                   (count == 1 ? "once" : std::to_string(count) + " times") +
                   " from the same seed on the same batches, " + std::to_string(options.steps) +
                   " steps each. Only the arithmetic of the linear layers differs. A "
                   "model that knows byte frequencies alone would reach " +
                   fixed(corpus.unigram_entropy, 3) + " nats."},
      {"conditions", conditions},
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

// One row per run; a run that was stopped early shows "-" where it has no number.
std::string result_tables(const std::vector<RunResult> &results, bool color) {
  std::vector<std::vector<std::string>> rows = {{"run", "backend", "recipe", "train loss",
                                                 "validation", "to fp32 %", "tokens/s",
                                                 "bytes/param"}};
  const bool several = !results.empty() && results.front().memory.size() > 1;
  if (several) rows[0].push_back("of all ranks");
  std::optional<double> base;
  for (const RunResult &r : results)
    if (r.name == "fp32") base = r.validation_loss;
  for (const RunResult &result : results) {
    std::string validation = "-";
    std::string difference = "-";
    if (result.validation_loss) {
      validation = fixed(*result.validation_loss, 4);
      if (base) difference = fixed((*result.validation_loss / *base - 1.0) * 100.0, 2);
    }
    rows.push_back({result.name, result.backend, result.recipe.empty() ? "-" : result.recipe,
                    result.steps.empty() ? "-" : fixed(result.train_loss, 4), validation,
                    difference, result.steps.empty() ? "-" : fixed(result.tokens_per_s, 0)});
    std::vector<RankMemory> memory = {result.memory[fullest_rank(result.memory)]};
    if (several) memory.push_back(summed(result.memory));
    for (const RankMemory &m : memory)
      rows.back().push_back(fixed(m.model.training_bytes_per_parameter(), 2));
  }
  const std::string losses = table(rows, 3, color);

  std::set<std::string> roles;
  for (const RunResult &result : results)
    for (const auto &[role, bytes] : result.bytes) roles.insert(role);
  if (roles.empty()) return losses;
  rows = {{"bytes in slots"}};
  for (const std::string &role : roles) rows[0].push_back(role);
  for (const RunResult &result : results) {
    if (result.bytes.empty()) continue;
    rows.push_back({result.name});
    for (const std::string &role : roles) {
      const auto it = result.bytes.find(role);
      rows.back().push_back(it == result.bytes.end() ? "-" : grouped(it->second));
    }
  }
  return losses + "\n" + table(rows, 1, color);
}

}  // namespace gpt
