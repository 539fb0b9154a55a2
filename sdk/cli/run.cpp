// octavo run: starts a program of Accelerate or of the Trainer through the package octavo of
// python3. The wheel's own `octavo` asks the Python that it belongs to instead, and does not get
// here.
#include "common.h"

namespace octavo::cli {
namespace {

// Arguments as octavo/run.py takes them. The current directory is searched for modules, as by
// python3 -m.
constexpr const char *kScript = R"(
import importlib.util, sys
if importlib.util.find_spec("octavo") is None:
    print("error: octavo run: expected the package octavo in " + sys.executable + ", found none; install the wheel "
          "of octavo into it, or put its folder into PYTHONPATH", file=sys.stderr)
    sys.exit(3)
from octavo import run
sys.exit(run.main())
)";

}  // namespace

void add_run(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand("run",
                                         "Run an Accelerate or Trainer script, unchanged, with its "
                                         "FP8 by Octavo; --help lists options");
  command->set_help_flag();
  command->prefix_command();
  command->callback([command, &exit] {
    std::vector<std::string> words = command->remaining();
    words.insert(words.begin(), {"-c", kScript});
    exit = become_python(words, "octavo run needs python3 with the package octavo on PATH");
  });
}

}  // namespace octavo::cli
