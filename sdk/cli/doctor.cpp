// octavo doctor: the machine, the plugins and what would run, on one page that ends with the first
// thing to fix.
#include "sdk/cli/doctor/doctor.h"

#include <cstdio>
#include <memory>

#include "common.h"

namespace octavo::cli {
namespace {

struct Doctor {
  Request request;
  std::string python;
  bool json = false, anonymous = false, retry = false;
};

int run_doctor(const Doctor &doctor) {
  octavo_status status = OCTAVO_OK;
  doctor::Json model = doctor::examine(doctor.request.settings(), doctor.python, &status);
  if (doctor.anonymous) model = doctor::anonymous(model);
  if (doctor.json)
    put_json(model);
  else
    (doctor.anonymous ? doctor::print_anonymous : doctor::print_page)(model);
  if (doctor.anonymous) return kOk;
  if (status != OCTAVO_OK) return exit_code(status);
  return model["runs"] == "fp8" ? kOk : kNotFp8;
}

}  // namespace

void add_doctor(CLI::App &app, int &exit) {
  CLI::App *command =
      app.add_subcommand("doctor", "Check this machine and show the first thing to fix");
  auto doctor = std::make_shared<Doctor>();
  doctor->request.add_config_options(*command);
  doctor->request.add_locked_option(*command);
  command
      ->add_option("--python", doctor->python,
                   "also ask this Python for its octavo and torch, as in --python python3")
      ->check(problem_of_empty);
  command->add_flag("--retry", doctor->retry,
                    "forget earlier results, and try every plugin again, refused ones too");
  command->add_flag("--anonymous", doctor->anonymous,
                    "print what a bug report needs, without your names, paths and keys");
  command->add_flag("--json", doctor->json, "print JSON");
  command->footer(
      "Exit codes: 0 FP8 runs, whatever the warnings; 1 nothing that the configuration allows "
      "runs; 2 wrong arguments or configuration; 3 another failure; 4 something runs, but not in "
      "FP8. With --anonymous always 0");
  command->callback([doctor, &exit] {
    if (doctor->retry) doctor->request.set("plugins.probe=always");
    exit = run_doctor(*doctor);
  });
}

}  // namespace octavo::cli
