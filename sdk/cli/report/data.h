// What runs logged, as the page of a training takes it.
#pragma once

#include "sdk/cli/report/runs.h"

namespace octavo::cli::report {

// The last value of each run that names agree on: train loss (mean of the last 20), validation
// loss, tokens a second. Null: it logged none.
struct Ends {
  Json train, validation, tokens_per_s;
};
Ends ends_of(const Run &run);

Json page_data(const std::vector<Run> &runs);

}  // namespace octavo::cli::report
