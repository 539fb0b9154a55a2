// Each rule opens the file once and judges that descriptor; the first one that refuses ends it.
#include "sdk/src/trust/trust.h"

#include <algorithm>
#include <filesystem>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"
#include "sdk/src/file/privilege_path.h"
#include "sdk/src/plugin/elf.h"
#include "sdk/src/trust/signature.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
constexpr const char *kTrustDomain = "octavo.trust";
constexpr size_t kMostSignatureBytes = 4 << 10;
constexpr size_t kMostLockBytes = 256 << 10;

struct Refused {
  uint32_t reason;
  std::string text;
  std::string evidence;
  Remedy remedy;
};

Remedy relock(const TrustPolicy &policy) {
  return run_command("octavo plugin lock " + policy.config, " if the change is wanted");
}

class Check {
 public:
  Check(Manifest &manifest, const TrustPolicy &policy) : manifest_(manifest), policy_(policy) {}

  // Throws Refused.
  std::string run() {
    if (policy_.mode == "dev" && policy_.privileged)
      throw Refused{OCTAVO_REASON_TRUST,
                    "plugins.trust = \"dev\" is not for a process with raised privileges",
                    "this process is set-uid, set-gid or has file capabilities",
                    set_key("plugins.trust", "\"owner\"")};
    open_library();
    if (policy_.mode != "dev") owner();
    const std::string sha256 =
        manifest_.checked == nullptr ? std::string() : manifest_.checked->sha256();
    stated_hash(sha256);
    if (policy_.mode == "pinned") pinned(sha256);
    if (policy_.mode == "signed") signed_manifest();
    if (policy_.locked) locked(sha256);
    return sha256;
  }

 private:
  [[noreturn]] void refuse(const std::string &text, const std::string &evidence,
                           const Remedy &remedy) const {
    throw Refused{OCTAVO_REASON_TRUST, text, evidence, remedy};
  }

  // In mode "dev" a file that cannot be opened is the loader's to refuse.
  void open_library() {
    try {
      manifest_.checked = std::make_shared<const CheckedFile>(manifest_.library, kTrustDomain);
    } catch (const Failure &f) {
      manifest_.checked = nullptr;
      if (policy_.mode != "dev")
        refuse(refusal(), manifest_.library + " cannot be inspected: " + f.text(), kReadRemedy);
    }
  }

  std::string refusal() const {
    return "plugins.trust = \"" + policy_.mode + "\" refuses the file";
  }

  void owner() const {
    const uid_t owner = trusted_owner(policy_.privileged);
    Remedy remedy;
    std::string problem =
        path_problem(manifest_.library, *manifest_.checked, owner, Links::kRefuse, &remedy);
    if (problem.empty())
      problem = path_problem(manifest_.path, *manifest_.file, owner, Links::kFollow, &remedy);
    if (problem.empty()) problem = problem_of_needs(owner, &remedy);
    if (!problem.empty())
      refuse(refusal(), problem,
             remedy.empty() ? Remedy(kReadRemedy) : Remedy(remedy.text + kOwnerRemedy, remedy.fix));
  }

  // What the library needs runs with it, so who can replace that can replace the library.
  std::string problem_of_needs(uid_t owner, Remedy *remedy) const {
    for (const std::string &path : named_needs(manifest_.library)) {
      try {
        const CheckedFile file(path, kTrustDomain);
        const std::string whole = fs::absolute(path).string();
        const std::string problem = path_problem(whole, file, owner, Links::kFollow, remedy);
        if (!problem.empty()) return concat(manifest_.library, " needs ", path, ": ", problem);
      } catch (const Failure &f) {
        return concat(manifest_.library, " needs ", path, ": ", f.text());
      }
    }
    return {};
  }

  void stated_hash(const std::string &sha256) const {
    if (!manifest_.sha256.empty() && manifest_.sha256 != sha256)
      refuse("the library is not the one that its manifest describes",
             manifest_.library + ": expected sha256 " + manifest_.sha256 + ", found " + sha256,
             "reinstall the plugin");
  }

  void pinned(const std::string &sha256) const {
    const std::string pin = manifest_.name + ":" + sha256;
    if (std::find(policy_.pins.begin(), policy_.pins.end(), pin) != policy_.pins.end()) return;
    const LockedPlugin *entry = policy_.lock ? policy_.lock->find(manifest_.name) : nullptr;
    if (entry != nullptr && entry->sha256 == sha256) return;
    std::vector<std::string> known, wanted;
    for (const std::string &p : policy_.pins) {
      const bool own = p.starts_with(manifest_.name + ":");
      (own ? known : wanted).push_back(own ? p + " (plugins.pins)" : p);
    }
    wanted.push_back(pin);
    if (entry != nullptr)
      known.push_back(manifest_.name + ":" + entry->sha256 + " (" + policy_.lock_path + ")");
    refuse(refusal() + ": its hash is not pinned",
           manifest_.library + ": expected " +
               (known.empty() ? "a pin of " + manifest_.name : enumerate(known, "or")) +
               ", found " + sha256 +
               (policy_.lock_problem.empty() ? "" : "; " + policy_.lock_problem),
           set_key("plugins.pins", show(TomlValue(wanted)), " if this is the file you want"));
  }

  void signed_manifest() const {
    if (manifest_.sha256.empty())
      refuse(refusal() + ": its manifest does not state the library's hash",
             manifest_.path + ": expected [library] " + platform_tuple() +
                 " = { file = ..., sha256 = ... }, found no sha256",
             "state the hash in the manifest and sign it again");
    const std::string path = manifest_.path + ".sig";
    std::string signature;
    try {
      signature = CheckedFile(path, kTrustDomain).read(kMostSignatureBytes);
    } catch (const Failure &f) {
      refuse(refusal() + ": its manifest is not signed", f.text(),
             run_command("minisign -S -x " + path + " -m " + manifest_.path, " as its author"));
    }
    std::string problem;
    Remedy remedy;
    const std::vector<PublicKey> keys =
        trusted_keys(policy_.keys, policy_.system_keys, policy_.privileged, &problem, &remedy);
    if (!problem.empty()) refuse("a public key cannot be used", problem, remedy);
    PublicKey by;
    problem = signature_problem(manifest_.text, signature, keys, &by);
    if (!problem.empty())
      refuse(refusal() + ": its signature does not hold", path + ": " + problem,
             "install the plugin as its author signed it, or add the author's key to plugins.keys");
  }

  void locked(const std::string &sha256) const {
    const std::string text = "plugins.locked refuses " + manifest_.name;
    if (!policy_.lock)
      throw Refused{OCTAVO_REASON_LOCK, text + ": there is no lock file", policy_.lock_problem,
                    relock(policy_)};
    const LockedPlugin *entry = policy_.lock->find(manifest_.name);
    if (entry == nullptr)
      throw Refused{OCTAVO_REASON_LOCK, text + ": the lock file does not name it",
                    policy_.lock_path + ": expected an entry for " + manifest_.name + " on " +
                        platform_tuple() + ", found none",
                    relock(policy_)};
    const std::string drift = lock_drift(*entry, locked_plugin(manifest_, sha256, {}));
    if (!drift.empty())
      throw Refused{OCTAVO_REASON_LOCK, text + ": it is not the one that was locked", drift,
                    relock(policy_)};
  }

  static constexpr const char *kOwnerRemedy = ", or set plugins.trust = \"dev\" while developing";
  static constexpr const char *kReadRemedy =
      "reinstall the plugin where this user can read it, and start the process again";
  Manifest &manifest_;
  const TrustPolicy &policy_;
};

Verdict verdict_of(const Refused &r) {
  return {OCTAVO_LEVEL_MANIFEST, OCTAVO_DECLINE, r.reason, r.text, r.evidence, r.remedy};
}

}  // namespace

TrustPolicy trust_policy(const Config &config, bool privileged) {
  TrustPolicy policy;
  policy.mode = config[key::kTrust];
  policy.pins = config[key::kPins];
  policy.locked = config[key::kLocked];
  policy.privileged = privileged;
  policy.config = config.directory.empty() ? "octavo.toml" : config.name;
  for (const std::string &key : config[key::kKeys]) {
    const bool is_key = parse_public_key(key, "").has_value();
    const bool is_relative = fs::path(key).is_relative();
    if (is_key || !is_relative || config.directory.empty())
      policy.keys.push_back(key);
    else
      policy.keys.push_back((fs::path(config.directory) / key).string());
  }
  if (!policy.locked && policy.mode != "pinned") return policy;
  if (config.directory.empty()) {
    policy.lock_problem = "there is no configuration file that octavo.lock could be next to";
    return policy;
  }
  policy.lock_path = (fs::path(config.directory) / kLockFile).string();
  try {
    const CheckedFile file(policy.lock_path, kTrustDomain);
    if (policy.mode != "dev")
      policy.lock_problem =
          path_problem(policy.lock_path, file, trusted_owner(privileged), Links::kFollow);
    if (policy.lock_problem.empty())
      policy.lock = parse_lock(file.read(kMostLockBytes), policy.lock_path);
  } catch (const Failure &f) {
    policy.lock_problem = f.text();
  }
  return policy;
}

bool check_trust(Manifest &manifest, const TrustPolicy &policy, std::string *sha256,
                 std::vector<Verdict> &verdicts) {
  try {
    *sha256 = Check(manifest, policy).run();
    return true;
  } catch (const Refused &r) {
    verdicts.push_back(verdict_of(r));
    return false;
  }
}

void check_locked_verdict(const std::string &name, const TrustPolicy &policy,
                          std::vector<Verdict> &verdicts) {
  const LockedPlugin *entry = policy.locked && policy.lock ? policy.lock->find(name) : nullptr;
  if (entry == nullptr) return;
  const std::string now = verdict_digest(verdicts);
  if (now == entry->verdict) return;
  std::vector<std::string> said;
  for (const Verdict &v : verdicts)
    said.push_back(std::string(level_name(v.level)) + " " + decision_name(v.decision) + " " +
                   reason_name(v.reason));
  verdicts.push_back(verdict_of(
      {OCTAVO_REASON_LOCK,
       "plugins.locked refuses " + name + ": it answers otherwise than when it was locked",
       "verdict: locked " + entry->verdict + ", found " + now + " (" + enumerate(said) + ")",
       relock(policy)}));
}

}  // namespace octavo
