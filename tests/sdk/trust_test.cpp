// Owner, mode and hash. Each test starts from files that "owner" accepts, or is skipped where even
// the system's temporary directory would be refused.
#include "sdk/src/trust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

using testing::HasSubstr;

// sha256 of "abc", from FIPS 180-2.
constexpr const char *kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

class TrustTest : public testing::Test {
 protected:
  void SetUp() override {
    manifest.path = dir.write("p/x.octavo-plugin.toml", "");
    manifest.library = dir.write("p/x.so", "abc", 0755);
    if (!check("owner"))
      GTEST_SKIP() << "the temporary directory is not trusted itself: " << verdicts[0].evidence
                   << "; point TMPDIR at one that only its owner can write to";
  }
  bool check(const std::string &trust) {
    verdicts.clear();
    sha256.clear();
    return check_trust(manifest, trust, &sha256, verdicts);
  }
  void expect_refused(const std::string &evidence) {
    EXPECT_FALSE(check("owner"));
    ASSERT_EQ(verdicts.size(), 1u);
    EXPECT_EQ(verdicts[0].level, uint32_t{OCTAVO_LEVEL_MANIFEST});
    EXPECT_EQ(verdicts[0].decision, uint32_t{OCTAVO_DECLINE});
    EXPECT_EQ(verdicts[0].reason, uint32_t{OCTAVO_REASON_TRUST});
    EXPECT_EQ(verdicts[0].text, "plugins.trust = \"owner\" refuses the file");
    EXPECT_EQ(verdicts[0].evidence, evidence);
    EXPECT_EQ(verdicts[0].remedy,
              "correct owner and mode, or set plugins.trust = \"dev\" while developing");
    EXPECT_TRUE(check("dev"));
    EXPECT_TRUE(verdicts.empty());
  }

  test::TempDir dir;
  Manifest manifest;
  std::string sha256;
  std::vector<Verdict> verdicts;
};

TEST_F(TrustTest, own_files_are_accepted_and_hashed) {
  EXPECT_TRUE(check("owner"));
  EXPECT_EQ(sha256, kAbc);
  EXPECT_TRUE(verdicts.empty());
}

TEST_F(TrustTest, library_that_the_group_can_write) {
  chmod(manifest.library.c_str(), 0775);
  expect_refused(manifest.library + " has mode 0775, writable by group or others");
}

TEST_F(TrustTest, manifest_that_others_can_write) {
  chmod(manifest.path.c_str(), 0646);
  expect_refused(manifest.path + " has mode 0646, writable by group or others");
}

TEST_F(TrustTest, directory_that_the_group_can_write) {
  chmod((dir / "p").c_str(), 0770);
  expect_refused((dir / "p") + " has mode 0770, writable by group or others");
}

TEST_F(TrustTest, directory_above_that_others_can_write) {
  chmod(dir.path().c_str(), 0777);
  expect_refused(dir.path() + " has mode 0777, writable by group or others");
}

TEST_F(TrustTest, sticky_directory_keeps_others_from_replacing) {
  chmod(dir.path().c_str(), 01777);
  EXPECT_TRUE(check("owner"));
}

TEST_F(TrustTest, file_of_another_user) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  ASSERT_EQ(chown(manifest.library.c_str(), 12345, 12345), 0);
  expect_refused(manifest.library + " belongs to user 12345, expected root or user 0");
}

TEST_F(TrustTest, symlinked_manifest_is_judged_where_it_lies) {
  const std::string real = dir.write("open/x.octavo-plugin.toml", "");
  chmod((dir / "open").c_str(), 0777);
  std::filesystem::remove(manifest.path);
  std::filesystem::create_symlink(real, manifest.path);
  expect_refused((dir / "open") + " has mode 0777, writable by group or others");
}

TEST_F(TrustTest, symlinked_library_is_no_regular_file) {
  std::filesystem::rename(manifest.library, dir / "p/real.so");
  std::filesystem::create_symlink(dir / "p/real.so", manifest.library);
  expect_refused(manifest.library + " is not a regular file");
}

TEST_F(TrustTest, hash_is_checked_under_every_trust) {
  manifest.sha256 = kAbc;
  EXPECT_TRUE(check("owner"));
  manifest.sha256[0] = '0';
  for (const char *trust : {"owner", "dev"}) {
    EXPECT_FALSE(check(trust));
    ASSERT_EQ(verdicts.size(), 1u);
    EXPECT_EQ(verdicts[0].reason, uint32_t{OCTAVO_REASON_TRUST});
    EXPECT_EQ(verdicts[0].text, "the library is not the one that its manifest describes");
    EXPECT_EQ(verdicts[0].evidence,
              manifest.library + ": expected sha256 " + manifest.sha256 + ", found " + kAbc);
    EXPECT_EQ(verdicts[0].remedy, "reinstall the plugin");
  }
}

TEST_F(TrustTest, missing_library_has_no_hash) {
  std::filesystem::remove(manifest.library);
  EXPECT_TRUE(check("dev"));  // that it is missing is the manifest's and the loader's to say
  EXPECT_EQ(sha256, "");
  EXPECT_FALSE(check("owner"));
  EXPECT_THAT(verdicts[0].evidence, HasSubstr(manifest.library + " cannot be inspected"));
}

}  // namespace
}  // namespace octavo
