// Pins, signatures and the lock file: what they accept in addition to the rules of owners.
#include "tests/sdk/trust/trust_files.h"
#include "tests/support/minisign.h"

namespace octavo {
namespace {

using testing::HasSubstr;

class TrustModes : public TrustTest {
 protected:
  // The text with empty lines, which mean nothing, up to so many bytes.
  static std::string padded(const std::string &text, size_t bytes) {
    return text + std::string(bytes - text.size(), '\n');
  }
};

TEST_F(TrustModes, pinned_needs_a_pin) {
  EXPECT_FALSE(check("pinned"));
  expect(OCTAVO_REASON_TRUST, "plugins.trust = \"pinned\" refuses the file: its hash is not pinned",
         manifest.library + ": expected a pin of x, found " + kAbc);
  EXPECT_EQ(verdicts[0].remedy.text,
            std::string("set plugins.pins = [\"x:") + kAbc + "\"] if this is the file you want");
  policy.pins = {std::string("y:") + kAbc, std::string("x:") + kAbc};
  EXPECT_TRUE(check("pinned"));
  policy.pins = {std::string("y:") + kAbc};  // a pin is one of a name
  EXPECT_FALSE(check("pinned"));
  EXPECT_THAT(verdicts[0].remedy.text, HasSubstr(std::string("[\"y:") + kAbc + "\", \"x:" + kAbc));
  policy.pins = {"x:" + sha256_of("abd")};
  EXPECT_FALSE(check("pinned"));
  EXPECT_THAT(verdicts[0].evidence,
              HasSubstr("expected x:" + sha256_of("abd") + " (plugins.pins)"));
}

TEST_F(TrustModes, lock_file_is_a_pin) {
  policy.lock.emplace();
  policy.lock->plugins = {locked_plugin(manifest, kAbc, {})};
  EXPECT_TRUE(check("pinned"));
  policy.lock->plugins[0].platform = "plan9-mips";
  EXPECT_FALSE(check("pinned"));
}

TEST_F(TrustModes, pinned_and_signed_check_owners_too) {
  policy.pins = {std::string("x:") + kAbc};
  ASSERT_TRUE(check("pinned"));
  chmod(manifest.library.c_str(), 0775);
  for (const char *mode : {"pinned", "signed"}) {
    EXPECT_FALSE(check(mode));
    EXPECT_THAT(verdicts[0].evidence, HasSubstr("has mode 0775"));
  }
}

TEST_F(TrustModes, signed_by_a_key_of_the_configuration) {
  const test::Signer signer;
  manifest.sha256 = kAbc;
  policy.keys = {signer.public_line()};
  dir.write("p/x.octavo-plugin.toml.sig", signer.sign("text"));
  EXPECT_TRUE(check("signed")) << verdicts[0].evidence;
  policy.privileged = true;  // its user may have written the configuration
  EXPECT_FALSE(check("signed"));
  policy.privileged = false;
  policy.keys = {dir.write("k.pub", signer.public_file())};
  EXPECT_TRUE(check("signed")) << verdicts[0].evidence;
  chmod((dir / "k.pub").c_str(), 0666);
  EXPECT_FALSE(check("signed"));
  expect(OCTAVO_REASON_TRUST, "a public key cannot be used", "has mode 0666");
}

TEST_F(TrustModes, signed_by_a_key_of_the_system) {
  if (geteuid() != 0) GTEST_SKIP() << "only root owns the keys of the system";
  const test::Signer signer;
  manifest.sha256 = kAbc;
  dir.write("p/x.octavo-plugin.toml.sig", signer.sign("text"));
  dir.write("keys/acme.pub", signer.public_file());
  dir.write("keys/readme", "no key");
  EXPECT_TRUE(check("signed")) << verdicts[0].evidence;
  policy.privileged = true;
  EXPECT_TRUE(check("signed")) << verdicts[0].evidence;
  ASSERT_EQ(chown((dir / "keys/acme.pub").c_str(), 12345, 12345), 0);
  EXPECT_FALSE(check("signed"));
  EXPECT_THAT(verdicts[0].evidence, HasSubstr("belongs to user 12345, expected root"));
}

TEST_F(TrustModes, signed_refuses_what_is_not_signed) {
  const test::Signer signer, other;
  policy.keys = {signer.public_line()};
  EXPECT_FALSE(check("signed"));
  expect(OCTAVO_REASON_TRUST,
         kRefuses + std::string("its manifest does not state the library's hash"),
         manifest.path + ": expected [library] " + platform_tuple() +
             " = { file = ..., sha256 = ... }, found no sha256");
  EXPECT_EQ(verdicts[0].remedy.text, "state the hash in the manifest and sign it again");
  manifest.sha256 = kAbc;
  EXPECT_FALSE(check("signed"));
  expect(OCTAVO_REASON_TRUST, kRefuses + std::string("its manifest is not signed"),
         manifest.path + ".sig: cannot be read: No such file or directory");
  EXPECT_EQ(verdicts[0].remedy.text, "run `minisign -S -x " + manifest.path + ".sig -m " +
                                         manifest.path + "` as its author");
  dir.write("p/x.octavo-plugin.toml.sig", other.sign("text"));
  EXPECT_FALSE(check("signed"));
  expect(OCTAVO_REASON_TRUST, kRefuses + std::string("its signature does not hold"),
         manifest.path + ".sig: expected a signature of one of the keys");
  EXPECT_EQ(verdicts[0].remedy.text,
            "install the plugin as its author signed it, or add the author's key to plugins.keys");
  dir.write("p/x.octavo-plugin.toml.sig", signer.sign("texu"));
  EXPECT_FALSE(check("signed"));
  expect(OCTAVO_REASON_TRUST, kRefuses + std::string("its signature does not hold"),
         "is not one of these bytes");
  policy.keys = {"no key at all"};
  EXPECT_FALSE(check("signed"));
  expect(OCTAVO_REASON_TRUST, "a public key cannot be used", "no key at all: cannot be read");
  policy.keys = {dir.write("k.pub", "nonsense")};
  EXPECT_FALSE(check("signed"));
  expect(OCTAVO_REASON_TRUST, "a public key cannot be used",
         "expected a public key of minisign, found something else");
  EXPECT_EQ(verdicts[0].remedy.text,
            "name a key of minisign, or a file that holds one, in plugins.keys");
}

TEST_F(TrustModes, longest_signature_and_key) {
  const test::Signer signer;
  manifest.sha256 = kAbc;
  policy.keys = {dir.write("k.pub", padded(signer.public_file(), 4 << 10))};
  const std::string path = dir / "p/x.octavo-plugin.toml.sig";
  dir.write("p/x.octavo-plugin.toml.sig", padded(signer.sign("text"), 4 << 10));
  EXPECT_TRUE(check("signed")) << verdicts[0].evidence;
  dir.write("p/x.octavo-plugin.toml.sig", padded(signer.sign("text"), (4 << 10) + 1));
  EXPECT_FALSE(check("signed"));
  EXPECT_EQ(verdicts[0].evidence, path + ": expected at most 4 KiB, found a file of 4097 bytes");
  dir.write("k.pub", padded(signer.public_file(), (4 << 10) + 1));
  dir.write("p/x.octavo-plugin.toml.sig", signer.sign("text"));
  EXPECT_FALSE(check("signed"));
  EXPECT_EQ(verdicts[0].evidence,
            (dir / "k.pub") + ": expected at most 4 KiB, found a file of 4097 bytes");
}

TEST_F(TrustModes, longest_lock_file) {
  Config config;
  config[key::kTrust] = "pinned";
  config.directory = dir.path();
  Lock lock;
  lock.plugins = {locked_plugin(manifest, kAbc, {})};
  dir.write("octavo.lock", padded(lock_text(lock), 256 << 10));
  EXPECT_TRUE(trust_policy(config, false).lock);
  dir.write("octavo.lock", padded(lock_text(lock), (256 << 10) + 1));
  EXPECT_FALSE(trust_policy(config, false).lock);
}

// The signature covers the manifest, the manifest the library.
TEST_F(TrustModes, signed_manifest_with_another_library) {
  const test::Signer signer;
  policy.keys = {signer.public_line()};
  dir.write("p/x.octavo-plugin.toml.sig", signer.sign("text"));
  manifest.sha256 = sha256_of("abd");
  EXPECT_FALSE(check("signed"));
  EXPECT_EQ(verdicts[0].text, "the library is not the one that its manifest describes");
}

TEST_F(TrustModes, locked_accepts_what_was_locked_and_nothing_else) {
  policy.locked = true;
  policy.lock_path = dir / "octavo.lock";
  policy.lock_problem = "no such file";
  const std::string remedy =
      "run `octavo plugin lock " + (dir / "octavo.toml") + "` if the change is wanted";
  for (const char *trust : {"owner", "dev"}) {
    policy.lock.reset();
    EXPECT_FALSE(check(trust));
    expect(OCTAVO_REASON_LOCK, "plugins.locked refuses x: there is no lock file", "no such file");
    EXPECT_EQ(verdicts[0].remedy.text, remedy);
    policy.lock.emplace();
    EXPECT_FALSE(check(trust));
    expect(OCTAVO_REASON_LOCK, "plugins.locked refuses x: the lock file does not name it",
           policy.lock_path + ": expected an entry for x");
    policy.lock->plugins = {locked_plugin(manifest, kAbc, {})};
    EXPECT_TRUE(check(trust));
    const LockedPlugin good = policy.lock->plugins[0];
    const std::pair<std::string LockedPlugin::*, std::string> changes[] = {
        {&LockedPlugin::version, "version: locked ?, found 1.0"},
        {&LockedPlugin::abi, "abi: locked ?, found 1.0"},
        {&LockedPlugin::sha256, std::string("sha256: locked ?, found ") + kAbc},
        {&LockedPlugin::manifest_sha256, "manifest_sha256: locked ?, found " + sha256_of("text")}};
    for (const auto &[member, message] : changes) {
      policy.lock->plugins[0] = good;
      policy.lock->plugins[0].*member = "?";
      EXPECT_FALSE(check(trust));
      expect(OCTAVO_REASON_LOCK, "plugins.locked refuses x: it is not the one that was locked",
             message);
      EXPECT_EQ(verdicts[0].remedy.text, remedy);
    }
  }
}

TEST_F(TrustModes, locked_verdict) {
  const std::vector<Verdict> native = {{OCTAVO_LEVEL_SESSION, OCTAVO_ACCEPT, 0, "a", "b", "c"}};
  const std::vector<Verdict> emulated = {
      {OCTAVO_LEVEL_SESSION, OCTAVO_ACCEPT_EMULATED, 0, "", "", ""}};
  policy.lock.emplace();
  policy.lock->plugins = {locked_plugin(manifest, kAbc, native)};
  std::vector<Verdict> said = emulated;
  check_locked_verdict("x", policy, said);
  EXPECT_EQ(said.size(), 1u);  // not locked
  policy.locked = true;
  check_locked_verdict("x", policy, said);
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[1].reason, uint32_t{OCTAVO_REASON_LOCK});
  EXPECT_EQ(said[1].decision, uint32_t{OCTAVO_DECLINE});
  EXPECT_EQ(said[1].text, "plugins.locked refuses x: it answers otherwise than when it was locked");
  EXPECT_THAT(said[1].evidence, HasSubstr("(session accept-emulated none)"));
  said = native;
  said[0].text = "other words";
  check_locked_verdict("x", policy, said);
  EXPECT_EQ(said.size(), 1u);
}

TEST_F(TrustModes, policy_from_a_configuration) {
  Config config;
  config[key::kTrust] = "owner";
  config.name = dir / "octavo.toml";
  config.directory = dir.path();
  const test::Signer signer;
  config[key::kKeys] = {signer.public_line(), "k.pub", "/k.pub"};
  config[key::kPins] = {"x:1"};
  TrustPolicy p = trust_policy(config, false);
  EXPECT_THAT(p.keys, testing::ElementsAre(signer.public_line(), dir / "k.pub", "/k.pub"));
  EXPECT_EQ(p.pins, config[key::kPins]);
  EXPECT_EQ(p.system_keys, "/etc/octavo/keys");
  EXPECT_FALSE(p.lock);
  EXPECT_EQ(p.lock_problem, "");  // nobody asks for it
  config[key::kLocked] = true;
  p = trust_policy(config, true);
  EXPECT_TRUE(p.privileged);
  EXPECT_FALSE(p.lock);
  EXPECT_THAT(p.lock_problem, HasSubstr((dir / "octavo.lock") + ": cannot be read: No such file"));
  Lock lock;
  lock.plugins = {locked_plugin(manifest, kAbc, {})};
  dir.write("octavo.lock", lock_text(lock));
  p = trust_policy(config, false);
  ASSERT_TRUE(p.lock) << p.lock_problem;
  EXPECT_NE(p.lock->find("x"), nullptr);
  chmod((dir / "octavo.lock").c_str(), 0666);
  p = trust_policy(config, false);
  EXPECT_FALSE(p.lock);
  EXPECT_EQ(p.lock_problem, (dir / "octavo.lock") + " has mode 0666, writable by group or others");
  config.directory = "";
  p = trust_policy(config, false);
  EXPECT_EQ(p.lock_problem, "there is no configuration file that octavo.lock could be next to");
}

TEST_F(TrustModes, lock_file_that_pins_another_library) {
  Lock lock;
  lock.plugins = {locked_plugin(manifest, std::string(64, 'a'), {})};
  policy.lock = lock;
  policy.lock_path = dir / "octavo.lock";
  policy.lock_problem = "";
  EXPECT_FALSE(check("pinned"));
  expect(OCTAVO_REASON_TRUST, "plugins.trust = \"pinned\" refuses the file: its hash is not pinned",
         "expected x:" + std::string(64, 'a') + " (" + (dir / "octavo.lock") + "), found " + kAbc);
  policy.lock.reset();
  policy.lock_problem = "the lock file is gone";
  EXPECT_FALSE(check("pinned"));
  EXPECT_THAT(verdicts[0].evidence,
              HasSubstr("found " + std::string(kAbc) + "; the lock file is gone"));
}

TEST_F(TrustModes, policies_of_other_configurations) {
  Config config;
  config.name = dir / "octavo.toml";
  config[key::kKeys] = {"k.pub"};
  config[key::kTrust] = "pinned";
  EXPECT_EQ(trust_policy(config, false).keys, config[key::kKeys]);  // relative to nothing
  EXPECT_EQ(trust_policy(config, false).config, "octavo.toml");
  config.directory = dir.path();
  Lock lock;
  lock.plugins = {locked_plugin(manifest, kAbc, {})};
  dir.write("octavo.lock", lock_text(lock), 0666);
  EXPECT_FALSE(trust_policy(config, false).lock);
  config[key::kTrust] = "dev";  // where nobody's rights count
  config[key::kLocked] = true;
  EXPECT_TRUE(trust_policy(config, false).lock);
  dir.write("octavo.lock", "rubbish", 0644);
  EXPECT_FALSE(trust_policy(config, false).lock);
  EXPECT_NE(trust_policy(config, false).lock_problem, "");
}

TEST_F(TrustModes, verdicts_without_a_lock) {
  policy.locked = true;
  policy.lock.reset();
  std::vector<Verdict> none;
  check_locked_verdict("x", policy, none);
  EXPECT_TRUE(none.empty());
}

}  // namespace
}  // namespace octavo
