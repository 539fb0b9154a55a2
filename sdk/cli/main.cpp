// octavo: shows and checks configurations, plugins and the machine. Each command is one file in
// this folder.
#include "common.h"

int main(int argc, char **argv) {
  CLI::App app{"octavo: FP8 training for existing frameworks", "octavo"};
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done; 1 nothing that the configuration allows can run here; 2 wrong arguments "
      "or configuration; 3 another failure");
  int exit = octavo::cli::kOk;
  octavo::cli::add_list(app, exit);
  octavo::cli::add_explain(app, exit);
  octavo::cli::add_config(app, exit);
  octavo::cli::add_lock(app, exit);
  octavo::cli::add_manifest(app, exit);
  octavo::cli::add_new(app, exit);
  octavo::cli::add_probe(app, exit);
  octavo::cli::add_try(app, exit);
  octavo::cli::add_verify(app, exit);
  octavo::cli::add_check_elf(app, exit);
  octavo::cli::add_version(app, exit);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &e) {
    return app.exit(e) == 0 ? octavo::cli::kOk : octavo::cli::kWrongInput;
  }
  return exit;
}
