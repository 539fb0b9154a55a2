// One row per run; a run that was stopped early shows "-" where it has no number.
#include <set>

#include "../run/terminal.h"
#include "report.h"

namespace gpt {

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
