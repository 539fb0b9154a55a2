// octavo completion and octavo man: as many commands and options as --help has, and bash completes
// them.
#include <filesystem>
#include <set>
#include <sstream>

#include "tests/cli/cli.h"

namespace octavo::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

class CliCompletion : public Cli {
 protected:
  // What bash offers for the last of these words.
  std::vector<std::string> completed(const std::vector<std::string> &words) {
    std::string line = "source <(" + std::string(OCTAVO_CLI) + " completion bash); COMP_WORDS=(";
    for (const std::string &word : words) line += "'" + word + "' ";
    line += "); COMP_CWORD=" + std::to_string(words.size() - 1) +
            "; _octavo; printf '%s\\n' \"${COMPREPLY[@]}\"";
    const Finished f = run_program({"/bin/bash", "-c", line});
    EXPECT_EQ(f.exit_code, 0) << f.err;
    EXPECT_EQ(f.err, "");
    std::vector<std::string> found;
    std::istringstream all(f.out);
    for (std::string one; std::getline(all, one);) found.push_back(one);
    return found;
  }
  // Commands or options as --help lists them: the first words of its lines, by their beginning.
  std::vector<std::string> in_help(const std::string &command, const std::string &begin) {
    std::vector<std::string> arguments = {"--help"};
    if (!command.empty()) arguments.insert(arguments.begin(), command);
    std::vector<std::string> found;
    std::istringstream all(octavo(arguments).out);
    bool commands = true;
    for (std::string line; std::getline(all, line);) {
      commands = commands && line != "Options:";
      const size_t at = line.find_first_not_of(' ');
      if (at != 2) continue;
      if (begin.empty() && commands) found.push_back(line.substr(2, line.find(' ', 2) - 2));
      if (const size_t name = line.find(begin); !begin.empty() && !commands && line[2] == '-')
        found.push_back(line.substr(name, line.find_first_of(" ,", name) - name));
    }
    EXPECT_FALSE(found.empty()) << command;
    return found;
  }
};

TEST_F(CliCompletion, bash_completes_commands) {
  EXPECT_THAT(completed({"octavo", "est"}), ElementsAre("estimate"));
  EXPECT_THAT(completed({"octavo", ""}), IsSupersetOf(in_help("", "")));
  EXPECT_THAT(completed({"octavo", "config", "sh"}), IsSupersetOf({"show"}));
}

TEST_F(CliCompletion, bash_completes_options_of_the_command) {
  EXPECT_THAT(completed({"octavo", "doctor", "--py"}), ElementsAre("--python"));
  EXPECT_THAT(completed({"octavo", "plugin", "list", "--py"}), ElementsAre(""));
  EXPECT_THAT(completed({"octavo", "config", "show", "--loc"}), ElementsAre("--locked"));
  for (const std::string &command : in_help("", "")) {
    if (command == "run") continue;  // its options are Python's
    EXPECT_THAT(completed({"octavo", command, "--"}), IsSupersetOf(in_help(command, "--")))
        << command;
  }
}

TEST_F(CliCompletion, bash_completes_files) {
  dir.write("some file.toml", "");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  EXPECT_THAT(completed({"octavo", "check", "some"}), ElementsAre("some file.toml"));
  EXPECT_THAT(completed({"octavo", "check", "--config", "some"}), ElementsAre("some file.toml"));
  std::filesystem::current_path(before);
}

// Neither shell is a package that this build needs; bash reads the definitions that they get, too.
TEST_F(CliCompletion, zsh_and_fish_have_every_command_and_option) {
  const std::string zsh = octavo({"completion", "zsh"}).out;
  const std::string fish = octavo({"completion", "fish"}).out;
  for (const std::string &command : in_help("", "")) {
    EXPECT_THAT(zsh, HasSubstr("\n        '" + command + ":")) << command;
    EXPECT_THAT(fish, HasSubstr(" -a " + command + " -d '")) << command;
    if (command == "run") continue;
    for (const std::string &option : in_help(command, "--")) {
      EXPECT_THAT(zsh, HasSubstr("\n        '" + option + ":")) << command;
      EXPECT_THAT(fish, HasSubstr("complete -c octavo -n '__octavo_path " + command + "' -l " +
                                  option.substr(2) + " "))
          << command;
    }
  }
}

TEST_F(CliCompletion, other_shells_are_refused) {
  EXPECT_EQ(octavo({"completion", "tcsh"}).exit_code, 2);
  EXPECT_EQ(octavo({"completion"}).exit_code, 2);
}

TEST_F(CliCompletion, man_has_every_command_and_option) {
  const auto escaped = [](const std::string &text) {
    std::string all;
    for (const char c : text) all += c == '-' ? std::string("\\-") : std::string(1, c);
    return all;
  };
  const std::string program = octavo({"man"}).out;
  EXPECT_THAT(program, HasSubstr(".SH NAME\noctavo \\- octavo: FP8 training"));
  EXPECT_THAT(program, HasSubstr(".PP\nExit codes: 0 done; 1 "));
  for (const std::string &command : in_help("", "")) {
    EXPECT_THAT(program, HasSubstr(".TP\n\\fB" + escaped(command) + "\\fR\n")) << command;
    const Finished page = octavo({"man", command});
    EXPECT_EQ(page.exit_code, 0) << page.err;
    EXPECT_THAT(page.out, HasSubstr(".TH \"octavo\\-" + escaped(command) + "\" 1 "));
    if (command == "run") continue;
    for (const std::string &option : in_help(command, "--"))
      EXPECT_THAT(page.out, HasSubstr("\\fB" + escaped(option) + "\\fR")) << command;
  }
  EXPECT_THAT(octavo({"man", "config", "show"}).out,
              HasSubstr(".TH \"octavo\\-config\\-show\" 1 "));
}

TEST_F(CliCompletion, man_of_a_misspelt_command) {
  const Finished f = octavo({"man", "chekc"});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_EQ(f.out, "");
  EXPECT_THAT(f.err, HasSubstr("there is no command \"chekc\"; did you mean \"check\"?"));
}

}  // namespace
}  // namespace octavo::test
