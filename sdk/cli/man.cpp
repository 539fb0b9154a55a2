// octavo man: a page of man(7) for the program or for a command.
#include <cstdio>
#include <memory>

#include "common.h"
#include "sdk/cli/described.h"
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

void print_paragraphs(const std::string &text) {
  for (const std::string &line : split_lines(text)) std::printf(".PP\n%s\n", roff(line).c_str());
}

std::string synopsis(const Described &d) {
  std::string all = d.path.empty() ? "octavo" : "octavo " + d.path;
  all = "\\fB" + roff(all) + "\\fR";
  if (!d.commands.empty()) all += " \\fICOMMAND\\fR";
  for (const DescribedOption &o : d.options)
    if (!o.place.empty()) all += " [\\fI" + roff(o.place) + "\\fR]";
  return all + " [\\fIOPTIONS\\fR]";
}

void print_options(const Described &d) {
  if (d.options.empty()) return;
  std::puts(".SH OPTIONS");
  for (const DescribedOption &o : d.options) {
    std::string names = o.place.empty() ? "" : "\\fI" + roff(o.place) + "\\fR";
    for (const std::string &name : o.names)
      names += (names.empty() ? "" : ", ") + ("\\fB" + roff(name) + "\\fR");
    if (o.takes_value && o.place.empty()) names += " \\fIVALUE\\fR";
    std::printf(".TP\n%s\n%s\n", names.c_str(), roff(o.description).c_str());
  }
}

void print_man(const Described &d) {
  std::string title = d.path.empty() ? "octavo" : "octavo " + d.path;
  for (char &c : title) c = c == ' ' ? '-' : c;
  std::printf(".TH \"%s\" 1 \"\" \"octavo %s\" \"Octavo\"\n", roff(title).c_str(),
              octavo::version().c_str());
  std::printf(".SH NAME\n%s \\- %s\n", roff(title).c_str(), roff(d.description).c_str());
  std::printf(".SH SYNOPSIS\n%s\n", synopsis(d).c_str());
  print_options(d);
  if (!d.commands.empty()) std::puts(".SH COMMANDS");
  for (const Described &c : d.commands)
    std::printf(".TP\n\\fB%s\\fR\n%s\n", roff(c.name).c_str(), roff(c.description).c_str());
  if (!d.footer.empty()) std::puts(".SH NOTES");
  print_paragraphs(d.footer);
}

const Described *find(const Described &from, const std::string &path) {
  if (from.path == path) return &from;
  for (const Described &c : from.commands)
    if (const Described *found = find(c, path); found != nullptr) return found;
  return nullptr;
}

}  // namespace

void add_man(CLI::App &app, int &exit) {
  CLI::App *command =
      app.add_subcommand("man", "Print the manual page of the program or of a command");
  auto words = std::make_shared<std::vector<std::string>>();
  command->add_option("command", *words, "its name, as in config check; without one, the program");
  command->footer("To read one: octavo man explain | man -l -");
  command->callback([&app, words, &exit] {
    std::string path;
    for (const std::string &word : *words) path += (path.empty() ? "" : " ") + word;
    const Described program = describe_program(app);
    const Described *found = find(program, path);
    if (found == nullptr) {
      std::vector<std::string> known;
      for_each_command(program, [&](const Described &d) { known.push_back(d.path); });
      const std::string near = nearest(path, known);
      throw CLI::ValidationError("command",
                                 "there is no command \"" + path + "\"" +
                                     (near.empty() ? "; octavo --help lists the commands"
                                                   : "; did you mean \"" + near + "\"?"));
    }
    print_man(*found);
    exit = kOk;
  });
}

}  // namespace octavo::cli
