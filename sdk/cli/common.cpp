// Turns arguments into an octavo_open_desc, and diagnostics into lines on stderr.
#include "common.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace octavo::cli {
namespace {

octavo_str borrow(const std::string &s) {
  return {s.data(), s.size()};
}

bool colour() {
  const char *no = std::getenv("NO_COLOR");
  return (no == nullptr || *no == '\0') && isatty(STDERR_FILENO) != 0;
}

void print_diagnostic(void *, const octavo_diagnostic *d) {
  if (d->severity < OCTAVO_SEVERITY_WARNING) return;
  const bool error = d->severity == OCTAVO_SEVERITY_ERROR;
  const char *word = error ? "error" : "warning";
  const char *on = colour() ? (error ? "\033[1;31m" : "\033[1;33m") : "";
  std::fprintf(stderr, "%s%s%s: %.*s\n", on, word, *on ? "\033[0m" : "",
               static_cast<int>(d->text.size), d->text.data);
}

const octavo_host *console_host() {
  static const octavo_host host = [] {
    octavo_host h{};
    h.size = sizeof(h);
    h.kind = OCTAVO_KIND_HOST;
    h.abi_major = OCTAVO_ABI_MAJOR;
    h.abi_minor = OCTAVO_ABI_MINOR;
    h.diagnose = print_diagnostic;
    h.get_extension = [](void *, octavo_str) -> const void * { return nullptr; };
    return h;
  }();
  return &host;
}

// A number, true, false or a text, as on the right side of a TOML assignment; the quotes of a text
// may be left out.
octavo_value parse_value(const std::string &text) {
  octavo_value v{};
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    v.type = OCTAVO_VALUE_TEXT;
    v.text = {text.data() + 1, text.size() - 2};
    return v;
  }
  char *end = nullptr;
  const long long integer = std::strtoll(text.c_str(), &end, 10);
  if (!text.empty() && *end == '\0') {
    v.type = OCTAVO_VALUE_INT;
    v.integer = integer;
    return v;
  }
  const double real = std::strtod(text.c_str(), &end);
  if (!text.empty() && *end == '\0') {
    v.type = OCTAVO_VALUE_REAL;
    v.real = real;
    return v;
  }
  if (text == "true" || text == "false") {
    v.type = OCTAVO_VALUE_BOOL;
    v.integer = text == "true" ? 1 : 0;
    return v;
  }
  v.type = OCTAVO_VALUE_TEXT;
  v.text = borrow(text);
  return v;
}

}  // namespace

void Request::add_config_options(CLI::App &app) {
  app.add_option("config", config_path_, "octavo.toml to read; without it the defaults hold");
  app.add_option("--set", set_, "override one key, as in --set fp8.te.recipe=current")
      ->check([](const std::string &text) {
        return text.find('=') == std::string::npos || text.front() == '='
                   ? "expected KEY=VALUE, found \"" + text + "\""
                   : std::string();
      });
  app.add_option("--plugin-dir", plugin_dirs_, "search this directory, too");
}

void Request::add_locked_option(CLI::App &app) {
  app.add_flag("--locked", locked_, "refuse plugins that differ from octavo.lock");
}

void Request::add_format_options(CLI::App &app) {
  auto *json = app.add_flag("--json", json_, "print JSON");
  app.add_flag("--tree", tree_, "print a tree")->excludes(json);
}

octavo_open_desc Request::desc() {
  keys_.clear();
  values_.clear();
  overrides_.clear();
  directories_.clear();
  for (const std::string &one : set_) {
    const size_t equals = one.find('=');
    keys_.push_back(one.substr(0, equals));
    values_.push_back(one.substr(equals + 1));
  }
  for (size_t i = 0; i < keys_.size(); ++i)
    overrides_.push_back({borrow(keys_[i]), parse_value(values_[i])});
  if (locked_)
    overrides_.push_back({OCTAVO_STR("plugins.locked"), {OCTAVO_VALUE_BOOL, 0, 1, 0, {}}});
  for (const std::string &directory : plugin_dirs_) directories_.push_back(borrow(directory));
  octavo_open_desc d{};
  d.size = sizeof(d);
  d.kind = OCTAVO_KIND_OPEN_DESC;
  d.config_path = borrow(config_path_);
  d.overrides = overrides_.data();
  d.override_count = overrides_.size();
  d.plugin_dirs = directories_.data();
  d.plugin_dir_count = directories_.size();
  d.host = console_host();
  return d;
}

octavo_str Request::format() const {
  static const octavo_str text = OCTAVO_STR("text");
  static const octavo_str tree = OCTAVO_STR("tree");
  static const octavo_str json = OCTAVO_STR("json");
  return json_ ? json : tree_ ? tree : text;
}

void print_line(void *, octavo_str text) {
  std::fwrite(text.data, 1, text.size, stdout);
  std::fputc('\n', stdout);
}

int exit_code(octavo_status status) {
  switch (status) {
    case OCTAVO_OK: return kOk;
    case OCTAVO_UNSUPPORTED: return kRefused;
    case OCTAVO_INVALID: return kWrongInput;
    default: return kInternal;
  }
}

}  // namespace octavo::cli
