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
  bool json = false;
};

int run_doctor(const Doctor &doctor) {
  octavo_status status = OCTAVO_OK;
  const doctor::Json model = doctor::examine(doctor.request.settings(), doctor.python, &status);
  if (doctor.json)
    put_json(model);
  else
    doctor::print_page(model);
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
  add_python_option(*command, doctor->python);
  command->add_flag("--json", doctor->json, "print JSON");
  command->footer(
      "Exit codes: 0 FP8 runs, whatever the warnings; 1 nothing that the configuration allows "
      "runs; 2 wrong arguments or configuration; 3 another failure; 4 something runs, but not in "
      "FP8");
  command->callback([doctor, &exit] { exit = run_doctor(*doctor); });
}

}  // namespace octavo::cli
