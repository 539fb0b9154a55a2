// JSON has no NaN: a loss that is not finite is written as null.
#include "metrics.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpt {

void add_casts(nlohmann::json &casts, const StepRecord &record) {
  using nlohmann::json;
  if (record.casts.empty()) return;
  json &steps = casts["step"], &operands = casts["operands"];
  steps.push_back(record.step);
  for (const CastRecord &cast : record.casts) {
    json &operand = operands[cast.operand];
    if (operand.is_null()) operand = {{"sqnr_db", json::array()}, {"worst", json()}};
    operand["saturated"] = operand.value("saturated", 0.0) + cast.saturated;
    operand["underflow"] = operand.value("underflow", 0.0) + cast.underflow;
    const double amax = cast.amax && std::isfinite(*cast.amax) ? *cast.amax : 0.0;
    operand["amax"] = std::max(operand.value("amax", 0.0), amax);
    json &series = operand["sqnr_db"];
    while (series.size() < steps.size()) series.push_back(nullptr);
    if (!cast.sqnr_db) continue;
    json &of_step = series.back(), &worst = operand["worst"];
    if (of_step.is_null() || *cast.sqnr_db < of_step.get<double>()) of_step = *cast.sqnr_db;
    if (worst.is_null() || *cast.sqnr_db < worst["db"].get<double>())
      worst = {{"db", *cast.sqnr_db}, {"tensor", cast.tensor}, {"step", record.step}};
  }
  if (steps.size() <= kMostSteps) return;
  const auto halve = [](json &series) {
    json kept = json::array();
    for (size_t i = 0; i < series.size(); i += 2) kept.push_back(series[i]);
    series = std::move(kept);
  };
  for (auto &[name, operand] : operands.items()) {
    while (operand["sqnr_db"].size() < steps.size()) operand["sqnr_db"].push_back(nullptr);
    halve(operand["sqnr_db"]);
  }
  halve(steps);
}

nlohmann::json to_json(const std::string &run, const StepRecord &record) {
  nlohmann::json object = {
      {"run", run},        {"step", record.step},           {"loss", record.loss},
      {"lr", record.rate}, {"grad_norm", record.grad_norm}, {"tokens_per_s", record.tokens_per_s}};
  if (record.skipped) object["skipped"] = true;
  if (record.nonfinite) object["nonfinite"] = true;
  if (record.validation) object["validation_loss"] = *record.validation;
  if (!record.telemetry.is_null()) object.update(record.telemetry);
  return object;
}

nlohmann::json to_json(const std::string &run, int64_t step, const CastRecord &record) {
  nlohmann::json object = {{"run", run},
                           {"step", step},
                           {"operand", record.operand},
                           {"tensor", record.tensor},
                           {"saturated", record.saturated},
                           {"underflow", record.underflow}};
  if (record.amax) object["amax"] = *record.amax;
  if (record.scale) object["scale"] = *record.scale;
  if (record.sqnr_db) object["sqnr_db"] = *record.sqnr_db;
  return object;
}

}  // namespace gpt
