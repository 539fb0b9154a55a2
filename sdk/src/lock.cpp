// The file is TOML with one [[plugin]] table an entry.
#include "lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <tuple>

#include "failure.h"
#include "secure_hash.h"
#include "text.h"
#include "toml.h"

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

[[noreturn]] void fail(const std::string &where, const std::string &text) {
  throw Failure(OCTAVO_INVALID, kDomain, where + ": " + text + "; write it again: octavo lock");
}

// A file under another name until commit.
class Draft {
 public:
  explicit Draft(const std::string &path)
      : path_(path), temporary_(path + ".tmp." + std::to_string(getpid())) {
    unlink(temporary_.c_str());  // of a process with this number that was killed
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (file_ < 0) refuse();
  }
  ~Draft() {
    if (file_ >= 0) close(file_);
    if (!committed_) unlink(temporary_.c_str());
  }
  Draft(const Draft &) = delete;
  Draft &operator=(const Draft &) = delete;

  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(file_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) refuse();
      text.remove_prefix(static_cast<size_t>(written));
    }
  }
  void commit() {
    if (fchmod(file_, 0644) != 0 || fsync(file_) != 0) refuse();
    if (rename(temporary_.c_str(), path_.c_str()) != 0) refuse();
    committed_ = true;
  }

 private:
  [[noreturn]] void refuse() {
    const int reason = errno;
    if (file_ >= 0) {
      close(file_);
      file_ = -1;
      unlink(temporary_.c_str());
    }
    throw Failure(OCTAVO_RESOURCE, kDomain,
                  path_ + ": cannot be written: " + std::strerror(reason) +
                      "; check the directory's permissions and free space");
  }
  const std::string path_;
  const std::string temporary_;
  int file_ = -1;
  bool committed_ = false;
};

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
    const std::string where = path + ":" + std::to_string(entry.line);
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
    if (field == nullptr) fail(where, "unknown key \"" + key + "\"");
    if (value == nullptr) fail(where, key + ": expected a text, found " + kind_of(entry.value));
    if (field->digest && !is_sha256(*value))
      fail(where, key + ": expected 64 digits of lower-case hex, found \"" + *value + "\"");
    entries[entry.path[1]].*field->member = *value;
  }
  if (version != kVersion)
    fail(path, "lock_version: expected " + std::to_string(kVersion) + ", found " +
                   (version == 0 ? "nothing" : std::to_string(version)));
  Lock lock;
  for (auto &[number, plugin] : entries) {
    for (const Field &f : kFields)
      if ((plugin.*f.member).empty())
        fail(path, "plugin " + number + ": expected a value of " + f.name + ", found nothing");
    for (const LockedPlugin &p : lock.plugins)
      if (p.name == plugin.name && p.platform == plugin.platform)
        fail(path, "expected one entry for " + p.name + " on " + p.platform + ", found two");
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
      "# Written by `octavo lock`. Runs with plugins.locked = true refuse anything else.\n";
  text += "lock_version = " + std::to_string(kVersion) + "\n";
  for (const LockedPlugin &p : sorted) {
    text += "\n[[plugin]]\n";
    for (const Field &f : kFields)
      text += std::string(f.name) + " = " + show(TomlValue(p.*f.member)) + "\n";
  }
  return text;
}

void write_lock(const std::string &path, const Lock &lock) {
  Draft draft(path);
  draft.write(lock_text(lock));
  draft.commit();
  // The new name lasts once its directory is on disk; where that cannot be asked for, it is written
  // soon anyway.
  const std::string directory = std::filesystem::path(path).parent_path().string();
  const int dir = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return;
  fsync(dir);
  close(dir);
}

LockedPlugin locked_plugin(const Manifest &manifest, const std::string &sha256,
                           const std::vector<Verdict> &verdicts) {
  return {manifest.name,
          platform_tuple(),
          manifest.version,
          std::to_string(manifest.abi_major) + "." + std::to_string(manifest.abi_minor),
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
