// One formatter for all commands; CLI11 knows their options, and the tables here their examples.
#include "sdk/cli/help.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <stdexcept>

#include "sdk/cli/text_layout.h"
#include "sdk/src/base/text.h"

namespace octavo::cli {
namespace {

constexpr size_t kNameColumns = 26;

struct Place {
  const char *path, *group, *example;  // group: empty, not on the first page
};

constexpr Place kPlaces[] = {
    {"octavo", "", "octavo init --yes && octavo check octavo.toml"},
    {"octavo init", "Start", "octavo init --from config.yaml"},
    {"octavo doctor", "Start", "octavo doctor octavo.toml"},
    {"octavo check", "Start", "octavo check octavo.toml --set fp8.te.recipe=current"},
    {"octavo config", "Start", "octavo config show octavo.toml"},
    {"octavo config show", "Commands", "octavo config show octavo.toml"},
    {"octavo config schema", "Commands", "octavo config schema > octavo.schema.json"},
    {"octavo estimate", "Plan", "octavo estimate config.json --mesh 8x8"},
    {"octavo bench", "Plan", "octavo bench config.json --batch 8 --sequence 1024"},
    {"octavo run", "Train", "octavo run train.py --config-name small"},
    {"octavo report", "Train", "octavo report logs/ --output report.html"},
    {"octavo checkpoint", "Train", "octavo checkpoint verify checkpoint/"},
    {"octavo checkpoint verify", "Commands", "octavo checkpoint verify checkpoint/"},
    {"octavo checkpoint show", "Commands", "octavo checkpoint show checkpoint/"},
    {"octavo checkpoint diff", "Commands", "octavo checkpoint diff checkpoint/ other/"},
    {"octavo plugin", "Extend", "octavo plugin list"},
    {"octavo plugin list", "Use", "octavo plugin list octavo.toml"},
    {"octavo plugin allow", "Use", "octavo plugin allow octavo.toml"},
    {"octavo plugin lock", "Use", "octavo plugin lock octavo.toml"},
    {"octavo plugin try", "Use", "octavo plugin try te --set fp8.te.recipe=block"},
    {"octavo plugin new", "Write", "octavo plugin new mine --lang cpp"},
    {"octavo plugin verify", "Write", "octavo plugin verify build/mine.so"},
    {"octavo plugin manifest", "Write", "octavo plugin manifest mine --version 1.0.0"},
    {"octavo plugin check-elf", "Write", "octavo plugin check-elf --strict build/mine.so"},
    {"octavo completion", "", "source <(octavo completion bash)"},
    {"octavo completion bash", "Shells", "source <(octavo completion bash)"},
    {"octavo completion zsh", "Shells", "source <(octavo completion zsh)"},
    {"octavo completion fish", "Shells", "octavo completion fish | source"},
    {"octavo man", "", "octavo man check | man -l -"},
};

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

// A row whose text is wrapped next to its name, or below it where the name is long.
void add_row(std::string &out, const std::string &name, const std::string &text) {
  const size_t columns = page_columns();
  std::string front = "  " + name;
  if (columns_of(front) + 1 > kNameColumns) {
    out += front + "\n";
    front.clear();
  }
  for (const std::string &line :
       wrapped(text, columns > kNameColumns + 20 ? columns - kNameColumns : 20)) {
    out += padded(front, kNameColumns) + line + "\n";
    front.clear();
  }
}

void add_text(std::string &out, const std::string &text) {
  for (const std::string &whole : split_lines(text)) {
    if (whole.starts_with("Example: ")) {
      out += whole + "\n";  // a command can be pasted
      continue;
    }
    for (const std::string &line : wrapped(whole, page_columns())) out += line + "\n";
  }
}

// KEY=VALUE where the option says so; the name of the option otherwise.
std::string value_of(const CLI::Option &option) {
  const std::string type = option.get_type_name();
  if (type.find('=') != std::string::npos) return type;
  std::string name =
      option.get_lnames().empty() ? option.get_single_name() : option.get_lnames()[0];
  return upper(name.substr(name.rfind('-') + 1));
}

std::string option_name(const CLI::Option &option) {
  std::string all;
  for (const std::string &name : names_of(option)) all += (all.empty() ? "" : ", ") + name;
  return option.get_items_expected_max() > 0 ? all + " " + value_of(option) : all;
}

std::string option_text(const CLI::Option &option) {
  std::string text = option.get_description();
  if (option.get_required() && !option.get_positional()) text += " (required)";
  const std::string usual = option.get_default_str();
  return usual.empty() ? text : text + " (usual: " + usual + ")";
}

class Formatter : public CLI::Formatter {
  std::string make_help(const CLI::App *app, std::string, CLI::AppFormatMode) const override {
    std::string out;
    add_text(out, app->get_description());
    out += "\nUsage: " + path_of(*app);
    const auto commands = app->get_subcommands([](const CLI::App *) { return true; });
    if (!commands.empty()) out += " COMMAND";
    std::vector<const CLI::Option *> arguments, options;
    for (const CLI::Option *o : app->get_options())
      (o->get_positional() ? arguments : options).push_back(o);
    for (const CLI::Option *o : arguments) {
      const std::string name = upper(o->get_name(true, false));
      out += o->get_required() ? " " + name : " [" + name + "]";
      if (o->get_items_expected_max() > 1) out += "...";
    }
    if (options.size() > 1) out += " [OPTIONS]";
    out += "\n";
    std::string group;
    for (const CLI::App *command : commands) {
      if (command->get_group().empty()) continue;
      if (command->get_group() != group) out += "\n" + (group = command->get_group()) + ":\n";
      add_row(out, command->get_name(), command->get_description());
    }
    if (!arguments.empty()) out += "\nArguments:\n";
    for (const CLI::Option *o : arguments)
      add_row(out, upper(o->get_name(true, false)), option_text(*o));
    if (!options.empty()) out += "\nOptions:\n";
    for (const CLI::Option *o : options) add_row(out, option_name(*o), option_text(*o));
    if (!app->get_footer().empty()) out += "\n";
    add_text(out, app->get_footer());
    return out;
  }
};

void set_places(CLI::App &command, const std::map<std::string, Place> &places) {
  const auto found = places.find(path_of(command));
  if (found == places.end()) throw std::logic_error("no place in the help: " + path_of(command));
  command.group(found->second.group);
  const std::string footer = command.get_footer();
  command.footer((footer.empty() ? "" : footer + "\n") + "Example: " + found->second.example);
  for (CLI::App *below : command.get_subcommands(nullptr)) set_places(*below, places);
}

void set_formatter(CLI::App &command, const std::shared_ptr<Formatter> &formatter) {
  command.formatter(formatter);
  if (CLI::Option *help = command.get_help_ptr(); help != nullptr)
    help->description("print this help");
  for (CLI::App *below : command.get_subcommands(nullptr)) set_formatter(*below, formatter);
}

}  // namespace

std::string path_of(const CLI::App &command) {
  const CLI::App *parent = command.get_parent();
  return (parent == nullptr ? "" : path_of(*parent) + " ") + command.get_name();
}

std::string words_after_octavo(const CLI::App &command) {
  const std::string path = path_of(command);
  const size_t blank = path.find(' ');
  return blank == std::string::npos ? "" : path.substr(blank + 1);
}

std::vector<std::string> names_of(const CLI::Option &option) {
  std::vector<std::string> names;
  for (const std::string &name : option.get_snames()) names.push_back("-" + name);
  for (const std::string &name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

void set_help(CLI::App &program) {
  std::map<std::string, Place> places;
  for (const Place &p : kPlaces) places.emplace(p.path, p);
  set_places(program, places);
  set_formatter(program, std::make_shared<Formatter>());
}

}  // namespace octavo::cli
