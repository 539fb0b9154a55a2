// What the tests of the program share: arguments of a short run, and what a refusal looks like.
#ifndef TESTS_SAMPLES_PROGRAM_RUN_H
#define TESTS_SAMPLES_PROGRAM_RUN_H

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "tests/samples/child_program.h"

namespace gpt_test {

// Arguments of a run that ends in a moment, and any others behind them.
inline std::vector<std::string> small(const std::vector<std::string> &more) {
  const std::string text = test_directory() + "/text";
  if (!std::filesystem::exists(text)) write_text(text, some_text(6000));
  std::vector<std::string> all = {"--text",         text, "--out",     test_directory() + "/out",
                                  "--layers",       "1",  "--width",   "32",
                                  "--heads",        "2",  "--context", "16",
                                  "--batch",        "4",  "--steps",   "12",
                                  "--sample-bytes", "10"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

inline std::vector<std::string> replaced(std::vector<std::string> all, const std::string &option,
                                         const std::string &value) {
  *(std::find(all.begin(), all.end(), option) + 1) = value;
  return all;
}

inline void expect_refused(const Finished &finished, const std::vector<std::string> &parts) {
  EXPECT_EQ(finished.exit_code, 2) << finished.errors;
  for (const std::string &part : parts) EXPECT_THAT(finished.errors, testing::HasSubstr(part));
  for (const char *part : {"expected:", "found:", "remedy:"}) {
    EXPECT_THAT(finished.errors, testing::HasSubstr(part));
  }
  EXPECT_FALSE(std::filesystem::exists(test_directory() + "/out")) << "something was written";
}

}  // namespace gpt_test

#endif
