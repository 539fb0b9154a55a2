// octavo estimate: the memory that a model needs, by what the backends themselves describe.
#include <cstdio>
#include <memory>

#include "common.h"
#include "sdk/cli/estimate/ledger.h"
#include "sdk/cli/estimate/print.h"
#include "sdk/cli/estimate/sizes.h"
#include "sdk/cli/page.h"
#include "sdk/src/base/failure.h"

namespace octavo::cli {
namespace {

struct Estimate {
  Request request;
  std::string model;
  std::vector<std::string> backends;
  uint64_t batch = 0, sequence = 0;
  bool json = false;
};

std::vector<estimate::Column> columns_of(const Estimate &e, const estimate::Shapes &shapes,
                                         uint64_t rows) {
  std::vector<estimate::Column> all = {estimate::host_column("fp32", shapes, rows, false),
                                       estimate::host_column("bf16", shapes, rows, true)};
  std::vector<std::string> backends = e.backends;
  if (backends.empty()) backends = estimate::usual_backends();
  for (const std::string &text : backends)
    all.push_back(
        estimate::backend_column(e.request.settings(), estimate::parse_named(text), shapes, rows));
  return all;
}

void print_json(const Estimate &e, const estimate::Shapes &shapes, const estimate::Sizes &sizes,
                const std::vector<estimate::Column> &columns) {
  estimate::Json j = {{"octavo", octavo::version()}, {"model", e.model},
                      {"kind", shapes.kind},         {"parameters", sizes.parameters},
                      {"linears", sizes.linears},    {"parameters_of_linears", sizes.in_linears},
                      {"rows", e.batch * e.sequence}};
  j["columns"] = estimate::Json::array();
  for (const estimate::Column &c : columns) {
    estimate::Json one = {{"name", c.name}};
    if (!c.refused.empty()) {
      one["refused"] = c.refused;
    } else {
      one["linears_in_fp8"] = c.in_fp8;
      for (size_t i = 0; i < estimate::kParts; ++i)
        one["bytes"][estimate::kPartNames[i]] = c.bytes[i];
      one["total"] = c.total();
    }
    j["columns"].push_back(one);
  }
  put_json(j);
}

void print_estimate(const Estimate &e, const estimate::Shapes &shapes, const estimate::Sizes &sizes,
                    const std::vector<estimate::Column> &columns) {
  const Page page;
  page.row("model", concat(e.model, " (", shapes.kind, "): ", sizes.parameters, " parameters, ",
                           sizes.in_linears, " of them in ", sizes.linears, " linears"));
  if (e.batch > 0)
    page.row("batch", concat(e.batch, e.batch == 1 ? " sequence of " : " sequences of ", e.sequence,
                             ": ", e.batch * e.sequence,
                             " rows; saved: what linears keep from forward to backward"));
  page.line();
  estimate::print_table(columns, e.batch > 0);
  page.line();
  estimate::print_bars(columns);
  for (const estimate::Column &c : columns)
    if (!c.refused.empty()) page.row("refused", c.name + ": " + c.refused);
}

int run_estimate(const Estimate &e) {
  try {
    const estimate::Shapes shapes = estimate::read_shapes(e.model);
    const uint64_t rows = e.batch * e.sequence;
    const estimate::Sizes sizes = estimate::sizes_of(e.model, shapes, rows);
    const std::vector<estimate::Column> columns = columns_of(e, shapes, rows);
    if (e.json)
      print_json(e, shapes, sizes, columns);
    else
      print_estimate(e, shapes, sizes, columns);
    for (const estimate::Column &c : columns)
      if (!c.refused.empty() && !e.backends.empty()) return kRefused;
  } catch (const Failure &f) {
    return failed(f);
  }
  return kOk;
}

}  // namespace

void add_estimate(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand(
      "estimate", "Show the memory that training a model needs, in fp32, in bf16 and by backends");
  auto e = std::make_shared<Estimate>();
  command
      ->add_option("model", e->model,
                   "a config.json of Hugging Face, or a shapes file (docs/estimate.md)")
      ->required()
      ->check(problem_of_empty);
  e->request.add_config_options(*command);
  command
      ->add_option("--backend", e->backends,
                   "this backend instead of te and the levels of msamp, as in "
                   "msamp:opt_level=O3; may be given several times")
      ->check(problem_of_empty)
      ->allow_extra_args(false);
  CLI::Option *batch =
      command->add_option("--batch", e->batch, "sequences of a step; adds what linears save")
          ->check(CLI::Range(1, 1 << 20));
  CLI::Option *sequence =
      command->add_option("--sequence", e->sequence, "tokens of a sequence, with --batch")
          ->check(CLI::Range(1, 1 << 24))
          ->needs(batch);
  batch->needs(sequence);
  command->add_flag("--json", e->json, "print JSON");
  command->footer(
      "Exit codes: 0 done; 1 a backend that --backend names does not run here; 2 wrong arguments, "
      "model or configuration");
  command->callback([e, &exit] { exit = run_estimate(*e); });
}

}  // namespace octavo::cli
