// What a run leaves behind: one record per step, the totals, and the log file.
#ifndef TRAIN_GPT_METRICS_H
#define TRAIN_GPT_METRICS_H

#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "../octavo/slot_statistics.h"

namespace gpt {

struct StepRecord {
  int64_t step = 0;  // counts from 1
  double loss = 0.0, rate = 0.0, grad_norm = 0.0, tokens_per_s = 0.0;
  bool skipped = false;              // a gradient was not finite: no weight changed
  bool nonfinite = false;            // a gradient or the loss was not finite
  std::optional<double> validation;  // only on some steps
  nlohmann::json telemetry;          // null or as SlotStatistics::telemetry
  std::vector<CastRecord> casts;     // of sampled steps, if the backend offers them
};

struct Placement {
  std::string layer, where, reason;

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Placement, layer, where, reason)
};

struct RunResult {
  std::string name;
  std::string backend;  // "te", or "host" for the program's own linears
  std::string recipe;   // "delayed", or the precision
  // Every step of a short run. Of a long one each `every`th, those with a validation, and the last:
  // memory does not grow with the steps.
  std::vector<StepRecord> steps;
  int64_t every = 1;
  // Of all sampled steps, see add_casts.
  nlohmann::json casts = {{"step", nlohmann::json::array()},
                          {"operands", nlohmann::json::object()}};
  int64_t steps_made = 0;
  double seconds_per_token = 0.0;         // the sum over steps
  std::deque<double> last_losses;         // of at most kLastLosses steps
  double train_loss = 0.0;                // mean of the last steps
  std::optional<double> validation_loss;  // after the last step; none: interrupted
  double tokens_per_s = 0.0;
  int64_t skipped_steps = 0, nonfinite_steps = 0;
  int64_t injected = 0;                   // infinite gradients, by --inject-inf; of all ranks
  std::map<std::string, uint64_t> bytes;  // in slots of all ranks, by role
  std::vector<RankMemory> memory;         // by rank
  std::vector<Placement> placements;
  std::string report;       // what Octavo says about the run
  bool on_cpu = false;      // FP8 is emulated
  std::string without_fp8;  // FP8 was wanted and a fallback ran: the precision in its place
  std::string sample;       // continuation of the prompt
};

constexpr size_t kMostSteps = 2048;  // of RunResult::steps, and those with a validation
constexpr size_t kLastLosses = 20;   // the train loss of the table

// Adds a sampled step to casts of the page (sdk/page/run_page.h), {step, operands}: by operand the
// worst ratio of each step, the worst of all with its place, and the totals.
void add_casts(nlohmann::json &casts, const StepRecord &record);

nlohmann::json to_json(const std::string &run, const StepRecord &record);
// A line of its own for each cast of a sampled step; a key is absent where the backend has
// no such slot or nothing was cast.
nlohmann::json to_json(const std::string &run, int64_t step, const CastRecord &record);

}  // namespace gpt

#endif
