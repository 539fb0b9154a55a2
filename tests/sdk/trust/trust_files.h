// A manifest and a library that "owner" accepts, or a skip where even the system's temporary
// directory would be refused.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sdk/src/file/privilege_file.h"
#include "sdk/src/trust/trust.h"
#include "tests/support/temp_dir.h"

namespace octavo {

// sha256 of "abc", from FIPS 180-2.
inline constexpr const char *kAbc =
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

class TrustTest : public testing::Test {
 protected:
  void SetUp() override {
    manifest.name = "x";
    manifest.version = "1.0";
    manifest.abi_major = 1;
    manifest.library = dir.write("p/x.so", "abc", 0755);
    put_manifest("text");
    policy.system_keys = dir / "keys";
    policy.config = dir / "octavo.toml";
    if (!check("owner"))
      GTEST_SKIP() << "the temporary directory is not trusted itself: " << verdicts[0].evidence
                   << "; point TMPDIR at one that only its owner can write to";
  }
  // The manifest as read_manifest leaves it.
  void put_manifest(const std::string &text) {
    manifest.path = dir.write("p/x.octavo-plugin.toml", text);
    manifest.file = std::make_shared<const CheckedFile>(manifest.path, "test");
    manifest.text = text;
  }
  bool check(const std::string &trust) {
    verdicts.clear();
    sha256.clear();
    policy.mode = trust;
    return check_trust(manifest, policy, &sha256, verdicts);
  }
  void expect(uint32_t reason, const std::string &text, const std::string &evidence) {
    ASSERT_EQ(verdicts.size(), 1u);
    EXPECT_EQ(verdicts[0].level, uint32_t{OCTAVO_LEVEL_MANIFEST});
    EXPECT_EQ(verdicts[0].decision, uint32_t{OCTAVO_DECLINE});
    EXPECT_EQ(verdicts[0].reason, reason);
    EXPECT_EQ(verdicts[0].text, text);
    EXPECT_THAT(verdicts[0].evidence, testing::HasSubstr(evidence));
    EXPECT_NE(verdicts[0].remedy.text, "");
  }
  static constexpr const char *kRefuses = "plugins.trust = \"signed\" refuses the file: ";
  void expect_refused(const std::string &evidence) {
    EXPECT_FALSE(check("owner"));
    ASSERT_EQ(verdicts.size(), 1u);
    EXPECT_EQ(verdicts[0].level, uint32_t{OCTAVO_LEVEL_MANIFEST});
    EXPECT_EQ(verdicts[0].decision, uint32_t{OCTAVO_DECLINE});
    EXPECT_EQ(verdicts[0].reason, uint32_t{OCTAVO_REASON_TRUST});
    EXPECT_EQ(verdicts[0].text, "plugins.trust = \"owner\" refuses the file");
    EXPECT_EQ(verdicts[0].evidence, evidence);
    EXPECT_NE(verdicts[0].remedy.text, "");
    EXPECT_TRUE(check("dev"));
    EXPECT_TRUE(verdicts.empty());
  }

  test::TempDir dir;
  Manifest manifest;
  TrustPolicy policy;
  std::string sha256;
  std::vector<Verdict> verdicts;
};

}  // namespace octavo
