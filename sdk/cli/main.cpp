// octavo: shows and checks configurations, plugins and the machine. Each command is one file in
// this folder.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <sstream>

#include "common.h"
#include "sdk/cli/help.h"
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

// The commands of earlier versions, and what does their work.
struct Moved {
  const char *from, *to;
};
constexpr Moved kMoved[] = {
    {"explain", "check"},
    {"config check", "check"},
    {"config --show-origin", "config show"},
    {"advise", "bench"},
    {"plan", "estimate, with --mesh"},
    {"import", "init --from"},
    {"probe", "doctor"},
    {"env", "doctor --anonymous"},
    {"version", "--version"},
    {"list", "plugin list"},
    {"new", "plugin new"},
    {"verify", "plugin verify"},
    {"try", "plugin try"},
    {"manifest", "plugin manifest"},
    {"check-elf", "plugin check-elf"},
    {"lock", "plugin lock"},
    {"allow", "plugin allow"},
};

int wrong_input(const std::string &text) {
  octavo::cli::say_error("error: %s\n", text.c_str());
  return octavo::cli::kWrongInput;
}

std::vector<std::string> names_below(const CLI::App &app) {
  std::vector<std::string> names;
  for (const CLI::App *command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return names;
}

// A word that names no command, which CLI11 would take for an argument; empty if all do.
std::string problem_of_command(const CLI::App &app, const std::vector<std::string> &words) {
  for (const Moved &m : kMoved)
    if ((words[0] == m.from || (words.size() > 1 && words[0] + " " + words[1] == m.from)))
      return octavo::concat("octavo ", m.from, " is now octavo ", m.to);
  const CLI::App *at = &app;
  for (size_t i = 0;; ++i) {
    const std::vector<std::string> known = names_below(*at);
    if (known.empty()) return {};
    if (i < words.size() && words[i].starts_with("-")) return {};
    const std::string path = octavo::cli::path_of(*at);
    if (i == words.size()) return path + ": expected a command: " + octavo::enumerate(known, "or");
    if (std::find(known.begin(), known.end(), words[i]) == known.end()) {
      const std::string near = octavo::nearest(words[i], known);
      return octavo::concat(at == &app ? "" : path + ": ", "unknown command \"", words[i], "\"; ",
                            near.empty() ? "" : "did you mean \"" + near + "\"? ", path,
                            " --help lists the commands");
    }
    at = at->get_subcommand(words[i]);
  }
}

const CLI::App &innermost(const CLI::App &app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : innermost(*parsed.front());
}

std::string problem_of_arguments(const CLI::App &app, const CLI::ParseError &e) {
  const CLI::App &command = innermost(app);
  const std::string path = octavo::cli::path_of(command);
  const std::vector<std::string> extra = command.remaining();
  if (dynamic_cast<const CLI::ExtrasError *>(&e) == nullptr || extra.empty())
    return path + ": " + e.what();
  const std::string &word = extra.front();
  if (!word.starts_with("-"))
    return path + ": unexpected argument \"" + word + "\"; " + path + " --help shows its arguments";
  std::vector<std::string> known;
  for (const CLI::Option *option : command.get_options())
    for (const std::string &name : option->get_lnames()) known.push_back("--" + name);
  const std::string near = octavo::nearest(word.substr(0, word.find('=')), known);
  return path + ": unknown option \"" + word + "\"; " +
         (near.empty() ? path + " --help lists the options" : "did you mean \"" + near + "\"?");
}

// `octavo help check` is `octavo check --help`, and no words are --help.
std::vector<std::string> words_of(int argc, char **argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty()) return {"--help"};
  if (words[0] == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  return words;
}

// --color stands anywhere, but among the arguments of another program.
std::string take_colour(std::vector<std::string> &words) {
  if (words[0] == "run") return {};
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (words[i] != "--color" && !words[i].starts_with("--color=")) continue;
    const bool is_apart = words[i] == "--color";
    const std::string value = !is_apart              ? words[i].substr(8)
                              : i + 1 < words.size() ? words[i + 1]
                                                     : "";
    if (value != "auto" && value != "always" && value != "never")
      return "--color: expected auto, always or never, found \"" + value + "\"";
    if (value != "auto") octavo::cli::set_colour(value == "always");
    const auto at = words.begin() + static_cast<std::ptrdiff_t>(i);
    words.erase(at, at + (is_apart ? 2 : 1));
    --i;
  }
  if (words.empty()) words.emplace_back("--help");
  return {};
}

}  // namespace

int main(int argc, char **argv) {
  CLI::App app{"octavo: FP8 training for existing frameworks", "octavo"};
  app.require_subcommand(1);
  int exit = octavo::cli::kOk;
  octavo::cli::add_init(app, exit);
  octavo::cli::add_doctor(app, exit);
  octavo::cli::add_check(app, exit);
  octavo::cli::add_config(app, exit);
  octavo::cli::add_estimate(app, exit);
  octavo::cli::add_bench(app, exit);
  octavo::cli::add_run(app, exit);
  octavo::cli::add_report(app, exit);
  octavo::cli::add_checkpoint(app, exit);
  octavo::cli::add_plugin(app, exit);
  octavo::cli::add_completion(app, exit);
  octavo::cli::add_man(app, exit);
  app.set_version_flag("-V,--version", octavo::cli::versions(), "print the versions");
  app.footer(
      "Exit codes: 0 done; 1 nothing that the configuration allows can run here; 2 wrong arguments "
      "or configuration; 3 another failure; 4 of doctor: something runs, but not in FP8");
  std::string colour;  // take_colour has read it
  app.add_option("--color", colour, "auto, always or never; with any command");
  octavo::cli::set_help(app);
  std::vector<std::string> words = words_of(argc, argv);
  if (const std::string problem = take_colour(words); !problem.empty()) return wrong_input(problem);
  if (const std::string problem = problem_of_command(app, words); !problem.empty())
    return wrong_input(problem);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError &e) {
    std::ostringstream out, err;
    if (app.exit(e, out, err) != 0) return finished(wrong_input(problem_of_arguments(app, e)));
    octavo::cli::say("%s", out.str().c_str());
    return finished(octavo::cli::kOk);
  } catch (const std::exception &e) {
    octavo::cli::say_error("error: %s\n", e.what());
    return octavo::cli::kInternal;
  }
  return finished(exit);
}
