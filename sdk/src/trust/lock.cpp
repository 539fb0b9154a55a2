// The file is TOML with one [[plugin]] table an entry.
#include "sdk/src/trust/lock.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <tuple>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"
#include "sdk/src/config/toml.h"
#include "sdk/src/file/atomic_file.h"
#include "sdk/src/file/privilege_file.h"

namespace octavo {
namespace {

constexpr const char *kDomain = "octavo.lock";
constexpr int64_t kVersion = 1;

struct Field {
  const char *name;
  std::string LockedPlugin::*member;
  bool digest;  // 64 digits of hex
};
constexpr Field kFields[] = {{"name", &LockedPlugin::name, false},
                             {"platform", &LockedPlugin::platform, false},
                             {"version", &LockedPlugin::version, false},
                             {"abi", &LockedPlugin::abi, false},
                             {"sha256", &LockedPlugin::sha256, true},
                             {"manifest_sha256", &LockedPlugin::manifest_sha256, true},
                             {"verdict", &LockedPlugin::verdict, true}};

template <typename... Part>
[[noreturn]] void fail(const std::string &where, const Part &...text) {
  throw Failure(OCTAVO_INVALID, kDomain, where, ": ", text...,
                "; write it again: octavo plugin lock");
}

}  // namespace

const LockedPlugin *Lock::find(const std::string &name) const {
  for (const LockedPlugin &p : plugins)
    if (p.name == name && p.platform == platform_tuple()) return &p;
  return nullptr;
}

Lock parse_lock(std::string_view text, const std::string &path) {
  int64_t version = 0;
  std::map<std::string, LockedPlugin> entries;  // by their number in the file
  for (const TomlEntry &entry : parse_toml(text, path, kDomain)) {
    const std::string where = concat(path, ":", entry.line);
    const std::string key = dotted(entry.path);
    if (key == "lock_version") {
      const auto *number = std::get_if<int64_t>(&entry.value);
      version = number == nullptr ? -1 : *number;
      continue;
    }
    const Field *field = nullptr;
    if (entry.path.size() == 3 && entry.path[0] == "plugin")
      for (const Field &f : kFields)
        if (entry.path[2] == f.name) field = &f;
    const auto *value = std::get_if<std::string>(&entry.value);
    if (field == nullptr) fail(where, "unknown key \"", key, "\"");
    if (value == nullptr) fail(where, key, ": expected a text, found ", kind_of(entry.value));
    if (field->digest && !is_sha256(*value))
      fail(where, key, ": expected 64 digits of lower-case hex, found \"", *value, "\"");
    entries[entry.path[1]].*field->member = *value;
  }
  if (version != kVersion)
    fail(path, "lock_version: expected ", kVersion, ", found ",
         version == 0 ? "nothing" : std::to_string(version));
  Lock lock;
  for (auto &[number, plugin] : entries) {
    for (const Field &f : kFields)
      if ((plugin.*f.member).empty())
        fail(path, "plugin ", number, ": expected a value of ", f.name, ", found nothing");
    for (const LockedPlugin &p : lock.plugins)
      if (p.name == plugin.name && p.platform == plugin.platform)
        fail(path, "expected one entry for ", p.name, " on ", p.platform, ", found two");
    lock.plugins.push_back(std::move(plugin));
  }
  return lock;
}

std::string lock_text(const Lock &lock) {
  std::vector<LockedPlugin> sorted = lock.plugins;
  std::sort(sorted.begin(), sorted.end(), [](const LockedPlugin &a, const LockedPlugin &b) {
    return std::tie(a.name, a.platform) < std::tie(b.name, b.platform);
  });
  std::string text =
      "# Written by `octavo plugin lock`. Runs with plugins.locked = true refuse anything else.\n";
  text += concat("lock_version = ", kVersion, "\n");
  for (const LockedPlugin &p : sorted) {
    text += "\n[[plugin]]\n";
    for (const Field &f : kFields)
      text += std::string(f.name) + " = " + show(TomlValue(p.*f.member)) + "\n";
  }
  return text;
}

void write_lock(const std::string &path, const Lock &lock) {
  AtomicFile draft(path, 0644);
  const std::string text = lock_text(lock);
  if (draft.file() < 0 || !draft.write(text.data(), text.size()) ||
      fchmod(draft.file(), 0644) != 0 || fsync(draft.file()) != 0 || !draft.close() ||
      !draft.commit())
    throw Failure(OCTAVO_NO_RESOURCE, kDomain, path, ": cannot be written: ", std::strerror(errno),
                  "; check the directory's permissions and free space");
  draft.sync_directory();  // where it cannot be, it is on disk soon anyway
}

LockedPlugin locked_plugin(const Manifest &manifest, const std::string &sha256,
                           const std::vector<Verdict> &verdicts) {
  return {manifest.name,
          platform_tuple(),
          manifest.version,
          concat(manifest.abi_major, ".", manifest.abi_minor),
          sha256,
          sha256_of(manifest.text),
          verdict_digest(verdicts)};
}

std::string verdict_digest(const std::vector<Verdict> &verdicts) {
  std::string rows;
  for (const Verdict &v : verdicts)
    rows += std::string(level_name(v.level)) + " " + decision_name(v.decision) + " " +
            reason_name(v.reason) + "\n";
  return sha256_of(rows);
}

std::string lock_drift(const LockedPlugin &entry, const LockedPlugin &now) {
  std::vector<std::string> changes;
  for (const Field &f : kFields) {
    if (f.member == &LockedPlugin::verdict || entry.*f.member == now.*f.member) continue;
    changes.push_back(std::string(f.name) + ": locked " + entry.*f.member + ", found " +
                      now.*f.member);
  }
  return changes.empty() ? std::string() : enumerate(changes);
}

}  // namespace octavo
