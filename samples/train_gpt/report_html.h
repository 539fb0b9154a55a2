// report.html: one file that needs nothing else, in light and dark, on a desk and on a phone.
#ifndef TRAIN_GPT_REPORT_HTML_H
#define TRAIN_GPT_REPORT_HTML_H

#include "corpus.h"
#include "metrics.h"
#include "options.h"

namespace gpt {

// The page for the runs so far; `interrupted` says so at its top.
std::string report_html(const Options &options, const Corpus &corpus,
                        const std::vector<RunResult> &results, bool interrupted);

}  // namespace gpt

#endif
