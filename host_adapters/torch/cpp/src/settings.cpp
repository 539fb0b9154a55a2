// Keys of octavo.toml that this library reads itself, and what would run.
#include "settings.h"

#include <fstream>
#include <iterator>
#include <variant>

#include "host_adapters/torch/core/error.h"
#include "host_adapters/torch/core/host.h"

namespace octavo::torch {
namespace {

// Of one key: its value as TOML, and where that comes from.
struct Line {
  std::string value, origin;
};

// In octavo_check_config's lines "<key> = <value>  (<origin>)".
Line line_of(const std::string &lines, const std::string &key) {
  const size_t begin = ("\n" + lines).find("\n" + key + " ");
  const size_t value = lines.find("= ", begin) + 2;
  const size_t origin = lines.find("  (", value);
  const size_t end = lines.find(")\n", origin);
  if (begin == std::string::npos || end == std::string::npos)
    throw Error(OCTAVO_INTERNAL, "octavo_check_config: expected a line of " + key +
                                     ", found none; install liboctavo and octavo::torch together");
  return {lines.substr(value, origin - value), lines.substr(origin + 3, end - origin - 3)};
}

// Whether [distributed] may be set; a file that cannot be read is liboctavo's to report.
bool mentions_ranks(const Config &config) {
  for (const auto &[key, value] : config.overrides)
    if (key.find("distributed") != std::string::npos) return true;
  std::string text = config.text;
  if (text.empty() && !config.path.empty()) {
    std::ifstream file(config.path, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  return text.find("distributed") != std::string::npos;
}

}  // namespace

Settings settings_of(const Config &config, const octavo_device &device) {
  Settings settings;
  settings.path(config.path).device(device);
  if (!config.text.empty()) settings.text(config.text);
  for (const auto &[key, value] : config.overrides)
    std::visit([&, &name = key](const auto &v) { settings.set(name, v); }, value);
  for (const std::string &directory : config.plugin_dirs) settings.plugin_dir(directory);
  return settings;
}

std::string name_of(const Config &config) {
  return config.path.empty() ? "the configuration" : config.path;
}

void check(octavo_status status, const std::string &call, const std::string &object) {
  if (status == OCTAVO_OK) return;
  core::raise(status, call + " of " + object + " answered " + status_name(status));
}

std::chrono::seconds timeout_of(const Config &config) {
  std::chrono::seconds timeout{600};
  if (!mentions_ranks(config)) return timeout;
  const std::string lines =
      settings_of(config, {OCTAVO_DEVICE_AUTO, 0})
          .with_desc(core::host(), [&](const octavo_open_desc &desc) {
            return lines_of("octavo_check_config", name_of(config),
                            [&](octavo_line line, void *ctx) {
                              return octavo_check_config(&desc, borrow("text"), line, ctx);
                            });
          });
  const Line engine = line_of(lines, "distributed.engine");
  if (engine.value != "\"threads\"")
    throw Error(OCTAVO_INVALID,
                engine.origin +
                    ": distributed.engine: expected \"threads\" in a program on LibTorch, "
                    "whose ranks are processes over torch's own backends, found " +
                    engine.value + "; leave the key out, and start the ranks with torchrun");
  return std::chrono::seconds(std::stoll(line_of(lines, "distributed.timeout_s").value));
}

std::string explain(const Config &config, const std::string &format) {
  return settings_of(config, {OCTAVO_DEVICE_AUTO, 0})
      .with_desc(core::host(), [&](const octavo_open_desc &desc) {
        return lines_of("octavo_explain", name_of(config), [&](octavo_line line, void *ctx) {
          return octavo_explain(&desc, borrow(format), line, ctx);
        });
      });
}

}  // namespace octavo::torch
