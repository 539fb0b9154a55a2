// octavo report: what programs logged, as a table and as the page that train_gpt makes.
#include "common.h"
#include "octavo/hpp/regular_file.hpp"
#include "sdk/cli/report/data.h"
#include "sdk/cli/text_layout.h"
#include "sdk/cli/toml_writer.h"
#include "sdk/page/run_page.h"
#include "sdk/src/base/failure.h"

namespace octavo::cli {
namespace {

using report::Run;

struct Column {
  const char *title, *key;
  int digits = 0;  // of a number
};
constexpr Column kColumns[] = {
    {"run", "name"},
    {"backend", "backend"},
    {"recipe", "recipe"},
    {"steps", "steps"},
    {"train loss", "train_loss", 4},
    {"validation", "validation_loss", 4},
    {"to fp32 %", "to_fp32_percent", 2},
    {"tokens/s", "tokens_per_s"},
};

std::string shown(const report::Json &value, int digits) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number()) return "-";
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value.get<double>());
  return text;
}

// Null: the run has no such value. The differences are of the loss that all runs have.
report::Json reported(const std::vector<Run> &runs) {
  report::Json all = report::Json::array(), base;
  std::string loss = "validation_loss";
  for (const Run &run : runs) {
    const auto text = [&](const char *key) {
      const auto found = run.texts.find(key);
      return found == run.texts.end() ? report::Json() : report::Json(found->second);
    };
    const report::Ends ends = report::ends_of(run);
    all.push_back({{"name", run.name},
                   {"backend", text("backend")},
                   {"recipe", text("recipe")},
                   {"steps", run.steps.empty() ? 0 : run.steps.rbegin()->first},
                   {"train_loss", ends.train},
                   {"validation_loss", ends.validation},
                   {"to_fp32_percent", report::Json()},
                   {"tokens_per_s", ends.tokens_per_s}});
    if (!ends.validation.is_number()) loss = "train_loss";
  }
  for (const report::Json &one : all)
    if (one["name"] == "fp32") base = one[loss];
  for (report::Json &one : all)
    if (base.is_number() && one[loss].is_number())
      one["to_fp32_percent"] = (one[loss].get<double>() / base.get<double>() - 1) * 100;
  return all;
}

std::vector<std::vector<std::string>> table_of(const report::Json &runs) {
  std::vector<std::vector<std::string>> rows(1);
  for (const Column &column : kColumns) rows[0].push_back(column.title);
  for (const report::Json &run : runs) {
    rows.emplace_back();
    for (const Column &column : kColumns)
      rows.back().push_back(shown(run[column.key], column.digits));
  }
  return rows;
}

void print(const std::vector<std::vector<std::string>> &rows) {
  std::vector<size_t> widths(rows[0].size());
  for (const auto &row : rows)
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], cli::columns_of(row[i]));
  for (const auto &row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - cli::columns_of(row[i]), ' ');
      line += (i == 0 ? "" : "  ") + (i < 3 ? row[i] + space : space + row[i]);
    }
    TextLayout().line(line);
  }
}

// Whether a page of an earlier report has this name.
bool is_older_page(const std::string &path) {
  RegularFile file(path);
  std::string begin(4096, '\0');
  if (!file.is_open()) return false;
  begin.resize(file.read_at(0, begin.data(), begin.size()).value_or(0));
  return is_run_page(begin);
}

}  // namespace

void add_report(CLI::App &app, int &exit) {
  auto *command = app.add_subcommand(
      "report",
      "Create a table and an HTML page from training logs: losses, speeds, scales, casts");
  const auto paths = std::make_shared<std::vector<std::string>>();
  const auto out = std::make_shared<std::string>("report.html");
  command
      ->add_option("LOGS", *paths,
                   "metrics.jsonl, a Trainer's trainer_state.json, a CSV with a column step, or "
                   "directories of them")
      ->required()
      ->check(problem_of_empty);
  const auto force = std::make_shared<bool>(false);
  command->add_option("--output,-o", *out, "the page; an older page of that name is replaced")
      ->check(problem_of_empty)
      ->capture_default_str();
  command->add_flag("--force", *force, "replace any file of that name");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print the table as JSON");
  command->callback([&exit, paths, out, force, json] {
    try {
      std::vector<Run> runs;
      for (const std::string &path : *paths) report::read_log(path, runs);
      write_file(*out, run_page(report::page_data(runs)), *force || is_older_page(*out));
      const report::Json all = reported(runs);
      exit = kOk;
      if (*json) return put_json(report::Json{{"page", *out}, {"runs", all}});
      print(table_of(all));
      TextLayout().line();
      TextLayout().line("The page: " + *out);
    } catch (const Failure &f) {
      exit = failed(f);
    }
  });
}

}  // namespace octavo::cli
