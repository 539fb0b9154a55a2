// octavo report: what programs logged, as a table and as the page that train_gpt makes.
#include "common.h"
#include "sdk/cli/page.h"
#include "sdk/cli/report/data.h"
#include "sdk/cli/written.h"
#include "sdk/page/run_page.h"
#include "sdk/src/base/failure.h"

namespace octavo::cli {
namespace {

using report::Run;

std::string number(const report::Json &value, int digits) {
  if (!value.is_number()) return "-";
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value.get<double>());
  return text;
}

// The differences are of the loss that all runs have.
std::vector<std::vector<std::string>> table_of(const std::vector<Run> &runs) {
  std::vector<std::vector<std::string>> rows = {
      {"run", "backend", "recipe", "steps", "train loss", "validation", "to fp32 %", "tokens/s"}};
  std::vector<report::Ends> ends;
  bool by_validation = true;
  for (const Run &run : runs) {
    ends.push_back(report::ends_of(run));
    by_validation &= ends.back().validation.is_number();
  }
  const auto loss = [&](size_t i) -> const report::Json & {
    return by_validation ? ends[i].validation : ends[i].train;
  };
  report::Json base;
  for (size_t i = 0; i < runs.size(); ++i)
    if (runs[i].name == "fp32") base = loss(i);
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto text = [&](const char *key) {
      const auto found = runs[i].texts.find(key);
      return found == runs[i].texts.end() ? std::string("-") : found->second;
    };
    report::Json difference;
    if (base.is_number() && loss(i).is_number())
      difference = (loss(i).get<double>() / base.get<double>() - 1) * 100;
    rows.push_back({runs[i].name, text("backend"), text("recipe"),
                    std::to_string(runs[i].steps.empty() ? 0 : runs[i].steps.rbegin()->first),
                    number(ends[i].train, 4), number(ends[i].validation, 4), number(difference, 2),
                    number(ends[i].tokens_per_s, 0)});
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
    Page().line(line);
  }
}

}  // namespace

void add_report(CLI::App &app, int &exit) {
  auto *command = app.add_subcommand(
      "report",
      "Make a table and a page with curves of what programs logged: losses, speeds, "
      "scales, casts");
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
  command->callback([&exit, paths, out, force] {
    try {
      std::vector<Run> runs;
      for (const std::string &path : *paths) report::read_log(path, runs);
      write_file(*out, run_page(report::page_data(runs)), *force || is_run_page(*out));
      print(table_of(runs));
      Page().line();
      Page().line("The page: " + *out);
      exit = kOk;
    } catch (const Failure &f) {
      exit = failed(f);
    }
  });
}

}  // namespace octavo::cli
