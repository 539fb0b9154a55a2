// Names of values differ between programs: those of train_gpt, of transformers and of Lightning are
// known, and what octavo.telemetry gives. All else has a chart of its own.
#include "sdk/cli/report/data.h"

#include <algorithm>
#include <optional>
#include <set>

#include "octavo/octavo.hpp"

namespace octavo::cli::report {
namespace {

using Names = std::vector<std::string>;

const Names kLoss = {"loss", "train_loss", "train/loss", "train_loss_step"};
const Names kValidation = {"validation_loss", "val_loss",  "eval_loss",
                           "val/loss",        "eval/loss", "valid_loss"};
const Names kSpeed = {"tokens_per_s", "tokens_per_second", "train_tokens_per_second"};
const Names kSkipped = {"octavo/skipped_steps", "octavo_skipped_steps", "skipped_steps"};

struct Series {
  std::vector<std::pair<int64_t, double>> points;
};

Series series_of(const Run &run, const Names &names) {
  Series series;
  for (const auto &[step, values] : run.steps)
    for (const std::string &name : names)
      if (const auto found = values.find(name); found != values.end()) {
        series.points.emplace_back(step, found->second);
        break;
      }
  return series;
}

Json mean_of_last(const Series &series, size_t count) {
  if (series.points.empty()) return {};
  count = std::min(count, series.points.size());
  double sum = 0;
  for (size_t i = series.points.size() - count; i < series.points.size(); ++i)
    sum += series.points[i].second;
  return sum / static_cast<double>(count);
}

Json points_of(const Series &series) {
  Json points = Json::array();
  for (const auto &[step, value] : series.points) points.push_back({step, value});
  return points;
}

// "octavo/amax/x/layer", or the same without "octavo/": what was recorded of one tensor.
struct Recorded {
  std::string kind, tensor;  // "amax", "x/layer"

  bool is_count() const { return kind == "saturated" || kind == "underflow"; }
  std::string operand() const { return tensor.substr(0, tensor.find('/')); }
  std::string layer() const { return tensor.substr(tensor.find('/') + 1); }
};

std::optional<Recorded> recorded(const std::string &name) {
  const std::string plain = name.rfind("octavo/", 0) == 0 ? name.substr(7) : name;
  const size_t slash = plain.find('/');
  if (slash == std::string::npos || slash + 1 == plain.size()) return {};
  Recorded r{plain.substr(0, slash), plain.substr(slash + 1)};
  for (const char *kind : {"amax", "scale", "saturated", "underflow", "sqnr_db", "reduce"})
    if (r.kind == kind) return r;
  return {};
}

// {"x/layer": one number or null for each step of the loss}
Json by_tensor(const Run &run, const std::string &kind, const std::vector<int64_t> &steps) {
  Json all = Json::object();
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const auto &[name, value] : run.steps.at(steps[i])) {
      const std::optional<Recorded> r = recorded(name);
      if (!r || r->kind != kind) continue;
      if (!all.contains(r->tensor)) all[r->tensor] = Json(std::vector<Json>(steps.size()));
      all[r->tensor][i] = value;
    }
  }
  return all;
}

// One number of the last of `samples` steps, into what is known of its operand.
void add_cast(const Recorded &r, double value, int64_t step, size_t samples, Json &operand) {
  if (operand.is_null()) operand = {{"sqnr_db", Json::array()}, {"worst", Json()}};
  Json &worst = operand["worst"], &decibels = operand["sqnr_db"];
  while (decibels.size() < samples) decibels.push_back(nullptr);
  if (r.kind == "amax") operand["amax"] = std::max(operand.value("amax", 0.0), value);
  if (r.is_count()) operand[r.kind] = operand.value(r.kind, 0.0) + value;
  if (r.kind != "sqnr_db") return;
  Json &least = decibels.back();
  if (least.is_null() || value < least.get<double>()) least = value;
  if (worst.is_null() || value < worst["db"].get<double>())
    worst = {{"db", value}, {"tensor", r.layer()}, {"step", step}};
}

// Of each operand the worst layer of each step that has counts, and the sums.
Json casts_of(const Run &run) {
  Json casts = {{"step", Json::array()}, {"operands", Json::object()}};
  for (const auto &[step, values] : run.steps) {
    std::vector<std::pair<Recorded, double>> found;
    bool is_sampled = false;
    for (const auto &[name, value] : values)
      if (const std::optional<Recorded> r = recorded(name); r && r->kind != "scale") {
        is_sampled |= r->is_count() || r->kind == "sqnr_db";
        if (r->kind != "reduce") found.emplace_back(*r, value);
      }
    if (!is_sampled) continue;
    casts["step"].push_back(step);
    for (const auto &[r, value] : found)
      add_cast(r, value, step, casts["step"].size(), casts["operands"][r.operand()]);
  }
  return casts;
}

bool is_known(const std::string &name) {
  for (const Names *names : {&kLoss, &kValidation, &kSpeed, &kSkipped})
    if (std::find(names->begin(), names->end(), name) != names->end()) return true;
  return recorded(name) || name == "skipped" || name == "nonfinite";
}

Json others_of(const Run &run) {
  std::set<std::string> names;
  for (const auto &[step, values] : run.steps)
    for (const auto &[name, value] : values)
      if (!is_known(name)) names.insert(name);
  Json all = Json::object();
  for (const std::string &name : names) all[name] = points_of(series_of(run, {name}));
  return all;
}

// A count that a program keeps, or one flag a step.
Json skipped_of(const Run &run) {
  const Series kept = series_of(run, kSkipped), flags = series_of(run, {"skipped"});
  if (!kept.points.empty()) return kept.points.back().second;
  return flags.points.empty() ? Json() : Json(flags.points.size());
}

Json run_data(const Run &run) {
  const Series loss = series_of(run, kLoss);
  const Ends ends = ends_of(run);
  std::vector<int64_t> steps;
  Json losses = Json::array();
  for (const auto &[step, value] : loss.points) {
    steps.push_back(step);
    losses.push_back(value);
  }
  Json data = {{"name", run.name},
               {"step", steps},
               {"loss", losses},
               {"validation", points_of(series_of(run, kValidation))},
               {"train_loss", ends.train},
               {"validation_loss", ends.validation},
               {"tokens_per_s", ends.tokens_per_s},
               {"skipped_steps", skipped_of(run)},
               {"amax", by_tensor(run, "amax", steps)},
               {"scale", by_tensor(run, "scale", steps)},
               {"reduce", by_tensor(run, "reduce", steps)},
               {"casts", casts_of(run)},
               {"others", others_of(run)}};
  for (const auto &[key, text] : run.texts) data[key] = text;
  return data;
}

}  // namespace

Ends ends_of(const Run &run) {
  return {mean_of_last(series_of(run, kLoss), 20), mean_of_last(series_of(run, kValidation), 1),
          mean_of_last(series_of(run, kSpeed), 20)};
}

Json page_data(const std::vector<Run> &runs) {
  int64_t steps = 0;
  Json all = Json::array();
  for (const Run &run : runs) {
    all.push_back(run_data(run));
    if (!run.steps.empty()) steps = std::max(steps, run.steps.rbegin()->first);
  }
  return {{"title", runs.size() == 1 ? runs.front().name : std::to_string(runs.size()) + " runs"},
          {"kicker", "Octavo"},
          {"lede", "What the runs logged, up to step " + std::to_string(steps) + "."},
          {"steps", steps},
          {"prompt", ""},
          {"configuration", Json::array({Json::array({"octavo", octavo::version()})})},
          {"runs", all}};
}

}  // namespace octavo::cli::report
