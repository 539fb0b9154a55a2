// Owner, mode and hash of plugins, in ordinary processes and in privileged ones.
#include <cerrno>

#include "tests/sdk/plugin/elf_image.h"
#include "tests/sdk/trust/trust_files.h"
#include "tests/support/failing_calls.h"

namespace octavo {
namespace {

using testing::HasSubstr;

TEST_F(TrustTest, own_files_are_accepted_and_hashed) {
  EXPECT_TRUE(check("owner"));
  EXPECT_EQ(sha256, kAbc);
  EXPECT_TRUE(verdicts.empty());
}

TEST_F(TrustTest, library_that_the_group_can_write) {
  chmod(manifest.library.c_str(), 0775);
  expect_refused(manifest.library + " has mode 0775, writable by group or others");
  check("owner");
  EXPECT_EQ(verdicts[0].remedy.text, "run `chmod g-w " + manifest.library +
                                         "`, or set plugins.trust = \"dev\" while developing");
}

// At each call of `open` in turn, one of which is that of the needed library.
TEST_F(TrustTest, needed_library_that_cannot_be_opened) {
  test::ElfImage image(test::read_text(OCTAVO_ELF_SAMPLE));
  const std::string needed = dir.write("n/libneeded.so.1", image.bytes(), 0755);
  const uint64_t name = image.add_name("libneeded.so.1"), place = image.add_name(dir / "n");
  Elf64_Dyn need{}, path{};
  need.d_tag = DT_NEEDED;
  need.d_un.d_val = name;
  path.d_tag = DT_RUNPATH;
  path.d_un.d_val = place;
  image.add_entries({need, path});
  dir.write("p/x.so", image.bytes(), 0755);
  ASSERT_TRUE(check("owner"));
  std::vector<std::string> found;
  for (int call = 1; call < 12; ++call) {
    const test::FailingCall open("open", EACCES, call);
    if (!check("owner")) found.push_back(verdicts[0].evidence);
  }
  EXPECT_THAT(found, testing::Contains(manifest.library + " needs " + needed + ": " + needed +
                                       ": cannot be read: Permission denied; check the path and "
                                       "its permissions"));
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
  manifest.file = std::make_shared<const CheckedFile>(manifest.path, "test");
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
  for (const auto &[trust, digit] : {std::pair("owner", '0'), std::pair("dev", 'f')}) {
    manifest.sha256[0] = digit;
    EXPECT_FALSE(check(trust));
    ASSERT_EQ(verdicts.size(), 1u);
    EXPECT_EQ(verdicts[0].reason, uint32_t{OCTAVO_REASON_TRUST});
    EXPECT_EQ(verdicts[0].text, "the library is not the one that its manifest describes");
    EXPECT_EQ(verdicts[0].evidence,
              manifest.library + ": expected sha256 " + manifest.sha256 + ", found " + kAbc);
    EXPECT_EQ(verdicts[0].remedy.text, "reinstall the plugin");
  }
}

TEST_F(TrustTest, missing_library_has_no_hash) {
  std::filesystem::remove(manifest.library);
  EXPECT_TRUE(check("dev"));  // that it is missing is the manifest's and the loader's to say
  EXPECT_EQ(sha256, "");
  EXPECT_FALSE(check("owner"));
  EXPECT_THAT(verdicts[0].evidence, HasSubstr(manifest.library + " cannot be inspected"));
}

TEST_F(TrustTest, library_that_cannot_be_opened) {
  const test::FailingCall open("open", EACCES);
  EXPECT_FALSE(check("owner"));
  expect(OCTAVO_REASON_TRUST, "plugins.trust = \"owner\" refuses the file",
         manifest.library + " cannot be inspected: " + manifest.library +
             ": cannot be read: Permission denied");
  EXPECT_EQ(verdicts[0].remedy.text,
            "reinstall the plugin where this user can read it, and start the process again");
}

TEST_F(TrustTest, manifest_that_was_replaced_after_it_was_read) {
  const std::string other = dir.write("p/other", "other");
  std::filesystem::rename(other, manifest.path);
  expect_refused(manifest.path + " was replaced while it was checked");
}

TEST_F(TrustTest, checked_file_is_kept_open) {
  ASSERT_TRUE(check("owner"));
  ASSERT_NE(manifest.checked, nullptr);
  std::filesystem::remove(manifest.library);
  EXPECT_EQ(manifest.checked->sha256(), kAbc);
  EXPECT_FALSE(manifest.checked->unchanged());
}

TEST_F(TrustTest, dev_is_not_for_privileged_processes) {
  policy.privileged = true;
  EXPECT_FALSE(check("dev"));
  expect(OCTAVO_REASON_TRUST, "plugins.trust = \"dev\" is not for a process with raised privileges",
         "this process is set-uid, set-gid or has file capabilities");
  EXPECT_EQ(verdicts[0].remedy.text, "set plugins.trust = \"owner\"");
}

TEST_F(TrustTest, files_of_the_user_do_not_count_in_a_privileged_process) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  policy.privileged = true;
  EXPECT_TRUE(check("owner"));
  ASSERT_EQ(chown(manifest.library.c_str(), 12345, 12345), 0);
  EXPECT_FALSE(check("owner"));
  expect(OCTAVO_REASON_TRUST, "plugins.trust = \"owner\" refuses the file",
         "belongs to user 12345, expected root");
}

}  // namespace
}  // namespace octavo
