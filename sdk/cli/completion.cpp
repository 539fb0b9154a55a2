// octavo completion: scripts that complete commands and options in bash, zsh and fish.
#include <cstdio>

#include "common.h"
#include "sdk/cli/described.h"
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

// Names of the commands below, or of the options, with blanks between.
std::string words_of(const Described &command, bool options) {
  std::string words;
  const auto add = [&](const std::string &word) { words += (words.empty() ? "" : " ") + word; };
  if (!options)
    for (const Described &c : command.commands) add(c.name);
  if (options)
    for (const DescribedOption &o : command.options)
      for (const std::string &name : o.names) add(name);
  return words;
}

// The cases, in bash and zsh, that note in a variable which command the words so far are.
void print_places(const Described &program, const char *variable) {
  for_each_command(program, [&](const Described &d) {
    if (!d.path.empty())
      say("      %s) %s=%s ;;\n", quoted_word(d.path).c_str(), variable,
          quoted_word(d.path).c_str());
  });
}

void print_bash(const Described &program) {
  print_line(
      "# octavo in bash: source <(octavo completion bash)\n"
      "_octavo() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} path= commands= options= i\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    case \"${path:+$path }${COMP_WORDS[i]}\" in");
  print_places(program, "path");
  print_line("    esac\n  done\n  case $path in");
  for_each_command(program, [](const Described &d) {
    say("    %s) commands=%s options=%s ;;\n", quoted_word(d.path).c_str(),
        quoted_word(words_of(d, false)).c_str(), quoted_word(words_of(d, true)).c_str());
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
void print_zsh(const Described &program) {
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
  for_each_command(program, [](const Described &d) {
    say("    %s)\n      commands=(", quoted_word(d.path).c_str());
    for (const Described &c : d.commands)
      say("\n        %s", quoted_word(c.name + ":" + c.description).c_str());
    say(")\n      options=(");
    for (const DescribedOption &o : d.options)
      for (const std::string &name : o.names)
        say("\n        %s", quoted_word(name + ":" + o.description).c_str());
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
void print_fish(const Described &program) {
  print_line(
      "# octavo in fish: octavo completion fish | source\n"
      "function __octavo_path\n"
      "    set -l path ''\n"
      "    for word in (commandline -opc)[2..]\n"
      "        switch (string trim \"$path $word\")");
  for_each_command(program, [](const Described &d) {
    if (!d.path.empty())
      say("            case %s\n                set path %s\n", quoted_word(d.path).c_str(),
          quoted_word(d.path).c_str());
  });
  print_line("        end\n    end\n    test \"$path\" = \"$argv\"\nend\ncomplete -c octavo -f");
  for_each_command(program, [](const Described &d) {
    const std::string here = quoted_word("__octavo_path " + d.path, "");
    for (const Described &c : d.commands)
      say("complete -c octavo -n %s -a %s -d %s\n", here.c_str(), c.name.c_str(),
          quoted_word(c.description, "\\").c_str());
    if (!d.path.empty()) say("complete -c octavo -n %s -F\n", here.c_str());
    for (const DescribedOption &o : d.options)
      for (const std::string &name : o.names)
        say("complete -c octavo -n %s -%c %s %s-d %s\n", here.c_str(),
            name.starts_with("--") ? 'l' : 's', name.substr(name.starts_with("--") ? 2 : 1).c_str(),
            o.takes_value ? "-r " : "", quoted_word(o.description, "\\").c_str());
  });
}

}  // namespace

void add_completion(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand(
      "completion", "Print a script that makes a shell complete commands and options");
  command->require_subcommand(1);
  const std::pair<const char *, void (*)(const Described &)> shells[] = {
      {"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
  for (const auto &[name, print] : shells) {
    CLI::App *shell = command->add_subcommand(name, std::string("The script for ") + name);
    shell->callback([&app, &exit, print = print] {
      print(describe_program(app));
      exit = kOk;
    });
  }
}

}  // namespace octavo::cli
