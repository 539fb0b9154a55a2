// What a run of the suite found, as lines for people, as JSON and as JUnit's XML.
#pragma once

#include <string>
#include <vector>

#include "record.h"

namespace octavo::conformance {

struct Results {
  std::string backend;  // the plugin's id
  bool is_kernels = false;
  std::string kit;                    // "octavo-verify 1.0.0"
  std::vector<std::string> settings;  // "fp8.te.recipe=current"
  std::vector<Record> records;
};

struct Counts {
  int passed = 0, failed = 0, skipped = 0, sub_checks = 0;
};
Counts count(const Results &results);

// "pass  fence", "FAIL  fence: ..." or "skip  fence: ...", with further lines below a failure.
std::string line_of(const Record &record);
// "21 passed, 0 failed, 6 skipped; 153 sub-checks passed".
std::string summary_of(const Results &results);
// The clauses, outcomes and sub-checks; without times, so that equal runs give equal bytes.
std::string json_of(const Results &results);
std::string junit_of(const Results &results);

}  // namespace octavo::conformance
