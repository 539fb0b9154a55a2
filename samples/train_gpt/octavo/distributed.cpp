// The configuration as octavo_settings gives it.
#include "distributed.h"

#include "../model/error.h"
#include "octavo_run.h"

namespace gpt {

Distributed read_distributed(const std::string &config_path) {
  octavo::Settings settings;
  settings.path(config_path);
  const octavo::Configuration found = octavo::configuration(settings);
  if (found.status == OCTAVO_RESOURCE)
    throw octavo::Error("octavo_settings", found.status, found.diagnostics);
  expect(
      found.status == OCTAVO_OK, config_path, "a configuration that Octavo can read",
      "octavo_settings answered status " + std::to_string(found.status) + said(found.diagnostics),
      "follow the messages above; `octavo config check` prints every value");
  const auto value = [&](const char *key) { return found.values.at(key).text; };
  Distributed d;
  d.engine = value("distributed.engine");
  d.origin = found.values.at("distributed.engine").origin;
  d.timeout_s = std::stoll(value("distributed.timeout_s"));
  d.run_id = value("checkpoint.run_id");
  d.on_cuda = value("device.kind") == "cuda";
  return d;
}

}  // namespace gpt
