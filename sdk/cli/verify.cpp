// octavo plugin verify: what every backend must pass, on one plugin.
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "common.h"
#include "octavo/hpp/text.hpp"
#include "sdk/src/base/failure.h"
#include "sdk/src/file/privilege_file.h"
#include "sdk/verify/kernels/checks.h"
#include "sdk/verify/kernels/suite.h"
#include "sdk/verify/results.h"
#include "sdk/verify/suite.h"

namespace octavo::cli {
namespace {

struct Verify {
  Request request;
  conformance::Settings settings;
  std::string target, junit, report;
  bool json = false, list = false;
};

bool write(const std::string &path, const std::string &text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) say_error("error: %s: cannot be written\n", path.c_str());
  return static_cast<bool>(file);
}

void print_checks() {
  for (const conformance::Check &check : conformance::checks())
    say("%-18s %s (%s)\n", check.name, check.meaning, check.clauses);
  for (const conformance::kernels::Check &check : conformance::kernels::checks())
    say("%-27s %s (%s)\n", check.name, check.meaning, check.clauses);
}

bool is_check(const std::string &name) {
  const auto all = conformance::kernels::checks();
  return conformance::find_check(name) != nullptr ||
         std::any_of(all.begin(), all.end(), [&](const auto &check) { return name == check.name; });
}

// What the manifest of this name states; a plugin may have kernels and a backend.
struct Offer {
  std::optional<conformance::kernels::Plugin> kernels;
  std::vector<std::string> layer_over;  // kinds of devices
  bool has_backend = true;
};
Offer offer_of(const Settings &settings, const std::string &name) {
  Offer offer;
  nlohmann::json all;
  try {
    all = nlohmann::json::parse(list_json(settings));
  } catch (const Failure &) {
    return offer;  // the first check says why
  }
  for (const nlohmann::json &one : all.at("plugins")) {
    if (one.value("name", "") != name || one.contains("shadowed_by")) continue;
    if (one.contains("layer_over")) offer.layer_over = one.at("layer_over");
    if (!one.contains("library") || (!one.contains("kernels") && offer.layer_over.empty())) break;
    offer.kernels.emplace().library = one.at("library");
    if (one.contains("kernels")) offer.kernels->device_type = one.at("kernels").at("device_type");
    const nlohmann::json interfaces =
        one.value(nlohmann::json::json_pointer("/provides/interfaces"), nlohmann::json::array());
    offer.has_backend =
        std::find(interfaces.begin(), interfaces.end(), OCTAVO_BACKEND_ID) != interfaces.end();
    break;
  }
  return offer;
}

// A layer is checked on the kernels below, under the one backend that needs nothing else.
void check_kernels(const Verify &verify, Offer offer,
                   const std::function<void(const conformance::Record &)> &done) {
  if (offer.layer_over.empty()) {
    conformance::kernels::run_suite(verify.settings, *offer.kernels, done);
    return;
  }
  Request below = verify.request;
  below.set("fp8.backend=\"reference\"");
  if (std::find(offer.layer_over.begin(), offer.layer_over.end(), "cpu") == offer.layer_over.end())
    below.set_default("device.kind=\"" + offer.layer_over.front() + "\"");
  Request both = below;
  both.set("device.layers=[\"" + verify.settings.backend + "\"]");
  both.settings().with_desc(nullptr, [&](const octavo_open_desc &on_it) {
    below.settings().with_desc(nullptr, [&](const octavo_open_desc &on_those) {
      offer.kernels->run = &on_it;
      offer.kernels->below = &on_those;
      conformance::kernels::run_suite(verify.settings, *offer.kernels, done);
    });
  });
}

int run(Verify &verify) {
  if (verify.list) {
    print_checks();
    return kOk;
  }
  if (verify.target.empty()) throw CLI::RequiredError("verify: NAME or a path");
  const octavo_str version = octavo_version();
  conformance::Results results;
  results.kit = "octavo-verify " + std::string(view(version));
  results.backend = verify.settings.backend = plugin_of(verify.target);
  results.settings = verify.request.assignments();
  verify.request.set("mixed_precision=\"fp8\"");
  verify.request.set("fp8.backend=\"" + results.backend + "\"");
  // Each check has a process of its own: without the helper a crash shows where it happens.
  verify.request.set_default("plugins.probe=never");
  const Settings settings = verify.request.settings();
  const Offer offer = offer_of(settings, results.backend);
  results.is_kernels = !offer.has_backend;
  settings.with_desc(nullptr, [&](const octavo_open_desc &desc) {
    verify.settings.open = desc;
    const auto done = [&](const conformance::Record &record) {
      results.records.push_back(record);
      if (verify.json) return;
      print_line(conformance::line_of(record).c_str());
      std::fflush(stdout);
    };
    if (offer.kernels) check_kernels(verify, offer, done);
    if (offer.has_backend) conformance::run_suite(verify.settings, done);
  });
  const std::string json = conformance::json_of(results);
  print_line(
      (verify.json ? json.substr(0, json.size() - 1) : conformance::summary_of(results)).c_str());
  const conformance::Counts counts = conformance::count(results);
  bool written = verify.junit.empty() || write(verify.junit, conformance::junit_of(results));
  if (!verify.report.empty()) {
    written = write(verify.report, json) && written;
    (verify.json ? say_error : say)(
        "\nFor the manifest, with %s published:\n[conformance]\nkit = \"%s\"\nlevel = \"%s\"\n"
        "report_sha256 = \"%s\"\n",
        verify.report.c_str(), results.kit.c_str(), conformance::summary_of(results).c_str(),
        sha256_of(json).c_str());
  }
  if (!written) return kInternal;
  return counts.failed == 0 && counts.passed > 0 ? kOk : kRefused;
}

}  // namespace

void add_verify(CLI::App &plugin, int &exit) {
  CLI::App *command = plugin.add_subcommand(
      "verify",
      "Check that a backend keeps the contract, on the CPU or with --set device.kind=cuda on a "
      "GPU, or that kernels do, on their own device");
  auto v = std::make_shared<Verify>();
  command->add_option("plugin", v->target, "a plugin's name, its library or its manifest");
  v->request.add_plugin_options(*command);
  command->add_option("--only", v->settings.only, "run only this check; may be given several times")
      ->check([](const std::string &name) {
        return is_check(name) ? std::string()
                              : "there is no check '" + name + "'; --list shows all";
      });
  command->add_option("--seed", v->settings.seed, "other data and another call order")
      ->check(problem_of_seed);
  command->add_option("--timeout", v->settings.timeout, "seconds that one check may take")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--in-process", v->settings.in_process,
                    "run the checks in this process, for a debugger; a crash ends it");
  command->add_flag("--json", v->json, "print JSON");
  command->add_option("--junit", v->junit, "also write JUnit's XML to this file");
  command->add_option("--report", v->report,
                      "also write JSON to this file, and print its hash for the manifest");
  command->add_flag("--list", v->list, "print every check with its meaning and its clauses");
  command->footer(
      "A skipped check does not apply to the plugin; what kernels do not offer is listed. Exit "
      "codes: 0 nothing failed; 1 a check "
      "failed, or none was run");
  command->callback([v, &exit] { exit = run(*v); });
}

}  // namespace octavo::cli
