// A Config as liboctavo takes it, and what would run.
#include "settings.h"

#include <variant>

#include "host_adapters/torch/core/error.h"
#include "host_adapters/torch/core/host.h"

namespace octavo::torch {

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

void check_engine(const std::string &engine, const std::string &origin) {
  if (engine == "threads") return;
  throw Error(OCTAVO_INVALID,
              origin +
                  ": distributed.engine: expected \"threads\" in a program on LibTorch, whose "
                  "ranks are processes over torch's own backends, found \"" +
                  engine + "\"; leave the key out, and start the ranks with torchrun");
}

std::chrono::seconds timeout_of(const Config &config) {
  const Configuration found = configuration(settings_of(config, {OCTAVO_DEVICE_AUTO, 0}));
  if (found.status != OCTAVO_OK) return std::chrono::seconds(600);  // octavo_open says why
  const ConfigValue &engine = found.values.at("distributed.engine");
  check_engine(engine.text, engine.origin);
  return std::chrono::seconds(std::stoll(found.values.at("distributed.timeout_s").text));
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
