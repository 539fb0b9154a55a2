// What every command of `octavo` shares: options, exit codes, printing.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "octavo/hpp/host/settings.hpp"
#include "sdk/src/base/utf8.h"

namespace octavo {
class Failure;
}

namespace octavo::cli {

// Exit codes, as --help lists them.
enum Exit {
  kOk = 0,
  kRefused = 1,
  kWrongInput = 2,
  kInternal = 3,
  kNotFp8 = 4  // of doctor
};

// The description of a run from the command line; add_to registers the options that fill it.
class Request {
 public:
  void add_config_options(CLI::App &app);
  // --set and --plugin-dir alone.
  void add_plugin_options(CLI::App &app);
  void add_locked_option(CLI::App &app);
  void add_format_options(CLI::App &app);
  // As --set, after what the command line sets.
  void set(const std::string &key_and_value) { set_.push_back(key_and_value); }
  // The same, where the command line does not set that key.
  void set_default(const std::string &key_and_value) { set_.insert(set_.begin(), key_and_value); }
  // What was set, as KEY=VALUE.
  const std::vector<std::string> &assignments() const { return set_; }

  octavo::Settings settings() const;
  // Calls a function of octavo.h with a host that prints diagnostics to stderr.
  using Question = std::function<octavo_status(const octavo_open_desc &)>;
  octavo_status ask(const Question &question) const;
  octavo_str format() const;
  bool is_json() const { return json_; }

 private:
  std::string config_path_;
  std::vector<std::string> set_;  // key=value
  std::vector<std::string> plugin_dirs_;
  bool locked_ = false;
  bool json_ = false;
};

// Prints diagnostics to stderr; for plugins, too.
const octavo_host *console_host();

// What is wrong with an id; empty if it may stand in octavo_plugin.id.
std::string problem_of_name(const std::string &name);

// The same of a seed, which CLI11 would take from "" and wrap from what is below 0 or too large.
std::string problem_of_seed(const std::string &word);

// What octavo_list says in JSON; throws Failure where the configuration cannot be read.
std::string list_json(const octavo::Settings &settings);

// octavo plugin list --kernels; returns the exit code.
int list_abilities(const Request &request);

// A plugin as the command line names it. A name stays a name. A manifest, or a library with its
// manifest next to it, becomes the name, and its directory the first that is searched.
std::string plugin_of(const std::string &target);

// --color: always, never; nothing: on a terminal, where NO_COLOR does not forbid it.
void set_colour(std::optional<bool> always);

// The one way of words to stdout and stderr. Whatever file or plugin they come from, what would
// command a terminal is shown as an escape; lines and tabs stay. Verdicts at the beginning of a
// line have a colour.
[[gnu::format(printf, 1, 2)]] void say(const char *format, ...);
[[gnu::format(printf, 1, 2)]] void say_error(const char *format, ...);
void print_line(const std::string &text);

// octavo_line that prints to stdout.
void print_report_line(void *ctx, octavo_str text);

int exit_code(octavo_status status);

// Prints what went wrong to stderr, after what is on stdout, and returns the exit code.
int failed(const Failure &failure);

// Prints a value of nlohmann/json; bytes that are no UTF-8 are replaced.
template <typename Json>
void put_json(const Json &value) {
  print_line(plain_json(value.dump(2, ' ', false, Json::error_handler_t::replace)));
}

// Replaces this process by python3 with these arguments. Where that fails it prints why, and what
// needs it, and returns the exit code.
int become_python(std::vector<std::string> arguments, const char *needs);

// Of the library at run time and of the ABI, in one line.
std::string versions();

// A check of arguments: "" is what a shell makes of a variable that is not set.
std::string problem_of_empty(const std::string &argument);

// A function of octavo.h that prints a report.
using Report = octavo_status (*)(const octavo_open_desc *, octavo_str, octavo_line, void *);
// Adds the options of a command that prints one, and returns what prints it.
// request: null for one of its own.
std::function<void()> printer(CLI::App &command, int &exit, Report report,
                              std::shared_ptr<Request> request = nullptr);

// One function a command; each registers itself and stores its exit code.
void add_bench(CLI::App &app, int &exit);
void add_check(CLI::App &app, int &exit);
void add_checkpoint(CLI::App &app, int &exit);
void add_completion(CLI::App &app, int &exit);
void add_config(CLI::App &app, int &exit);
void add_doctor(CLI::App &app, int &exit);
void add_estimate(CLI::App &app, int &exit);
void add_init(CLI::App &app, int &exit);
void add_man(CLI::App &app, int &exit);
void add_plugin(CLI::App &app, int &exit);
void add_report(CLI::App &app, int &exit);
void add_run(CLI::App &app, int &exit);
// Of `octavo plugin`.
void add_allow(CLI::App &plugin, int &exit);
void add_check_elf(CLI::App &plugin, int &exit);
void add_lock(CLI::App &plugin, int &exit);
void add_manifest(CLI::App &plugin, int &exit);
void add_new(CLI::App &plugin, int &exit);
void add_try(CLI::App &plugin, int &exit);
void add_verify(CLI::App &plugin, int &exit);

}  // namespace octavo::cli
