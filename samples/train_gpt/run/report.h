// What the program leaves at its end: tables for the terminal, and report.html, one file that needs
// nothing else, in light and dark, on a desk and on a phone.
#ifndef TRAIN_GPT_REPORT_H
#define TRAIN_GPT_REPORT_H

#include "../model/corpus.h"
#include "metrics.h"
#include "options.h"

namespace gpt {

// Losses and bytes/param: weights, gradients and optimizer states of the rank that holds most. Then
// bytes in Octavo's slots by role, when a run has any.
std::string result_tables(const std::vector<RunResult> &results, bool color);
// The page for the runs so far.
std::string report_html(const Options &options, const Corpus &corpus,
                        const std::vector<RunResult> &results, bool interrupted);

}  // namespace gpt

#endif
