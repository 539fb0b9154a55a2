// Trust: may this file be loaded? Decided from owner, mode, hash, signature and lock file, before
// any of its code runs.
#pragma once

#include <string>
#include <vector>

#include "sdk/src/base/verdict.h"
#include "sdk/src/config/config.h"
#include "sdk/src/plugin/manifest.h"
#include "sdk/src/trust/lock.h"

namespace octavo {

// Public keys of the system's administrator: files of root that end in .pub.
inline constexpr const char *kSystemKeys = "/etc/octavo/keys";

// What the configuration, its lock file and the process allow.
struct TrustPolicy {
  std::string mode = "owner";     // plugins.trust
  std::vector<std::string> pins;  // plugins.pins: "<name>:<sha256>"
  std::vector<std::string> keys;  // plugins.keys: a key itself, or the absolute path of its file
  std::string system_keys = kSystemKeys;
  bool locked = false;       // plugins.locked
  bool privileged = false;   // the process has more rights than its user
  std::string config;        // the configuration file's name, for remedies
  std::string lock_path;     // empty: there is no configuration file that one could be next to
  std::string lock_problem;  // why there is no lock
  std::optional<Lock> lock;
};

// Reads the lock file where the mode or plugins.locked asks for it; a failure becomes lock_problem.
TrustPolicy trust_policy(const Config &config, bool privileged);

// "dev": any file. "owner": root or this user owns library, manifest and every directory and link
// on the way, and nobody else can write to them. "pinned": owner, and the hash is that of a pin or
// of the lock file. "signed": owner, and <manifest>.sig is a signature over the manifest, which
// states the hash. Under all of them a sha256 in the manifest is checked, and with `locked` the
// lock file.
//
// Appends a declining verdict and returns false when the answer is no. Otherwise *sha256 is the
// library's hash and manifest.checked the file it was taken from.
bool check_trust(Manifest &manifest, const TrustPolicy &policy, std::string *sha256,
                 std::vector<Verdict> &verdicts);

// With `locked`: what the backend answered must be what it answered when the lock was written; else
// appends a declining verdict. Due once all of its verdicts are there.
void check_locked_verdict(const std::string &name, const TrustPolicy &policy,
                          std::vector<Verdict> &verdicts);

}  // namespace octavo
