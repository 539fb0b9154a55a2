// octavo plugin try: a small model trained through a backend and in float32, and a host's own
// sizes.
#include <cstdio>
#include <memory>

#include "common.h"
#include "sdk/cli/training_check/shapes.h"
#include "sdk/cli/training_check/training.h"
#include "sdk/verify/apart.h"
#include "sdk/verify/in_flight.h"
#include "sdk/verify/report.h"

namespace octavo::cli {
namespace {

using Json = nlohmann::json;

struct Try {
  Request request;
  std::string target;
  std::vector<training_check::Shape> shapes;
  double seconds = 60;
  uint64_t seed = 1;
  bool as_json = false;
};

// The result of `body` in a process of its own. What ended that process is a failure, with the call
// in which it happened.
Json apart(const std::string &what, double seconds, const std::function<Json()> &body) {
  const conformance::Record record = conformance::run_apart(what, seconds, [&] {
    conformance::Record r;
    r.check = what;
    try {
      r.result = {conformance::Outcome::kPass,
                  body().dump(-1, ' ', true, Json::error_handler_t::replace)};
    } catch (const octavo::Error &failure) {
      // Without the call and its status, which open what().
      r.result = {conformance::Outcome::kFail, failure.what()};
      for (const octavo::Diagnostic &d : failure.diagnostics())
        if (d.severity == OCTAVO_SEVERITY_ERROR) r.result.detail = d.text;
    } catch (const std::exception &failure) {
      r.result = {conformance::Outcome::kFail, failure.what()};
    }
    return r;
  });
  if (record.result.outcome == conformance::Outcome::kPass)
    return Json::parse(record.result.detail);
  return {{"passed", false}, {"failures", {record.result.detail}}};
}

void print_training(const Json &t) {
  if (!t.contains("steps")) return;
  say("%s: %d of %d linears in FP8, %.0f %% of the weights; %s\nkernels: %s\n\n",
      t["backend"].get<std::string>().c_str(), t["layers_in_backend"].get<int>(),
      t["layers"].get<int>(), 100 * t["share_of_weights"].get<double>(),
      t["optimizer"].get<std::string>().c_str(), t["kernels"].get<std::string>().c_str());
  say("layer  weight      runs in   gradient to float32's: size, cosine\n");
  for (const Json &l : t["placements"]) {
    const std::string shape =
        std::to_string(l["rows"].get<int64_t>()) + " x " + std::to_string(l["cols"].get<int64_t>());
    const bool in = l["in_backend"].get<bool>();
    say("%-5s  %-10s  %-8s  %.3f  %.3f%s%s\n", l["name"].get<std::string>().c_str(), shape.c_str(),
        in ? "backend" : "host", l["gradient_size"].get<double>(),
        l["gradient_cosine"].get<double>(),
        in ? "" : "  refused: ", l["refusal"].get<std::string>().c_str());
  }
  say("outputs of the first batch differ by %.1f %% of their size, at most %.1f %% allowed\n\n",
      100 * t["output"]["distance"].get<double>(), 100 * t["output"]["allowed"].get<double>());
  say("step  float32 loss  backend's loss\n");
  for (const Json &l : t["losses"]) {
    const auto loss = [](const Json &value) {
      char text[32];
      std::snprintf(text, sizeof text, "%.6f", value.is_number() ? value.get<double>() : 0.0);
      return value.is_number() ? std::string(text) : value.get<std::string>();
    };
    say("%4d  %12s  %14s\n", l["step"].get<int>(), loss(l["float32"]).c_str(),
        loss(l["backend"]).c_str());
  }
  if (t["skipped_steps"].get<int>() > 0)
    say("%d steps were skipped: a cast met infinity or NaN\n", t["skipped_steps"].get<int>());
  say("\n");
}

void print_shape(const Json &s, const std::string &name) {
  if (s.contains("forward_seconds"))
    say("%s: forward %.3f ms, backward %.3f ms", name.c_str(),
        1000 * s["forward_seconds"].get<double>(), 1000 * s["backward_seconds"].get<double>());
  else
    say("%s: is not converted: %s", name.c_str(), s["refusal"].get<std::string>().c_str());
  for (const char *part : {"y", "dx", "dw"})
    if (s.contains(part) && s[part].is_number())
      say("%s %s %.1f %%", *part == 'y' ? ";" : ",", part, 100 * s[part].get<double>());
  say("\n");
}

void print_failures(const Json &result, const std::string &what) {
  for (const Json &failure : result["failures"])
    say("FAIL  %s: %s\n", what.c_str(), failure.get<std::string>().c_str());
}

std::string verdict(const Json &t) {
  char line[256];
  std::snprintf(line, sizeof line,
                "PASS  %s: after %d steps its loss is %.4f, within %.4f + %.4f: float32's and what "
                "its casts may add; both decreased",
                t["backend"].get<std::string>().c_str(), t["steps"].get<int>(),
                t["last_loss"]["backend"].get<double>(), t["last_loss"]["float32"].get<double>(),
                t["margin"].get<double>());
  return line;
}

int run(Try &all) {
  const std::string backend = plugin_of(all.target);
  all.request.set("mixed_precision=\"fp8\"");
  all.request.set("fp8.backend=\"" + backend + "\"");
  // The trial has a process of its own: without the helper a crash shows where it happens. And
  // layers that FP8 would not make faster are tried, too.
  all.request.set_default("plugins.probe=never");
  all.request.set_default("layers.min_gain=off");
  const octavo::Settings settings = all.request.settings();
  conformance::share_in_flight();
  conformance::adopt_orphans();
  Json result = {{"backend", backend}, {"settings", all.request.assignments()}};
  bool passed = true;
  if (all.shapes.empty()) {
    const Json training = apart("training", 2 * all.seconds + 60, [&] {
      return training_check::train(settings, all.seconds, all.seed);
    });
    passed = training["passed"].get<bool>();
    result["training"] = training;
    if (!all.as_json) print_training(training);
    if (!all.as_json) print_failures(training, backend);
    if (!all.as_json && passed) print_line(verdict(training).c_str());
  }
  for (const training_check::Shape &shape : all.shapes) {
    Json tried = apart(shape.name(), all.seconds,
                       [&] { return training_check::try_shape(settings, shape, all.seed); });
    if (!tried.contains("failures")) tried["failures"] = Json::array();
    const bool fits = tried["failures"].empty();
    passed = passed && fits;
    tried["m"] = shape.m, tried["n"] = shape.n, tried["k"] = shape.k;
    result["shapes"].push_back(tried);
    if (all.as_json) continue;
    if (fits || tried.contains("forward_seconds")) print_shape(tried, shape.name());
    print_failures(tried, shape.name());
    std::fflush(stdout);
  }
  result["passed"] = passed;
  if (all.as_json) put_json(result);
  return passed ? kOk : kRefused;
}

}  // namespace

void add_try(CLI::App &plugin, int &exit) {
  CLI::App *command = plugin.add_subcommand("try",
                                            "Train a small model through a backend and in float32, "
                                            "and compare; or test the matrix sizes of --shapes");
  auto all = std::make_shared<Try>();
  command->add_option("plugin", all->target, "a plugin's name, its library or its manifest")
      ->required();
  all->request.add_plugin_options(*command);
  command
      ->add_option("--seconds", all->seconds,
                   "the longest that the training may take; with "
                   "--shapes, of one size")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str();
  command
      ->add_option_function<std::vector<std::string>>(
          "--shapes",
          [all](const std::vector<std::string> &lists) {
            for (const std::string &list : lists) {
              std::string problem;
              const std::vector<training_check::Shape> more =
                  training_check::shapes_of(list, &problem);
              if (!problem.empty()) throw CLI::ValidationError("--shapes", problem);
              all->shapes.insert(all->shapes.end(), more.begin(), more.end());
            }
          },
          "M,N,K;M,N,K: run forward and backward of linears of these sizes instead of the "
          "training: x [M, K], weight [N, K]; may be given several times")
      ->allow_extra_args(false);
  command->add_option("--seed", all->seed, "other data and other first weights")
      ->check(problem_of_seed);
  command->add_flag("--json", all->as_json, "print JSON");
  command->footer(
      "Exit codes: 0 the loss stays within the stated margin of float32's and both decreased, or "
      "every size gave the product; 1 else");
  command->callback([all, &exit] { exit = run(*all); });
}

}  // namespace octavo::cli
