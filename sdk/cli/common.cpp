// Turns arguments into an octavo_open_desc, and diagnostics into lines on stderr.
#include "common.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <system_error>
#include <utility>

#include "octavo/hpp/text.hpp"
#include "sdk/cli/text_layout.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/utf8.h"

namespace octavo::cli {
namespace {

// --color, or the terminal and NO_COLOR.
std::optional<bool> asked_colour;

bool colour(std::FILE *to) {
  if (asked_colour) return *asked_colour;
  const char *no = std::getenv("NO_COLOR");
  return (no == nullptr || *no == '\0') && isatty(fileno(to)) != 0;
}

// Verdicts at the beginning of a line.
constexpr std::pair<std::string_view, const char *> kStyles[] = {
    {"error", "1;31"},   {"warning", "1;33"},        {"FAIL", "1;31"},
    {"PASS", "1;32"},    {"pass", "1;32"},           {"fix first", "1"},
    {"refused", "1;31"}, {"FP8        yes", "1;32"}, {"FP8        no", "1;31"}};
constexpr std::string_view kRuns = "runs       ";

std::string styled(std::string_view text, const char *style) {
  return "\033[" + std::string(style) + "m" + std::string(text) + "\033[0m";
}

std::string painted(std::string_view line) {
  for (const auto &[word, style] : kStyles)
    if (line.starts_with(word) && (line.size() == word.size() || !std::isalnum(line[word.size()])))
      return styled(word, style) + std::string(line.substr(word.size()));
  if (!line.starts_with(kRuns)) return std::string(line);
  const std::string_view what = line.substr(kRuns.size());
  const std::string_view first = what.substr(0, what.find(' '));
  const char *style = first == "fp8" ? "1;32" : first == "nothing" ? "1;31" : "1;33";
  return std::string(kRuns) + styled(first, style) + std::string(what.substr(first.size()));
}

// Where errors wait while a report is made that may have them.
std::string *held_errors = nullptr;

void print_diagnostic(void *, const octavo_diagnostic *d) {
  if (d->severity < OCTAVO_SEVERITY_WARNING) return;
  const bool error = d->severity == OCTAVO_SEVERITY_ERROR;
  if (error && held_errors != nullptr) {
    *held_errors += std::string(view(d->text)) + "\n";
    return;
  }
  // One message a line; what is indented belongs to the line before it.
  for (const std::string &line : split_lines(std::string(view(d->text))))
    say_error("%s%s\n", line.starts_with(" ") ? "" : error ? "error: " : "warning: ", line.c_str());
}

void put(std::FILE *to, const char *format, std::va_list values) {
  std::va_list again;
  va_copy(again, values);
  const int size = std::vsnprintf(nullptr, 0, format, values);
  std::string text(size < 0 ? 0 : static_cast<size_t>(size) + 1, '\0');
  if (size >= 0) std::vsnprintf(text.data(), text.size(), format, again);
  va_end(again);
  if (!text.empty()) text.pop_back();
  const std::string plain = plain_lines(text, SIZE_MAX);
  const bool paint = colour(to);
  static std::FILE *inside = nullptr;  // of a line that has no end yet
  std::string shown;
  for (size_t at = 0; at < plain.size();) {
    const size_t end = std::min(plain.find('\n', at), plain.size() - 1) + 1;
    const std::string_view line(plain.data() + at, end - at);
    const bool whole = line.ends_with('\n');
    const std::string_view words = line.substr(0, line.size() - (whole ? 1 : 0));
    shown += paint && inside != to ? painted(words) : std::string(words);
    if (whole) shown += '\n';
    inside = whole ? nullptr : to;
    at = end;
  }
  std::fwrite(shown.data(), 1, shown.size(), to);
}

}  // namespace

void set_colour(std::optional<bool> always) {
  asked_colour = always;
}

const octavo_host *console_host() {
  static const octavo_host host = [] {
    auto h = make<octavo_host>(OCTAVO_KIND_HOST);
    h.abi_major = OCTAVO_ABI_MAJOR;
    h.abi_minor = OCTAVO_ABI_MINOR;
    h.diagnose = print_diagnostic;
    h.get_extension = [](void *, octavo_str) -> const void * { return nullptr; };
    return h;
  }();
  return &host;
}

void Request::add_config_options(CLI::App &app) {
  app.add_option("config,--config", config_path_,
                 "octavo.toml to read; without one, the defaults apply")
      ->check(problem_of_empty);
  add_plugin_options(app);
}

void Request::add_plugin_options(CLI::App &app) {
  app.add_option("--set", set_, "override one key, as in --set fp8.te.recipe=current")
      ->type_name("KEY=VALUE")
      ->check([](const std::string &text) {
        return text.find('=') == std::string::npos || text.front() == '='
                   ? "expected KEY=VALUE, found \"" + text + "\""
                   : std::string();
      });
  app.add_option("--plugin-dir", plugin_dirs_, "also search this directory for plugins")
      ->check([](const std::string &directory) {
        std::error_code error;
        if (directory.empty() || std::filesystem::is_directory(directory, error))
          return problem_of_empty(directory);
        return "expected a directory, found none called \"" + directory + "\"";
      });
}

void Request::add_locked_option(CLI::App &app) {
  app.add_flag("--locked", locked_, "refuse plugins that differ from octavo.lock");
}

void Request::add_format_options(CLI::App &app) {
  app.add_flag("--json", json_, "print JSON");
}

// A row goes on below its text, and a line of a row two columns further. What can be pasted stays
// one line.
static void print_wrapped_line(void *, octavo_str text) {
  const std::string line = plain_text(std::string(view(text)), SIZE_MAX);
  const size_t indent = line.find_first_not_of(' ');
  if (columns_of(line) <= page_columns() || indent == std::string::npos ||
      line.find("apply: ") != std::string::npos)
    return print_line(line);
  const bool is_row = indent == 0 && line.find("  ") < kRowIndent;
  const size_t further = is_row ? kRowIndent : indent + 2;
  std::string front = line.substr(0, is_row ? kRowIndent : indent);
  const size_t columns = page_columns() > further + 20 ? page_columns() - further : 20;
  for (const std::string &part : wrapped(line.substr(front.size()), columns)) {
    print_line(front + part);
    front = std::string(further, ' ');
  }
}

struct Printed {
  bool wraps;
  std::string text;
};

static void print_and_note(void *ctx, octavo_str text) {
  auto *printed = static_cast<Printed *>(ctx);
  printed->text += std::string(view(text)) + "\n";
  (printed->wraps ? print_wrapped_line : print_report_line)(nullptr, text);
}

std::function<void()> printer(CLI::App &command, int &exit, Report report,
                              std::shared_ptr<Request> request) {
  if (request == nullptr) request = std::make_shared<Request>();
  request->add_config_options(command);
  request->add_locked_option(command);
  request->add_format_options(command);
  return [request, report, &exit] {
    // On a terminal, text for people is wrapped at its width.
    Printed printed = {!request->is_json() && isatty(STDOUT_FILENO) != 0, ""};
    std::string errors;
    held_errors = &errors;
    exit = exit_code(request->ask([&](const octavo_open_desc &d) {
      return report(&d, request->format(), print_and_note, &printed);
    }));
    held_errors = nullptr;
    // What the report has shown is not said again.
    for (const std::string &line : split_lines(errors))
      if (!line.empty() && printed.text.find(line) == std::string::npos)
        say_error("%s%s\n", line.starts_with(" ") ? "" : "error: ", line.c_str());
  };
}

octavo::Settings Request::settings() const {
  octavo::Settings settings;
  settings.path(config_path_);
  for (const std::string &one : set_) {
    const size_t equals = one.find('=');
    settings.parse(one.substr(0, equals), one.substr(equals + 1));
  }
  if (locked_) settings.set("plugins.locked", true);
  // Whoever types a relative path means the shell's directory; liboctavo takes absolute ones only.
  for (const std::string &directory : plugin_dirs_) {
    std::error_code error;
    const auto absolute = std::filesystem::absolute(directory, error);
    settings.plugin_dir(error ? directory : absolute.lexically_normal().string());
  }
  return settings;
}

octavo_status Request::ask(const Question &question) const {
  return settings().with_desc(console_host(),
                              [&](const octavo_open_desc &d) { return question(d); });
}

octavo_str Request::format() const {
  static const octavo_str text = OCTAVO_STR("text");
  static const octavo_str json = OCTAVO_STR("json");
  return json_ ? json : text;
}

std::string problem_of_empty(const std::string &argument) {
  return argument.empty() ? "expected a path, found an empty argument" : std::string();
}

std::string problem_of_name(const std::string &name) {
  const bool is_id =
      !name.empty() && name.size() <= 64 &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.-") == std::string::npos;
  return is_id ? "" : "expected 1 to 64 characters of a-z 0-9 _ . -, found \"" + name + "\"";
}

std::string problem_of_seed(const std::string &word) {
  uint64_t seed = 0;
  const char *end = word.data() + word.size();
  const auto found = std::from_chars(word.data(), end, seed);
  const bool is_seed = found.ec == std::errc() && found.ptr == end;
  return is_seed ? "" : "expected a whole number from 0 to 2^64 - 1, found \"" + word + "\"";
}

std::string list_json(const octavo::Settings &settings) {
  octavo::Answer answer = octavo::list(settings, "json");
  if (answer.status == OCTAVO_OK) return std::move(answer.text);
  throw Failure(answer.status, "octavo.config",
                answer.diagnostics.empty() ? "the configuration cannot be read"
                                           : answer.diagnostics.back().text);
}

std::string plugin_of(const std::string &target) {
  constexpr std::string_view suffix = ".octavo-plugin.toml";
  namespace fs = std::filesystem;
  std::error_code error;  // a name that is too long is no file
  const bool is_file = fs::is_regular_file(target, error);
  if (target.find('/') == std::string::npos && !is_file) return target;
  if (!is_file)
    throw CLI::ValidationError("plugin", target +
                                             ": expected a plugin's name, its library or its "
                                             "manifest, found no such file");
  const fs::path file = fs::canonical(target);
  std::string name = file.filename().string();
  if (name.size() > suffix.size() && name.ends_with(suffix)) {
    name.resize(name.size() - suffix.size());
  } else {
    name = file.stem().string();
    const fs::path manifest = file.parent_path() / (name + std::string(suffix));
    if (!fs::is_regular_file(manifest, error))
      throw CLI::ValidationError("plugin", "expected a manifest next to the library, found no " +
                                               manifest.string() +
                                               "; octavo_add_plugin() of CMake writes it");
  }
  const char *path = std::getenv("OCTAVO_PLUGIN_PATH");
  const std::string first = file.parent_path().string();
  setenv("OCTAVO_PLUGIN_PATH",
         path == nullptr || *path == '\0' ? first.c_str() : (first + ":" + path).c_str(), 1);
  return name;
}

void say(const char *format, ...) {
  std::va_list values;
  va_start(values, format);
  put(stdout, format, values);
  va_end(values);
}

void say_error(const char *format, ...) {
  std::va_list values;
  va_start(values, format);
  put(stderr, format, values);
  va_end(values);
}

void print_line(const std::string &text) {
  say("%s\n", text.c_str());
}

void print_report_line(void *, octavo_str text) {
  say("%.*s\n", static_cast<int>(text.size), text.data);
}

int exit_code(octavo_status status) {
  switch (status) {
    case OCTAVO_OK: return kOk;
    case OCTAVO_UNSUPPORTED: return kRefused;
    case OCTAVO_INVALID: return kWrongInput;
    default: return kInternal;
  }
}

int failed(const Failure &failure) {
  std::fflush(stdout);
  say_error("error: %s\n", take_words(failure.what()).c_str());
  return exit_code(failure.status());
}

int become_python(std::vector<std::string> arguments, const char *needs) {
  std::string python = "python3";
  std::vector<char *> words{python.data()};
  for (std::string &one : arguments) words.push_back(one.data());
  words.push_back(nullptr);
  std::fflush(nullptr);
  execvp(words[0], words.data());
  say_error("error: %s: python3: %s\n", needs, std::strerror(errno));
  return kInternal;
}

std::string versions() {
  const octavo_str version = octavo_version();
  return "octavo " + std::string(view(version)) + ", ABI " + std::to_string(OCTAVO_ABI_MAJOR) +
         "." + std::to_string(OCTAVO_ABI_MINOR) + ", headers " + OCTAVO_ABI_HEADERS;
}

}  // namespace octavo::cli
