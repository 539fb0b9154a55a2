// octavo man: a page of man(7) for the program or for a command.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "common.h"
#include "sdk/cli/help.h"
#include "sdk/src/base/text.h"

namespace octavo::cli {
namespace {

// A line of text: what man(7) would take for a request, an escape or a hyphen is none.
std::string roff(const std::string &text) {
  std::string all;
  for (const char c : text) {
    if (c == '\\')
      all += "\\e";
    else if (c == '-')
      all += "\\-";
    else if ((c == '.' || c == '\'') && (all.empty() || all.back() == '\n'))
      all += std::string("\\&") + c;
    else
      all += c;
  }
  return all;
}

void print_paragraphs(std::FILE *to, const std::string &text) {
  for (const std::string &line : split_lines(text))
    std::fprintf(to, ".PP\n%s\n", roff(line).c_str());
}

// The name of an argument; empty: an option.
std::string place_of(const CLI::Option &option) {
  return option.get_positional() ? option.get_name(true, false) : "";
}

std::string synopsis(const CLI::App &command) {
  std::string all = "\\fB" + roff(path_of(command)) + "\\fR";
  if (!command.get_subcommands(nullptr).empty()) all += " \\fICOMMAND\\fR";
  for (const CLI::Option *option : command.get_options())
    if (option->get_positional()) all += " [\\fI" + roff(place_of(*option)) + "\\fR]";
  return all + " [\\fIOPTIONS\\fR]";
}

void print_options(std::FILE *to, const CLI::App &command) {
  if (command.get_options().empty()) return;
  std::fputs(".SH OPTIONS\n", to);
  for (const CLI::Option *option : command.get_options()) {
    const std::string place = place_of(*option);
    std::string names = place.empty() ? "" : "\\fI" + roff(place) + "\\fR";
    for (const std::string &name : names_of(*option))
      names += (names.empty() ? "" : ", ") + ("\\fB" + roff(name) + "\\fR");
    if (option->get_items_expected_max() > 0 && place.empty()) names += " \\fIVALUE\\fR";
    std::fprintf(to, ".TP\n%s\n%s\n", names.c_str(), roff(option->get_description()).c_str());
  }
}

// "octavo-config-show"
std::string title_of(const CLI::App &command) {
  std::string title = path_of(command);
  for (char &c : title) c = c == ' ' ? '-' : c;
  return title;
}

void print_man(std::FILE *to, const CLI::App &command) {
  const std::string title = title_of(command);
  std::fprintf(to, ".TH \"%s\" 1 \"\" \"octavo %s\" \"Octavo\"\n", roff(title).c_str(),
               octavo::version().c_str());
  std::fprintf(to, ".SH NAME\n%s \\- %s\n", roff(title).c_str(),
               roff(command.get_description()).c_str());
  std::fprintf(to, ".SH SYNOPSIS\n%s\n", synopsis(command).c_str());
  print_options(to, command);
  const auto commands = command.get_subcommands(nullptr);
  if (!commands.empty()) std::fputs(".SH COMMANDS\n", to);
  for (const CLI::App *below : commands)
    std::fprintf(to, ".TP\n\\fB%s\\fR\n%s\n", roff(below->get_name()).c_str(),
                 roff(below->get_description()).c_str());
  if (!command.get_footer().empty()) std::fputs(".SH NOTES\n", to);
  print_paragraphs(to, command.get_footer());
}

// Every page as a file of this folder, as an installation has them.
void write_pages(const CLI::App &program, const std::string &folder) {
  for_each_command(program, [&](const CLI::App &command) {
    const std::string path = folder + "/" + title_of(command) + ".1";
    std::FILE *file = std::fopen(path.c_str(), "w");
    if (file != nullptr) print_man(file, command);
    if (file == nullptr || std::ferror(file) != 0 || std::fclose(file) != 0)
      throw CLI::ValidationError("--into", path + " cannot be written: " + std::strerror(errno));
  });
}

}  // namespace

void add_man(CLI::App &app, int &exit) {
  CLI::App *command =
      app.add_subcommand("man", "Print the manual page of the program or of a command");
  auto words = std::make_shared<std::vector<std::string>>();
  CLI::Option *name = command->add_option("command", *words,
                                          "its name, as in config show; without one, the program");
  auto folder = std::make_shared<std::string>();
  command->add_option("--into", *folder, "write every page to this folder")->excludes(name);
  command->footer("To read one: octavo man check | man -l -");
  command->callback([&app, words, folder, &exit] {
    std::string path;
    for (const std::string &word : *words) path += (path.empty() ? "" : " ") + word;
    exit = kOk;
    if (!folder->empty()) return write_pages(app, *folder);
    const CLI::App *found = nullptr;
    std::vector<std::string> known;
    for_each_command(app, [&](const CLI::App &one) {
      known.push_back(words_after_octavo(one));
      if (known.back() == path) found = &one;
    });
    if (found == nullptr) {
      const std::string near = nearest(path, known);
      throw CLI::ValidationError("command",
                                 "there is no command \"" + path + "\"" +
                                     (near.empty() ? "; octavo --help lists the commands"
                                                   : "; did you mean \"" + near + "\"?"));
    }
    print_man(stdout, *found);
  });
}

}  // namespace octavo::cli
