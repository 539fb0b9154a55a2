// Runs from what programs log: lines of JSON, the state of transformers' Trainer, tables of CSV.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace octavo::cli::report {

using Json = nlohmann::json;

struct Run {
  std::string name;
  std::map<std::string, std::string> texts;                // backend, recipe, report, sample
  std::map<int64_t, std::map<std::string, double>> steps;  // values that are finite
};

// Adds the runs of a file, or in a directory of its metrics.jsonl, trainer_state.json or
// metrics.csv. A name that is taken gets its path in front. Throws Failure(OCTAVO_INVALID).
//
//   *.jsonl  one object a line, with "step" and numbers; "run" names its run; nested objects are
//            joined by "/"; a line without a step may hold the texts of a run. A line with
//            "operand" and "tensor" is of one cast, as train_gpt writes them
//   *.json   {"log_history": [objects with "step"]}
//   *.csv    a line of names, one of them "step"; empty fields are left out
void read_log(const std::string &path, std::vector<Run> &all);

}  // namespace octavo::cli::report
