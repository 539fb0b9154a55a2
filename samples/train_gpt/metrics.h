// What a run leaves behind: one record per step, the totals, and the log file.
#ifndef TRAIN_GPT_METRICS_H
#define TRAIN_GPT_METRICS_H

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "memory.h"

namespace gpt {

// How one operand of one layer was cast in one step. The counts are of elements.
struct CastRecord {
  std::string operand;          // "x", "w" or "dy"
  std::string tensor;           // the layer, of w the weight
  std::optional<double> amax;   // largest absolute value of the step
  std::optional<double> scale;  // that it was multiplied by; none: made within the cast
  double saturated = 0.0;
  double underflow = 0.0;
  std::optional<double>
      sqnr_db;  // 10 log10(signal / noise); none: nothing was lost, or nothing cast
};

struct StepRecord {
  int64_t step = 0;  // counts from 1
  double loss = 0.0;
  double rate = 0.0;
  double grad_norm = 0.0;
  double tokens_per_s = 0.0;
  bool skipped = false;              // a gradient was not finite: no weight changed
  bool nonfinite = false;            // a gradient or the loss was not finite
  std::optional<double> validation;  // only on some steps
  nlohmann::json telemetry;          // null or as Telemetry::sample
  std::vector<CastRecord> casts;     // of sampled steps, if the backend offers them
};

struct Placement {
  std::string layer;
  std::string where;
  std::string reason;
};

struct RunResult {
  std::string name;
  std::string backend;  // "te", or "host" for the program's own linears
  std::string recipe;   // "delayed", or the precision
  std::vector<StepRecord> steps;
  double train_loss = 0.0;                // mean of the last steps
  std::optional<double> validation_loss;  // after the last step; none: interrupted
  double tokens_per_s = 0.0;
  int64_t skipped_steps = 0;
  int64_t nonfinite_steps = 0;
  int64_t injected = 0;                   // infinite gradients, by --inject-inf; of all ranks
  std::map<std::string, uint64_t> bytes;  // in slots of all ranks, by role
  std::vector<RankMemory> memory;         // by rank
  std::vector<Placement> placements;
  std::string report;  // what Octavo says about the run
  std::string sample;  // continuation of the prompt
};

nlohmann::json to_json(const std::string &run, const StepRecord &record);
// A line of its own for each cast of a sampled step; a key is absent where the backend has
// no such slot or nothing was cast.
nlohmann::json to_json(const std::string &run, int64_t step, const CastRecord &record);

// metrics.jsonl: one object per line, flushed line by line, so a killed run keeps what it had.
class MetricsLog {
 public:
  // Starts an empty file; throws UserError.
  explicit MetricsLog(const std::string &path);
  void write(const nlohmann::json &object);

 private:
  std::string path_;
  std::ofstream out_;
};

}  // namespace gpt

#endif
