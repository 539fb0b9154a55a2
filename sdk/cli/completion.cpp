// octavo completion: scripts that complete commands and options in bash, zsh and fish.
#include <cstdio>

#include "common.h"
#include "sdk/cli/help.h"
#include "sdk/src/base/text.h"

namespace octavo::cli {
namespace {

// As one word of a shell. extra: characters that the shell's own syntax wants a backslash before.
std::string quoted_word(const std::string &text, const std::string &extra = {}) {
  std::string all = "'";
  for (const char c : text) {
    if (extra.find(c) != std::string::npos) all += '\\';
    all += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return all + "'";
}

// Calls use(name, option) for each name of each option.
template <typename Use>
void for_each_name(const CLI::App &command, const Use &use) {
  for (const CLI::Option *option : command.get_options())
    for (const std::string &name : names_of(*option)) use(name, *option);
}

// The cases, in bash and zsh, that note in a variable which command the words so far are.
void print_places(const CLI::App &program, const char *variable) {
  for_each_command(program, [&](const CLI::App &command) {
    const std::string path = quoted_word(words_after_octavo(command));
    if (&command != &program) say("      %s) %s=%s ;;\n", path.c_str(), variable, path.c_str());
  });
}

void print_bash(const CLI::App &program) {
  print_line(
      "# octavo in bash: source <(octavo completion bash)\n"
      "_octavo() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} path= commands= options= i\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    case \"${path:+$path }${COMP_WORDS[i]}\" in");
  print_places(program, "path");
  print_line("    esac\n  done\n  case $path in");
  for_each_command(program, [](const CLI::App &command) {
    std::string commands, options;
    const auto add = [](std::string &to, const std::string &word) {
      to += (to.empty() ? "" : " ") + word;
    };
    for (const CLI::App *below : command.get_subcommands(nullptr)) add(commands, below->get_name());
    for_each_name(command, [&](const std::string &name, auto &) { add(options, name); });
    say("    %s) commands=%s options=%s ;;\n", quoted_word(words_after_octavo(command)).c_str(),
        quoted_word(commands).c_str(), quoted_word(options).c_str());
  });
  print_line(
      "  esac\n"
      "  COMPREPLY=()\n"
      "  if [[ $word == -* ]]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n"
      "  else\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$word\"\n"
      "                             [[ -z $path ]] || compgen -f -- \"$word\")\n"
      "  fi\n"
      "}\n"
      "complete -o filenames -F _octavo octavo");
}

// $path is the shell's own there.
void print_zsh(const CLI::App &program) {
  print_line(
      "#compdef octavo\n"
      "# octavo in zsh: source <(octavo completion zsh), or a file _octavo in $fpath\n"
      "_octavo() {\n"
      "  local place= word\n"
      "  local -a commands options\n"
      "  for word in ${words[2,CURRENT-1]}; do\n"
      "    case \"${place:+$place }$word\" in");
  print_places(program, "place");
  print_line("    esac\n  done\n  case $place in");
  for_each_command(program, [](const CLI::App &command) {
    say("    %s)\n      commands=(", quoted_word(words_after_octavo(command)).c_str());
    for (const CLI::App *below : command.get_subcommands(nullptr))
      say("\n        %s", quoted_word(below->get_name() + ":" + below->get_description()).c_str());
    say(")\n      options=(");
    for_each_name(command, [](const std::string &name, const CLI::Option &option) {
      say("\n        %s", quoted_word(name + ":" + option.get_description()).c_str());
    });
    print_line(") ;;");
  });
  print_line(
      "  esac\n"
      "  if [[ $words[CURRENT] == -* ]]; then\n"
      "    _describe option options\n"
      "  else\n"
      "    (( $#commands )) && _describe command commands\n"
      "    [[ -z $place ]] || _files\n"
      "  fi\n"
      "}\n"
      "compdef _octavo octavo");
}

// Commands below a command are not known to fish's own functions: the words before are compared.
void print_fish(const CLI::App &program) {
  print_line(
      "# octavo in fish: octavo completion fish | source\n"
      "function __octavo_path\n"
      "    set -l path ''\n"
      "    for word in (commandline -opc)[2..]\n"
      "        switch (string trim \"$path $word\")");
  for_each_command(program, [&](const CLI::App &command) {
    const std::string path = quoted_word(words_after_octavo(command));
    if (&command != &program)
      say("            case %s\n                set path %s\n", path.c_str(), path.c_str());
  });
  print_line("        end\n    end\n    test \"$path\" = \"$argv\"\nend\ncomplete -c octavo -f");
  for_each_command(program, [&](const CLI::App &command) {
    const std::string here = quoted_word("__octavo_path " + words_after_octavo(command));
    for (const CLI::App *below : command.get_subcommands(nullptr))
      say("complete -c octavo -n %s -a %s -d %s\n", here.c_str(), below->get_name().c_str(),
          quoted_word(below->get_description(), "\\").c_str());
    if (&command != &program) say("complete -c octavo -n %s -F\n", here.c_str());
    for_each_name(command, [&](const std::string &name, const CLI::Option &option) {
      const bool is_long = name.starts_with("--");
      say("complete -c octavo -n %s -%c %s %s-d %s\n", here.c_str(), is_long ? 'l' : 's',
          name.substr(is_long ? 2 : 1).c_str(), option.get_items_expected_max() > 0 ? "-r " : "",
          quoted_word(option.get_description(), "\\").c_str());
    });
  });
}

}  // namespace

void add_completion(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand(
      "completion", "Print a script that makes a shell complete commands and options");
  command->require_subcommand(1);
  const std::pair<const char *, void (*)(const CLI::App &)> shells[] = {
      {"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
  for (const auto &[name, print] : shells) {
    CLI::App *shell = command->add_subcommand(name, std::string("The script for ") + name);
    shell->callback([&app, &exit, print = print] {
      print(app);
      exit = kOk;
    });
  }
}

}  // namespace octavo::cli
