// octavo: shows and checks configurations, plugins and the machine. Each command is one file in
// this folder.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <sstream>

#include "common.h"
#include "sdk/src/base/text.h"

namespace {

// Output that nobody could read, such as that to a full disk, is a failure.
int finished(int exit) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit;
  octavo::cli::say_error("error: standard output cannot be written: %s\n",
                         errno == 0 ? "an earlier write failed" : std::strerror(errno));
  return octavo::cli::kInternal;
}

// Not every allocation of the libraries is in a try block, and their initialisers ask for memory
// before main; no initialiser of any library runs before this.
void end_without_memory() {
  std::set_new_handler([] {
    std::fputs("error: out of memory\n", stderr);
    std::_Exit(octavo::cli::kInternal);
  });
}
[[gnu::section(".preinit_array"),
  gnu::used]] void (*before_all_initialisers)() = end_without_memory;

// A misspelt command, which CLI11 takes for a missing one.
bool is_unknown(const CLI::App &app, const char *word) {
  if (word == nullptr || *word == '-') return false;
  for (const CLI::App *command : app.get_subcommands(nullptr))
    if (command->get_name() == word) return false;
  return true;
}

}  // namespace

int main(int argc, char **argv) {
  CLI::App app{"octavo: FP8 training for existing frameworks", "octavo"};
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done; 1 nothing that the configuration allows can run here; 2 wrong arguments "
      "or configuration; 3 another failure; 4 of doctor: something runs, but not in FP8");
  int exit = octavo::cli::kOk;
  octavo::cli::add_list(app, exit);
  octavo::cli::add_explain(app, exit);
  octavo::cli::add_doctor(app, exit);
  octavo::cli::add_env(app, exit);
  octavo::cli::add_allow(app, exit);
  octavo::cli::add_config(app, exit);
  octavo::cli::add_lock(app, exit);
  octavo::cli::add_manifest(app, exit);
  octavo::cli::add_new(app, exit);
  octavo::cli::add_probe(app, exit);
  octavo::cli::add_import(app, exit);
  octavo::cli::add_init(app, exit);
  octavo::cli::add_try(app, exit);
  octavo::cli::add_estimate(app, exit);
  octavo::cli::add_advise(app, exit);
  octavo::cli::add_plan(app, exit);
  octavo::cli::add_report(app, exit);
  octavo::cli::add_run(app, exit);
  octavo::cli::add_verify(app, exit);
  octavo::cli::add_checkpoint(app, exit);
  octavo::cli::add_check_elf(app, exit);
  octavo::cli::add_completion(app, exit);
  octavo::cli::add_man(app, exit);
  octavo::cli::add_version(app, exit);
  app.set_version_flag("--version", octavo::cli::versions());
  if (is_unknown(app, argc > 1 ? argv[1] : nullptr)) {
    std::vector<std::string> known;
    for (const CLI::App *command : app.get_subcommands(nullptr))
      known.push_back(command->get_name());
    const std::string near = octavo::nearest(argv[1], known);
    octavo::cli::say_error(
        "error: unknown command \"%s\"; %s%s%soctavo --help lists the commands\n", argv[1],
        near.empty() ? "" : "did you mean \"", near.c_str(), near.empty() ? "" : "\"? ");
    return octavo::cli::kWrongInput;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &e) {
    std::ostringstream out, err;
    const bool is_help = app.exit(e, out, err) == 0;
    octavo::cli::say("%s", out.str().c_str());
    octavo::cli::say_error("%s", err.str().c_str());
    return finished(is_help ? octavo::cli::kOk : octavo::cli::kWrongInput);
  } catch (const std::exception &e) {
    octavo::cli::say_error("error: %s\n", e.what());
    return octavo::cli::kInternal;
  }
  return finished(exit);
}
