// What a run leaves behind: one record per step, the totals, and the log file.
#ifndef TRAIN_GPT_METRICS_H
#define TRAIN_GPT_METRICS_H

#include <fstream>
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
  std::vector<StepRecord> steps;
  double train_loss = 0.0;                // mean of the last steps
  std::optional<double> validation_loss;  // after the last step; none: interrupted
  double tokens_per_s = 0.0;
  int64_t skipped_steps = 0, nonfinite_steps = 0;
  int64_t injected = 0;                   // infinite gradients, by --inject-inf; of all ranks
  std::map<std::string, uint64_t> bytes;  // in slots of all ranks, by role
  std::vector<RankMemory> memory;         // by rank
  std::vector<Placement> placements;
  std::string report;       // what Octavo says about the run
  std::string without_fp8;  // FP8 was wanted and a fallback ran: the precision in its place
  std::string sample;       // continuation of the prompt
};

nlohmann::json to_json(const std::string &run, const StepRecord &record);
// A line of its own for each cast of a sampled step; a key is absent where the backend has
// no such slot or nothing was cast.
nlohmann::json to_json(const std::string &run, int64_t step, const CastRecord &record);

// metrics.jsonl: one object per line, flushed line by line, so a killed run keeps what it had.
class MetricsLog {
 public:
  // Starts an empty file; throws UserError. Without a path nothing is written.
  explicit MetricsLog(const std::string &path);
  void write(const nlohmann::json &object);

 private:
  std::string path_;
  std::ofstream out_;
};

}  // namespace gpt

#endif
