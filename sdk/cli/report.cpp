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

// A row of the table; null: the run has no such value.
struct Reported {
  std::string name;
  report::Json backend, recipe;
  int64_t steps = 0;
  report::Ends ends;
  report::Json to_fp32_percent;
};

std::string number(const report::Json &value, int digits) {
  if (!value.is_number()) return "-";
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value.get<double>());
  return text;
}

std::string word(const report::Json &value) {
  return value.is_string() ? value.get<std::string>() : "-";
}

// The differences are of the loss that all runs have.
std::vector<Reported> reported(const std::vector<Run> &runs) {
  std::vector<Reported> all;
  bool by_validation = true;
  for (const Run &run : runs) {
    const auto text = [&](const char *key) {
      const auto found = run.texts.find(key);
      return found == run.texts.end() ? report::Json() : report::Json(found->second);
    };
    all.push_back({run.name, text("backend"), text("recipe"),
                   run.steps.empty() ? 0 : run.steps.rbegin()->first, report::ends_of(run),
                   report::Json()});
    by_validation &= all.back().ends.validation.is_number();
  }
  const auto loss = [&](const Reported &one) -> const report::Json & {
    return by_validation ? one.ends.validation : one.ends.train;
  };
  report::Json base;
  for (const Reported &one : all)
    if (one.name == "fp32") base = loss(one);
  for (Reported &one : all)
    if (base.is_number() && loss(one).is_number())
      one.to_fp32_percent = (loss(one).get<double>() / base.get<double>() - 1) * 100;
  return all;
}

std::vector<std::vector<std::string>> table_of(const std::vector<Reported> &all) {
  std::vector<std::vector<std::string>> rows = {
      {"run", "backend", "recipe", "steps", "train loss", "validation", "to fp32 %", "tokens/s"}};
  for (const Reported &one : all)
    rows.push_back({one.name, word(one.backend), word(one.recipe), std::to_string(one.steps),
                    number(one.ends.train, 4), number(one.ends.validation, 4),
                    number(one.to_fp32_percent, 2), number(one.ends.tokens_per_s, 0)});
  return rows;
}

void print_runs_json(const std::vector<Reported> &all, const std::string &page) {
  report::Json runs = report::Json::array();
  for (const Reported &one : all)
    runs.push_back({{"name", one.name},
                    {"backend", one.backend},
                    {"recipe", one.recipe},
                    {"steps", one.steps},
                    {"train_loss", one.ends.train},
                    {"validation_loss", one.ends.validation},
                    {"to_fp32_percent", one.to_fp32_percent},
                    {"tokens_per_s", one.ends.tokens_per_s}});
  put_json(report::Json{{"page", page}, {"runs", runs}});
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
      const std::vector<Reported> all = reported(runs);
      exit = kOk;
      if (*json) return print_runs_json(all, *out);
      print(table_of(all));
      TextLayout().line();
      TextLayout().line("The page: " + *out);
    } catch (const Failure &f) {
      exit = failed(f);
    }
  });
}

}  // namespace octavo::cli
