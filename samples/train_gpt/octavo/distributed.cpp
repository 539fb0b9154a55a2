// The configuration as octavo_check_config reports it.
#include "distributed.h"

#include <nlohmann/json.hpp>

#include "../model/error.h"
#include "octavo_run.h"

namespace gpt {

Distributed read_distributed(const std::string &config_path) {
  octavo::Settings settings;
  settings.path(config_path);
  const octavo::Answer answer = octavo::check_config(settings, "json");
  if (answer.status == OCTAVO_RESOURCE)
    throw octavo::Error("octavo_check_config", answer.status, answer.diagnostics);
  expect(answer.status == OCTAVO_OK, config_path, "a configuration that Octavo can read",
         "octavo_check_config answered status " + std::to_string(answer.status) +
             said(answer.diagnostics),
         "follow the messages above; `octavo config check` prints every value");
  const nlohmann::json keys = nlohmann::json::parse(answer.text)["settings"];
  const auto value = [&](const char *key) { return keys.at(key).at("value"); };
  Distributed d;
  d.engine = value("distributed.engine");
  d.origin = keys["distributed.engine"]["origin"];
  d.timeout_s = value("distributed.timeout_s");
  d.run_id = value("checkpoint.run_id");
  d.on_cuda = value("device.kind") == "cuda";
  return d;
}

}  // namespace gpt
