// octavo plugin lock: writes octavo.lock next to the configuration file.
#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "common.h"

namespace octavo::cli {
namespace {

constexpr std::string_view kWrittenTo = "written to ";

void keep_line(void *ctx, octavo_str text) {
  static_cast<std::vector<std::string> *>(ctx)->emplace_back(text.data, text.size);
}

// The entries of a lock file that octavo_lock has just written, each value in quotes on a line.
std::vector<std::map<std::string, std::string>> entries_of(const std::string &path) {
  std::vector<std::map<std::string, std::string>> all;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line == "[[plugin]]") all.emplace_back();
    const size_t equals = line.find(" = \"");
    if (all.empty() || equals == std::string::npos) continue;
    const auto value = nlohmann::json::parse(line.substr(equals + 3), nullptr, false);
    if (value.is_string()) all.back()[line.substr(0, equals)] = value;
  }
  return all;
}

// The library prints what it locked; hashes of manifests and answers are in the file alone.
void print_locked_json(const std::vector<std::string> &lines) {
  std::string path;
  for (const std::string &line : lines)
    if (line.starts_with(kWrittenTo)) path = line.substr(kWrittenTo.size());
  nlohmann::json plugins = nlohmann::json::array();
  for (auto &entry : entries_of(path)) {
    const std::string line =
        entry["name"] + " " + entry["version"] + ", ABI " + entry["abi"] + ", " + entry["platform"];
    // Entries of other platforms stay in the file, and are not what was locked now.
    if (std::find(lines.begin(), lines.end(), line) != lines.end()) plugins.push_back(entry);
  }
  put_json(nlohmann::json{{"file", path}, {"plugins", plugins}});
}

}  // namespace

void add_lock(CLI::App &plugin, int &exit) {
  CLI::App *command =
      plugin.add_subcommand("lock",
                            "Write octavo.lock: version, hashes and answers of every "
                            "backend that the configuration names");
  auto request = std::make_shared<Request>();
  request->add_config_options(*command);
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print JSON");
  command->callback([request, json, &exit] {
    std::vector<std::string> lines;
    exit = exit_code(request->ask([&](const octavo_open_desc &d) {
      return *json ? octavo_lock(&d, keep_line, &lines)
                   : octavo_lock(&d, print_report_line, nullptr);
    }));
    if (*json && exit == kOk) print_locked_json(lines);
  });
}

}  // namespace octavo::cli
