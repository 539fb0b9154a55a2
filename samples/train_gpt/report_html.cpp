// Puts the data of the runs as JSON into the page of report_page.html, which draws itself.
#include "report_html.h"

#include <octavo/octavo.h>

#include <algorithm>
#include <cmath>

#include "octavo_run.h"
#include "simd.h"

namespace gpt {

extern const char *const kReportPage;  // report_page.html, made a string by the build

namespace {

using nlohmann::json;

json use_json(const MemoryUse &use) {
  return {{"parameters", use.parameters}, {"bytes", use.bytes}};
}

json rank_json(const RankMemory &memory) {
  return {{"model", use_json(memory.model)}, {"linear", use_json(memory.linear)}};
}

json memory_json(const std::vector<RankMemory> &ranks) {
  json memory = {{"fullest", fullest_rank(ranks)}, {"sum", rank_json(summed(ranks))}};
  for (const RankMemory &rank : ranks) memory["ranks"].push_back(rank_json(rank));
  return memory;
}

// By operand: the worst ratio of each sampled step, the worst of all with its place, and the
// totals.
json casts_json(const std::vector<StepRecord> &steps) {
  json casts = {{"step", json::array()}, {"operands", json::object()}};
  for (const StepRecord &record : steps) {
    if (record.casts.empty()) continue;
    casts["step"].push_back(record.step);
    for (const CastRecord &cast : record.casts) {
      json &operand = casts["operands"][cast.operand];
      if (operand.is_null()) {
        operand = {{"sqnr_db", json::array()},
                   {"worst", json()},
                   {"saturated", 0.0},
                   {"underflow", 0.0},
                   {"amax", 0.0}};
      }
      operand["saturated"] = operand["saturated"].get<double>() + cast.saturated;
      operand["underflow"] = operand["underflow"].get<double>() + cast.underflow;
      if (cast.amax && std::isfinite(*cast.amax))
        operand["amax"] = std::max(operand["amax"].get<double>(), *cast.amax);
      json &series = operand["sqnr_db"];
      while (series.size() < casts["step"].size()) series.push_back(nullptr);
      if (!cast.sqnr_db) continue;
      json &worst_of_step = series.back();
      if (worst_of_step.is_null() || *cast.sqnr_db < worst_of_step.get<double>()) {
        worst_of_step = *cast.sqnr_db;
      }
      json &worst = operand["worst"];
      if (worst.is_null() || *cast.sqnr_db < worst["db"].get<double>()) {
        worst = {{"db", *cast.sqnr_db}, {"tensor", cast.tensor}, {"step", record.step}};
      }
    }
  }
  return casts;
}

json run_json(const RunResult &result, int64_t steps) {
  json run = {{"name", result.name},
              {"backend", result.backend},
              {"recipe", result.recipe},
              {"train_loss", result.train_loss},
              {"tokens_per_s", result.tokens_per_s},
              {"skipped_steps", result.skipped_steps},
              {"nonfinite_steps", result.nonfinite_steps},
              {"injected", result.injected},
              {"casts", casts_json(result.steps)},
              {"complete", static_cast<int64_t>(result.steps.size()) == steps},
              {"bytes", result.bytes},
              {"memory", memory_json(result.memory)},
              {"report", result.report},
              {"sample", result.sample}};
  run["validation_loss"] = result.validation_loss ? json(*result.validation_loss) : json();
  json step = json::array(), loss = json::array(), validation = json::array();
  json amax = json::object(), scale = json::object(), reduce = json::object();
  for (const StepRecord &record : result.steps) {
    step.push_back(record.step);
    loss.push_back(record.loss);
    if (record.validation) validation.push_back({record.step, *record.validation});
    for (auto &[kind, series] : {std::pair<const char *, json &>("amax", amax),
                                 std::pair<const char *, json &>("scale", scale),
                                 std::pair<const char *, json &>("reduce", reduce)}) {
      if (!record.telemetry.contains(kind)) continue;
      for (const auto &[key, value] : record.telemetry[kind].items()) series[key].push_back(value);
    }
  }
  run["step"] = step;
  run["loss"] = loss;
  run["validation"] = validation;
  run["amax"] = amax;
  run["scale"] = scale;
  run["reduce"] = reduce;
  json placements = json::array();
  for (const Placement &p : result.placements) {
    placements.push_back({{"layer", p.layer}, {"where", p.where}, {"reason", p.reason}});
  }
  run["placements"] = placements;
  return run;
}

json configuration(const Options &o) {
  json rows = json::array();
  auto add = [&](const char *name, const json &value) { rows.push_back({name, value}); };
  add("octavo", text(octavo_version()));
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
  json data = {{"interrupted", interrupted},
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
  for (const RunResult &result : results) {
    data["runs"].push_back(run_json(result, options.steps));
  }
  // In a script element only "</" could end the data early; invalid UTF-8 becomes U+FFFD.
  std::string text = data.dump(-1, ' ', false, json::error_handler_t::replace);
  for (size_t at = 0; (at = text.find("</", at)) != std::string::npos;) text.replace(at, 2, "<\\/");
  std::string page = kReportPage;
  const std::string mark = "{{DATA}}";
  return page.replace(page.find(mark), mark.size(), text);
}

}  // namespace gpt
