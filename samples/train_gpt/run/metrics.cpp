// JSON has no NaN: a loss that is not finite is written as null.
#include "metrics.h"

#include <cerrno>
#include <cstring>

#include "../model/error.h"

namespace gpt {

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

MetricsLog::MetricsLog(const std::string &path) : path_(path) {
  if (path.empty()) return;
  errno = 0;
  out_.open(path, std::ios::binary | std::ios::trunc);
  expect(!!out_, path, "a file that can be written", std::strerror(errno), "choose another --out");
}

void MetricsLog::write(const nlohmann::json &object) {
  if (path_.empty()) return;
  out_ << object.dump() + "\n" << std::flush;
  expect(!!out_, path_, "space for one more line", std::strerror(errno),
         "free space on the disk, or choose another --out");
}

}  // namespace gpt
