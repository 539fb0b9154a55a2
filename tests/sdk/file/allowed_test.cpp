// The user's answers: where they are kept, and which of them count.
#include "sdk/src/file/allowed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "sdk/src/base/failure.h"
#include "sdk/src/file/privilege_file.h"
#include "sdk/src/file/privilege_path.h"
#include "tests/support/environment.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

using testing::HasSubstr;

class AllowedTest : public testing::Test {
 protected:
  void SetUp() override {
    Remedy remedy;
    if (const std::string problem = folder_problem(dir.path(), geteuid(), &remedy);
        !problem.empty())
      GTEST_SKIP() << "the temporary directory is not trusted itself: " << problem;
    environment.set("XDG_DATA_HOME", dir / "data");
  }
  std::string answer() const { return dir / "data/octavo/allowed/" + sha256_of(folder); }

  test::Environment environment;
  test::TempDir dir;
  const std::string folder = std::filesystem::canonical(dir.make_directory("plugins"));
};

TEST_F(AllowedTest, an_answer_is_one_file_that_only_its_user_can_write) {
  EXPECT_FALSE(is_allowed(folder));
  allow(folder);
  allow(folder);
  EXPECT_TRUE(is_allowed(folder));
  EXPECT_EQ(test::read_text(answer()), folder + "\n");
  struct stat s {};
  ASSERT_EQ(stat(answer().c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 07777, 0600u);
  ASSERT_EQ(stat((dir / "data/octavo/allowed").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 07777, 0700u);
  EXPECT_FALSE(is_allowed(dir.make_directory("plugins/below")));
  disallow(folder);
  disallow(folder);
  EXPECT_FALSE(is_allowed(folder));
}

TEST_F(AllowedTest, counts_for_the_directory_under_all_its_names) {
  std::filesystem::create_directory_symlink(folder, dir / "link");
  allow(dir / "link");
  EXPECT_TRUE(is_allowed(folder));
  EXPECT_TRUE(is_allowed(folder + "/../plugins/"));
  const std::string other = dir.make_directory("other");
  std::filesystem::remove(dir / "link");
  std::filesystem::create_directory_symlink(other, dir / "link");
  EXPECT_FALSE(is_allowed(dir / "link"));
}

TEST_F(AllowedTest, a_directory_that_went_away_can_be_disallowed) {
  allow(folder);
  std::filesystem::remove(folder);
  EXPECT_FALSE(is_allowed(folder));
  disallow(folder);
  std::filesystem::create_directory(folder);
  EXPECT_FALSE(is_allowed(folder));
}

TEST_F(AllowedTest, what_others_could_have_written_is_no_answer) {
  allow(folder);
  ASSERT_EQ(chmod(answer().c_str(), 0666), 0);
  EXPECT_FALSE(is_allowed(folder));
  ASSERT_EQ(chmod(answer().c_str(), 0600), 0);
  EXPECT_TRUE(is_allowed(folder));
  ASSERT_EQ(chmod((dir / "data/octavo").c_str(), 0777), 0);
  EXPECT_FALSE(is_allowed(folder));
  EXPECT_THROW(allow(folder), Failure);
  ASSERT_EQ(chmod((dir / "data/octavo").c_str(), 0755), 0);
  dir.write("data/octavo/allowed/" + sha256_of(folder), "another\n");
  EXPECT_FALSE(is_allowed(folder));
}

TEST_F(AllowedTest, home_is_used_without_xdg_data_home) {
  environment.unset("XDG_DATA_HOME");
  EXPECT_EQ(user_data_directory(), "");
  EXPECT_FALSE(is_allowed(folder));
  try {
    allow(folder);
    FAIL() << "accepted";
  } catch (const Failure &f) {
    EXPECT_EQ(f.status(), OCTAVO_NO_RESOURCE);
    EXPECT_THAT(f.text(), HasSubstr("found neither XDG_DATA_HOME nor HOME"));
  }
  environment.set("HOME", "relative");
  EXPECT_EQ(user_data_directory(), "");
  environment.set("HOME", dir / "home");
  EXPECT_EQ(user_data_directory(), dir / "home/.local/share/octavo");
  allow(folder);
  EXPECT_TRUE(is_allowed(folder));
}

TEST_F(AllowedTest, refuses_what_is_no_directory) {
  for (const std::string &path : {dir / "none", dir.write("file", "")}) {
    try {
      allow(path);
      ADD_FAILURE() << "accepted " << path;
    } catch (const Failure &f) {
      EXPECT_EQ(f.status(), OCTAVO_INVALID);
      EXPECT_THAT(f.text(), HasSubstr(path + ": expected a directory, found: "));
    }
  }
  dir.write("taken", "");
  environment.set("XDG_DATA_HOME", dir / "taken");
  try {
    allow(folder);
    ADD_FAILURE() << "recorded below a file";
  } catch (const Failure &f) {
    EXPECT_EQ(f.status(), OCTAVO_NO_RESOURCE);
    EXPECT_THAT(f.text(), HasSubstr("taken/octavo"));
  }
}

}  // namespace
}  // namespace octavo
