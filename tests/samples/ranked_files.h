// What runs of several ranks leave behind, to be compared, and their configurations.
#ifndef TESTS_SAMPLES_RANKED_FILES_H
#define TESTS_SAMPLES_RANKED_FILES_H

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/samples/child_program.h"

namespace gpt_test {

// In the error of a rank that others left.
inline constexpr const char *kIsLost = "expected: every rank to take part until the end";

// An octavo.toml with this engine, and `more` behind it.
inline std::string config(const std::string &engine, const std::string &more = {}) {
  const std::string path = test_directory() + "/" + engine + ".toml";
  write_text(path, "[distributed]\nengine = \"" + engine + "\"\n" + more);
  return path;
}

// Every number of metrics.jsonl but the speed.
inline std::vector<nlohmann::json> steps(const std::string &out) {
  std::vector<nlohmann::json> all;
  std::istringstream lines(read_text(out + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    all.push_back(nlohmann::json::parse(line));
    all.back().erase("tokens_per_s");
  }
  return all;
}

// Files by their names below the directory, but the locks, which name a process.
inline std::map<std::string, std::string> files(const std::string &directory) {
  std::map<std::string, std::string> all;
  for (const auto &entry : std::filesystem::recursive_directory_iterator(directory))
    if (entry.is_regular_file() && entry.path().filename() != "lock")
      all[std::filesystem::relative(entry.path(), directory).string()] =
          read_text(entry.path().string());
  return all;
}

}  // namespace gpt_test

#endif
