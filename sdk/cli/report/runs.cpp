// A value that is not finite is left out: null in a chart.
#include "sdk/cli/report/runs.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/json.h"
#include "sdk/src/base/text.h"
#include "sdk/src/file/privilege_file.h"

namespace octavo::cli::report {
namespace {

namespace fs = std::filesystem;

constexpr const char *kFiles[] = {"metrics.jsonl", "trainer_state.json", "metrics.csv"};
constexpr const char *kTexts[] = {"backend", "recipe", "report", "sample"};
constexpr const char *kDomain = "octavo.report";
constexpr size_t kMostBytes = size_t{1} << 30;
constexpr const char *kRemedy =
    "; give lines of JSON with \"step\", the trainer_state.json of a Trainer, or a CSV with a "
    "column \"step\"";

[[noreturn]] void fail(const std::string &where, const std::string &expected,
                       const std::string &found) {
  throw Failure(OCTAVO_INVALID, kDomain, where, ": expected ", expected, ", found ", found,
                kRemedy);
}

Run &run_of(std::vector<Run> &runs, const std::string &name) {
  for (Run &run : runs)
    if (run.name == name) return run;
  runs.push_back({name, {}, {}});
  return runs.back();
}

// The numbers of an object, those of objects in it by "outer/inner".
void flatten(const Json &object, const std::string &prefix, std::map<std::string, double> &to) {
  for (const auto &[key, value] : object.items()) {
    if (value.is_object()) flatten(value, prefix + key + "/", to);
    if (value.is_boolean()) to[prefix + key] = value.get<bool>() ? 1.0 : 0.0;
    if (value.is_number() && std::isfinite(value.get<double>()))
      to[prefix + key] = value.get<double>();
  }
}

// "octavo/amax/x/layer", as octavo.telemetry names the same number.
std::map<std::string, double> cast_of(const Json &line) {
  const std::string tensor =
      line["operand"].get<std::string>() + "/" + line["tensor"].get<std::string>();
  std::map<std::string, double> numbers, named;
  flatten(line, "", numbers);
  for (const auto &[key, value] : numbers)
    if (key != "step") named["octavo/" + key + "/" + tensor] = value;
  return named;
}

bool has_text(const Json &line, const char *key) {
  return line.contains(key) && line[key].is_string();
}

void add(const Json &line, const std::string &own_name, const std::string &where,
         std::vector<Run> &runs) {
  if (!line.is_object()) fail(where, "an object", line.type_name());
  if (line.contains("run") && !line["run"].is_string())
    fail(where, "a text as \"run\"", line["run"].dump());
  Run &run = run_of(runs, line.contains("run") ? line["run"].get<std::string>() : own_name);
  for (const char *key : kTexts)
    if (has_text(line, key)) run.texts[key] = line[key];
  if (!line.contains("step")) return;
  if (!line["step"].is_number() || line["step"].get<double>() < 0 ||
      line["step"].get<double>() > 9e15)
    fail(where, "a number of steps as \"step\"", line["step"].dump());
  std::map<std::string, double> numbers;
  if (has_text(line, "operand") && has_text(line, "tensor"))
    numbers = cast_of(line);
  else
    flatten(line, "", numbers);
  numbers.erase("step");
  run.steps[static_cast<int64_t>(line["step"].get<double>())].merge(numbers);
}

std::vector<std::string> fields_of(const std::string &line) {
  std::vector<std::string> fields = {""};
  bool is_quoted = false;
  for (const char c : line) {
    if (c == '"') {
      is_quoted = !is_quoted;
    } else if (c == ',' && !is_quoted) {
      fields.emplace_back();
    } else if (c != '\r') {
      fields.back() += c;
    }
  }
  return fields;
}

void read_csv(std::istream &in, const std::string &name, const std::string &path,
              std::vector<Run> &runs) {
  std::vector<std::string> names;
  size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    const std::string where = path + ":" + std::to_string(++number);
    if (line.empty() || line == "\r") continue;
    const std::vector<std::string> fields = fields_of(line);
    if (names.empty()) {
      names = fields;
      if (std::find(names.begin(), names.end(), "step") == names.end())
        fail(where, "a column \"step\"", enumerate(names));
      continue;
    }
    if (fields.size() != names.size())
      fail(where, std::to_string(names.size()) + " fields", std::to_string(fields.size()));
    Json object = Json::object();
    for (size_t i = 0; i < fields.size(); ++i) {
      char *end = nullptr;
      const double value = std::strtod(fields[i].c_str(), &end);
      if (!fields[i].empty() && *end == '\0') object[names[i]] = value;
    }
    add(object, name, where, runs);
  }
}

void read_lines(std::istream &in, const std::string &name, const std::string &path,
                std::vector<Run> &runs) {
  size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    const std::string where = path + ":" + std::to_string(++number);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    // A program that writes now may be in the middle of its last line.
    if (in.eof() && !Json::accept(line)) break;
    const Json object = parse_json<Json>(line);
    if (object.is_discarded()) fail(where, "an object of JSON", "\"" + line.substr(0, 60) + "\"");
    add(object, name, where, runs);
  }
}

void read_state(const std::string &text, const std::string &name, const std::string &path,
                std::vector<Run> &runs) {
  const Json state = parse_json<Json>(text);
  if (!state.is_object() || !state.contains("log_history") || !state["log_history"].is_array())
    fail(path, "an object with the list \"log_history\"", "another file");
  for (const Json &line : state["log_history"]) add(line, name, path + ": log_history", runs);
}

// The file, and the name of runs without one: that of the folder.
fs::path file_of(const fs::path &path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  for (const char *name : kFiles)
    if (fs::exists(path / name, error)) return path / name;
  fail(path.string(), enumerate({kFiles[0], kFiles[1], kFiles[2]}) + " in it", "none of them");
}

}  // namespace

void read_log(const std::string &given, std::vector<Run> &all) {
  const fs::path path = file_of(given);
  std::istringstream in(CheckedFile(path.string(), kDomain).read(kMostBytes));
  const std::string name = fs::absolute(path).parent_path().filename().string();
  std::vector<Run> runs;
  if (path.extension() == ".csv")
    read_csv(in, name, path.string(), runs);
  else if (path.extension() == ".json")
    read_state(in.str(), name, path.string(), runs);
  else
    read_lines(in, name, path.string(), runs);
  if (std::all_of(runs.begin(), runs.end(), [](const Run &run) { return run.steps.empty(); }))
    fail(path.string(), "values of steps", "none");
  for (Run &run : runs) {
    const auto has_name = [&](const Run &other) { return other.name == run.name; };
    if (std::any_of(all.begin(), all.end(), has_name)) run.name = given + ": " + run.name;
    all.push_back(std::move(run));
  }
}

}  // namespace octavo::cli::report
