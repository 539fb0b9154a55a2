// octavo plugin list --kernels: the casts and products of every device's kernels. Their code runs.
#include "common.h"

#include <nlohmann/json.hpp>

namespace octavo::cli {
namespace {

using Ordered = nlohmann::ordered_json;

// One device: what octavo check finds with its kernels.
Ordered examine(Request request, const std::string &plugin, const std::string &kind) {
  request.set("device.kind=\"" + kind + "\"");
  request.set("device.kernels=\"" + plugin + "\"");
  Ordered one = {{"kind", kind}};
  if (plugin != "auto") one["plugin"] = plugin;
  const Ordered found = Ordered::parse(octavo::explain(request.settings(), "json").text);
  for (const char *key : {"device", "kernels", "speed", "ability"})
    if (found.contains(key)) one[key] = found[key];
  if (!found.contains("kernels") && found.contains("first_refusal"))
    one["refused"] = found["first_refusal"]["text"];
  return one;
}

// "tensor, row (native); block_1x32 (emulated)", or "none".
std::string words(const Ordered &formats) {
  std::string all;
  for (const char *how : {"native", "emulated"}) {
    std::string some;
    for (const auto &[name, found] : formats.items())
      if (found == how) some += (some.empty() ? "" : ", ") + name;
    if (!some.empty()) all += (all.empty() ? "" : "; ") + some + " (" + how + ")";
  }
  return all.empty() ? "none" : all;
}

void print(const Ordered &one) {
  const auto text = [&](const char *key) {
    return one.contains(key) ? one[key].get<std::string>() : std::string();
  };
  const std::string plugin = text("plugin");
  say("%s, kernels %s (%s)\n", text("device").c_str(),
      one.contains("kernels") ? text("kernels").c_str() : "none",
      plugin.empty() ? "liboctavo" : plugin.c_str());
  if (one.contains("refused")) return say("  refused: %s\n", text("refused").c_str());
  for (const auto &[name, formats] : one["ability"]["casts"].items())
    say("  casts to %s: %s\n", name.c_str(), words(formats).c_str());
  for (const auto &[name, formats] : one["ability"]["products"].items())
    say("  multiplies %s: %s\n", name.c_str(), words(formats).c_str());
}

}  // namespace

int list_abilities(const Request &request) {
  Ordered devices = Ordered::array({examine(request, "auto", "cpu")});
  const Ordered listed = Ordered::parse(list_json(request.settings()));
  for (const Ordered &plugin : listed["plugins"])
    if (plugin.contains("kernels") && !plugin.contains("shadowed_by"))
      devices.push_back(examine(request, plugin["name"], plugin["kernels"]["kind"]));
  if (request.is_json())
    put_json(Ordered{{"devices", devices}});
  else
    for (const Ordered &one : devices) print(one);
  return kOk;
}

}  // namespace octavo::cli
