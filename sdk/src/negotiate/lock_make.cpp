// Each backend is negotiated alone, so that one that is chosen does not hide the others.

#include <algorithm>
#include <filesystem>

#include "sdk/src/base/failure.h"
#include "sdk/src/negotiate/negotiate.h"

namespace octavo {
namespace {

constexpr const char *kDomain = "octavo.lock";
constexpr size_t kMostBytes = 256 << 10;

// Backends that the configuration names, each once.
std::vector<std::string> named(const Config &config) {
  std::vector<std::string> ids;
  const auto name = [&](const std::string &id) {
    const bool precision = id == "no" || id == "fp16" || id == "bf16";
    if (!precision && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  };
  if (config[key::kBackend] != "auto")
    name(config[key::kBackend]);
  else
    for (const std::string &id : config[key::kPreference]) name(id);
  for (const std::string &id : config[key::kFallback]) name(id);
  for (const auto &[id, options] : config.backend_options) name(id);
  return ids;
}

// The old file is what is being replaced, so it decides nothing; its entries for other platforms
// are kept when it can be read.
Lock others(const std::string &path) {
  Lock kept;
  try {
    for (LockedPlugin &p : parse_lock(CheckedFile(path, kDomain).read(kMostBytes), path).plugins)
      if (p.platform != platform_tuple()) kept.plugins.push_back(std::move(p));
  } catch (const Failure &) {
  }
  return kept;
}

}  // namespace

std::vector<LockedPlugin> write_lock_for(const octavo_open_desc &desc, const octavo_host *host,
                                         std::string *path) {
  const Config config = load_config(desc);
  if (config.directory.empty())
    throw Failure(OCTAVO_INVALID, kDomain,
                  "expected a configuration file, since octavo.lock is written next to it, found "
                  "none; name it: octavo plugin lock octavo.toml");
  std::vector<LockedPlugin> found;
  bool kernels_done = false;  // the same for every backend
  for (const std::string &id : named(config)) {
    Negotiation n = prepare(desc);
    n.config[key::kMixedPrecision] = "fp8";
    n.config[key::kBackend] = id;
    n.config[key::kFallback].clear();
    n.trust.locked = false;
    if (n.trust.mode == "pinned") n.trust.mode = "owner";  // the new file is a pin itself
    negotiate(n, desc, host);
    if (n.kernels && !kernels_done) {
      kernels_done = true;
      if (n.kernels->plugin != nullptr)
        found.push_back(
            locked_plugin(*n.kernels->described, n.kernels->plugin->sha256, n.kernels->verdicts));
      else
        warn(host, kDomain, n.kernels->id, " is not locked: ", n.kernels->verdicts.back().text);
    }
    for (const Candidate &layer : n.layers)
      if (layer.id != id && std::none_of(found.begin(), found.end(),
                                         [&](const LockedPlugin &p) { return p.name == layer.id; }))
        found.push_back(locked_plugin(*layer.described, layer.plugin->sha256, layer.verdicts));
    const Candidate &c = n.candidates.at(0);
    if (c.plugin != nullptr)
      found.push_back(locked_plugin(*c.described, c.plugin->sha256, c.verdicts));
    else
      warn(host, kDomain, id, " is not locked: ", refusal(n));
  }
  if (found.empty())
    throw Failure(
        OCTAVO_UNSUPPORTED, kDomain, config.name,
        ": none of the backends that it names can be loaded here, so there is nothing to lock");
  *path = (std::filesystem::path(config.directory) / kLockFile).string();
  Lock lock = others(*path);
  lock.plugins.insert(lock.plugins.end(), found.begin(), found.end());
  write_lock(*path, lock);
  return found;
}

}  // namespace octavo
