// An estimate for people: a table of 80 columns, and a bar for each way to train.
#pragma once

#include <string>
#include <vector>

#include "sdk/cli/estimate/ledger.h"

namespace octavo::cli::estimate {

// refused: in the place of the numbers of a column that has none.
void print_table(const std::vector<Column> &columns, bool with_saved,
                 const char *refused = "does not run here");
// "497,780,736"
std::string grouped(uint64_t number);
void print_bars(const std::vector<Column> &columns);

}  // namespace octavo::cli::estimate
