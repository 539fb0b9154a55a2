// The tables at the end of the program.
#ifndef TRAIN_GPT_RESULTS_TABLE_H
#define TRAIN_GPT_RESULTS_TABLE_H

#include <string>
#include <vector>

#include "metrics.h"

namespace gpt {

// The validation loss of the run named fp32, when there is one.
std::optional<double> fp32_loss(const std::vector<RunResult> &results);

// bytes/param: weights, gradients and optimizer states of the rank that holds most.
std::string results_table(const std::vector<RunResult> &results, bool color);
// Bytes in Octavo's slots by role; empty when no run has any.
std::string bytes_table(const std::vector<RunResult> &results, bool color);

}  // namespace gpt

#endif
