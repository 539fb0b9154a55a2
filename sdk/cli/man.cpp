// octavo man: a page of man(7) for the program or for a command.
#include <cerrno>
#include <cstdio>
#include <cstring>
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

void print_paragraphs(std::FILE *to, const std::string &text) {
  for (const std::string &line : split_lines(text))
    std::fprintf(to, ".PP\n%s\n", roff(line).c_str());
}

std::string synopsis(const Described &d) {
  std::string all = d.path.empty() ? "octavo" : "octavo " + d.path;
  all = "\\fB" + roff(all) + "\\fR";
  if (!d.commands.empty()) all += " \\fICOMMAND\\fR";
  for (const DescribedOption &o : d.options)
    if (!o.place.empty()) all += " [\\fI" + roff(o.place) + "\\fR]";
  return all + " [\\fIOPTIONS\\fR]";
}

void print_options(std::FILE *to, const Described &d) {
  if (d.options.empty()) return;
  std::fputs(".SH OPTIONS\n", to);
  for (const DescribedOption &o : d.options) {
    std::string names = o.place.empty() ? "" : "\\fI" + roff(o.place) + "\\fR";
    for (const std::string &name : o.names)
      names += (names.empty() ? "" : ", ") + ("\\fB" + roff(name) + "\\fR");
    if (o.takes_value && o.place.empty()) names += " \\fIVALUE\\fR";
    std::fprintf(to, ".TP\n%s\n%s\n", names.c_str(), roff(o.description).c_str());
  }
}

// "octavo-config-show"
std::string title_of(const Described &d) {
  std::string title = d.path.empty() ? "octavo" : "octavo " + d.path;
  for (char &c : title) c = c == ' ' ? '-' : c;
  return title;
}

void print_man(std::FILE *to, const Described &d) {
  const std::string title = title_of(d);
  std::fprintf(to, ".TH \"%s\" 1 \"\" \"octavo %s\" \"Octavo\"\n", roff(title).c_str(),
               octavo::version().c_str());
  std::fprintf(to, ".SH NAME\n%s \\- %s\n", roff(title).c_str(), roff(d.description).c_str());
  std::fprintf(to, ".SH SYNOPSIS\n%s\n", synopsis(d).c_str());
  print_options(to, d);
  if (!d.commands.empty()) std::fputs(".SH COMMANDS\n", to);
  for (const Described &c : d.commands)
    std::fprintf(to, ".TP\n\\fB%s\\fR\n%s\n", roff(c.name).c_str(), roff(c.description).c_str());
  if (!d.footer.empty()) std::fputs(".SH NOTES\n", to);
  print_paragraphs(to, d.footer);
}

// Every page as a file of this folder, as an installation has them.
void write_pages(const Described &program, const std::string &folder) {
  const auto write = [&](const Described &d) {
    const std::string path = folder + "/" + title_of(d) + ".1";
    std::FILE *file = std::fopen(path.c_str(), "w");
    if (file != nullptr) print_man(file, d);
    if (file == nullptr || std::ferror(file) != 0 || std::fclose(file) != 0)
      throw CLI::ValidationError("--into", path + " cannot be written: " + std::strerror(errno));
  };
  write(program);
  for_each_command(program, write);
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
  CLI::Option *name = command->add_option("command", *words,
                                          "its name, as in config show; without one, the program");
  auto folder = std::make_shared<std::string>();
  command->add_option("--into", *folder, "write every page to this folder")->excludes(name);
  command->footer("To read one: octavo man check | man -l -");
  command->callback([&app, words, folder, &exit] {
    std::string path;
    for (const std::string &word : *words) path += (path.empty() ? "" : " ") + word;
    const Described program = describe_program(app);
    exit = kOk;
    if (!folder->empty()) return write_pages(program, *folder);
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
    print_man(stdout, *found);
  });
}

}  // namespace octavo::cli
